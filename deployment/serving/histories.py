"""Padding of histories: zeros at the start, at the same steps of all histories of a row."""

from typing import NamedTuple

import numpy as np


class MisplacedPadding(NamedTuple):
    """First value of a row's histories that breaks the rule of padding.

    Attributes:
        row: counted from 0.
        feature: number of the history among those of the row.
        step: counted from 0.
        is_after_id: whether it is a 0 after an id; otherwise exactly one of the row's first history
            and this one has a 0 at this step.
    """

    row: int
    feature: int
    step: int
    is_after_id: bool


def find_misplaced_padding(ids: np.ndarray) -> MisplacedPadding | None:
    """Returns the first misplaced value of the first bad row; None if all padding is valid.

    Models take the first history's zeros as those of all, and the last step as the latest event.

    Args:
        ids: integers [rows, features, steps].
    """
    padding = ids == 0
    first = padding[:, 0]
    if (first[:, 1:] <= first[:, :-1]).all() and (padding == first[:, np.newaxis]).all():
        return None
    after_id = np.zeros_like(padding)
    after_id[:, :, 1:] = padding[:, :, 1:] & ~padding[:, :, :-1]
    differs = padding != first[:, np.newaxis]
    row = int(np.argmax((after_id | differs).any(axis=(1, 2))))
    is_after_id = bool(after_id[row].any())
    bad = after_id[row] if is_after_id else differs[row]
    feature, step = divmod(int(np.argmax(bad)), ids.shape[2])
    return MisplacedPadding(row, feature, step, is_after_id)
