"""Series of interactions: what one user is asked at an evaluation, in neighbouring rows.

`docs/data_format.md` describes them. Needs NumPy only.
"""

import numpy as np

from dataloading.feature_spec import TRAIN


def series_key(mapping: str) -> str:
    """The key of the metadata that says how many rows a series of a mapping has."""
    return f"{mapping}_samples_per_series"


def samples_per_series(metadata: dict, mapping: str, origin: str) -> int | None:
    """Rows of a series of a mapping; None: every row is a positive by itself.

    Raises:
        ValueError: the key holds something else than a number of rows, or is there for `train`.
    """
    key = series_key(mapping)
    length = metadata.get(key)
    if key in metadata and (not isinstance(length, int) or length < 2):
        raise ValueError(
            f"{origin}: metadata: '{key}' is {length!r:.100}; allowed: the rows of a series, a "
            "whole number of 2 or more"
        )
    if key in metadata and mapping == TRAIN:
        raise ValueError(
            f"{origin}: metadata: '{key}': rows of '{TRAIN}' come in no series, each happened and "
            "negatives are drawn while training; remove the key"
        )
    return length


def broken_series(users: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which series are of several users, and which have not exactly one positive, bool `[series]`.

    Args:
        users: anything that tells users apart, `[series, rows of a series]`.
        labels: 0 for negatives, of the same shape.
    """
    return (users != users[:, :1]).any(axis=1), np.count_nonzero(labels, axis=1) != 1
