"""Series of interactions: what one user is asked at an evaluation, in neighbouring rows.

`docs/data_format.md` describes them. Needs NumPy only.
"""

import numpy as np

from dataloading.spec.feature_spec import TRAIN


def series_key(mapping: str) -> str:
    """Returns the metadata key of the rows per candidate list of a mapping."""
    return f"{mapping}_samples_per_series"


def series_length(mapping: str, metadata: dict, has_label: bool, origin: str) -> int | None:
    """Rows of a series of a mapping; None: every row is an interaction of its own.

    Args:
        metadata: of the data set.
        has_label: whether the mapping has a label a row.
        origin: what messages call the feature spec.

    Raises:
        ValueError: the key holds something else than a number of rows, is there for `train` or for
            a mapping without a label, or is not there for one with a label.
    """
    key, where = series_key(mapping), f"{origin}: mapping '{mapping}': metadata"
    if key not in metadata:
        if has_label and mapping != TRAIN:
            raise ValueError(
                f"{where}: '{key}' is missing, and there is a label, so that there are negatives, "
                "too: state the rows of a series (one positive and its negatives, all of one "
                "user), or leave the label out where every row is a positive"
            )
        return None
    length = metadata[key]
    if not isinstance(length, int) or length < 2:
        raise ValueError(
            f"{where}: '{key}' is {length!r:.100}; allowed: the rows of a series, a whole number "
            "of 2 or more"
        )
    if mapping == TRAIN:
        raise ValueError(
            f"{where}: '{key}': rows of '{TRAIN}' come in no series, each happened and negatives "
            "are drawn while training; remove the key"
        )
    if not has_label:
        raise ValueError(
            f"{where}: '{key}' is {length}, and there is no label, which "
            "separates the positive of a series from its negatives: store the label, or leave the "
            "key out where every row is a positive"
        )
    return length


def broken_series(users: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns masks of the lists of several users, and of those without exactly one positive.

    Args:
        users: numbers that identify users, `[series, rows of a series]`.
        labels: 0 for negatives, of the same shape.
    """
    return (users != users[:, :1]).any(axis=1), np.count_nonzero(labels, axis=1) != 1
