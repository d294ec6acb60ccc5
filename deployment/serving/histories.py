"""Where a history may have zeros: they are padding, and stand in front."""

from typing import NamedTuple

import numpy as np


class MisplacedPadding(NamedTuple):
    """A value of a row's histories that is padding where it must not be, or is not where it must.

    row, step: counted from 0.
    feature: number of the history among those of the row.
    is_behind_id: a 0 behind an id; otherwise the row's first history has a 0 at this step and this
        one has not, or the other way round.
    """

    row: int
    feature: int
    step: int
    is_behind_id: bool


def find_misplaced_padding(ids: np.ndarray) -> MisplacedPadding | None:
    """The first row's first misplaced value; None where zeros are padding in front, in all
    histories of a row equally many.

    Models take the first history's zeros for those of all, and the last step for the latest event.

    Args:
      ids: integers [rows, features, steps].
    """
    padding = ids == 0
    first = padding[:, 0]
    if (first[:, 1:] <= first[:, :-1]).all() and (padding == first[:, np.newaxis]).all():
        return None
    behind_id = np.zeros_like(padding)
    behind_id[:, :, 1:] = padding[:, :, 1:] & ~padding[:, :, :-1]
    differs = padding != first[:, np.newaxis]
    row = int(np.argmax((behind_id | differs).any(axis=(1, 2))))
    is_behind_id = bool(behind_id[row].any())
    bad = behind_id[row] if is_behind_id else differs[row]
    feature, step = divmod(int(np.argmax(bad)), ids.shape[2])
    return MisplacedPadding(row, feature, step, is_behind_id)
