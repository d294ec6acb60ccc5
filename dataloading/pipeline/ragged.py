"""Rows of different lengths as two NumPy arrays, and what loaders do with them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dataloading.pipeline.shuffle import lay_out_shares


class Ragged(NamedTuple):
    """The ids of some rows; row i has `values[row_splits[i]:row_splits[i + 1]]`, possibly none.

    values: `[sum of lengths]`, any integer dtype.
    row_splits: int32 `[rows + 1]`, from 0 to the number of values.
    """

    values: np.ndarray
    row_splits: np.ndarray

    @classmethod
    def from_lengths(cls, values: np.ndarray, lengths: np.ndarray) -> "Ragged":
        """From the number of ids of each row, `[rows]`, which add up to `len(values)`."""
        if len(values) > np.iinfo(np.int32).max:
            raise ValueError(
                f"a batch has {len(values):,} ids of one ragged feature; allowed: "
                f"{np.iinfo(np.int32).max:,}. Use a smaller batch"
            )
        row_splits = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=row_splits[1:])
        return cls(values, row_splits)


def ranges(starts: np.ndarray, lengths: np.ndarray, step: int = 1) -> np.ndarray:
    """int64: `starts[0]`, `starts[0] + step`, ... `lengths[0]` of them, then those of the next."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths) * step, lengths) + np.arange(0, total * step, step)


def cut_rows(rows: np.ndarray | Ragged, start: int, stop: int) -> np.ndarray | Ragged:
    """The rows `start` to `stop - 1`; not a copy of the values."""
    if not isinstance(rows, Ragged):
        return rows[start:stop]
    row_splits = rows.row_splits[start : stop + 1]
    return Ragged(rows.values[row_splits[0] : row_splits[-1]], row_splits - row_splits[0])


def take_rows(rows: np.ndarray | Ragged, index: np.ndarray) -> np.ndarray | Ragged:
    """The rows with these numbers, in this order."""
    if not isinstance(rows, Ragged):
        return rows.take(index, axis=0)
    starts = rows.row_splits[:-1].take(index)
    lengths = rows.row_splits[1:].take(index) - starts
    return Ragged.from_lengths(rows.values.take(ranges(starts, lengths)), lengths)


def concatenate_rows(pieces: Sequence[np.ndarray | Ragged]) -> np.ndarray | Ragged:
    """The rows of all pieces, which are of one kind, below each other."""
    if not isinstance(pieces[0], Ragged):
        return np.concatenate(pieces)
    return Ragged.from_lengths(
        np.concatenate([piece.values for piece in pieces]),
        np.concatenate([np.diff(piece.row_splits) for piece in pieces]),
    )


def lay_out_rows(rows: np.ndarray | Ragged, world_size: int) -> np.ndarray | Ragged:
    """`lay_out_shares`, also of ragged rows."""
    if not isinstance(rows, Ragged):
        return lay_out_shares(rows, world_size)
    num_rows = len(rows.row_splits) - 1
    if num_rows % world_size == 0:
        return rows
    return take_rows(rows, lay_out_shares(np.arange(num_rows), world_size))
