"""Rules of candidate lists, see `docs/reference/file_formats.md`. Needs NumPy only."""

import numpy as np

from dataloading.spec.feature_spec import TRAIN


def list_length_key(split: str) -> str:
    """Returns the metadata key of the rows per candidate list of a split."""
    return f"{split}_samples_per_series"


def candidate_list_length(split: str, metadata: dict, has_label: bool, origin: str) -> int | None:
    """Returns the rows per candidate list of a split; None: every row is an interaction.

    Args:
        metadata: of the data set.
        has_label: whether the split has a label.
        origin: name of the feature spec in messages.

    Raises:
        ValueError: the key is not a number of rows, or does not fit the split and its label.
    """
    key, where = list_length_key(split), f"{origin}: split '{split}': metadata"
    if key not in metadata:
        if has_label and split != TRAIN:
            raise ValueError(
                f"{where}: '{key}' is missing, and there is a label, so that there are negatives, "
                "too: state the rows of a candidate list (one positive and its negatives, all of "
                "one user), or leave the label out where every row is a positive"
            )
        return None
    length = metadata[key]
    if not isinstance(length, int) or length < 2 or split == TRAIN or not has_label:
        raise ValueError(
            f"{where}: '{key}' is {length!r:.100}; expected the rows of a candidate list, a "
            f"whole number of 2 or more, of a split with a label other than '{TRAIN}': leave the "
            "key out where every row is a positive, or store the label"
        )
    return length


def broken_lists(users: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns masks of the lists of several users, and of those without exactly one positive.

    Args:
        users: numbers that identify users, `[lists, rows per list]`.
        labels: 0 for negatives, of the same shape.
    """
    return (users != users[:, :1]).any(axis=1), np.count_nonzero(labels, axis=1) != 1
