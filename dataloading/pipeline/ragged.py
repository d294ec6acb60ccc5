"""Ids of samples that differ in length as two NumPy arrays, and what loaders do with them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dataloading.pipeline.gather import aligned


class Ragged(NamedTuple):
    """Ids of samples; sample i has `values[row_splits[i]:row_splits[i + 1]]`, possibly none."""

    values: np.ndarray  # [sum of lengths], any integer dtype
    row_splits: np.ndarray  # int32 [samples + 1], from 0 to the number of values

    @classmethod
    def from_lengths(cls, values: np.ndarray, lengths: np.ndarray) -> "Ragged":
        """From the number of ids of each sample, which add up to `len(values)`."""
        return cls(values, row_splits_of(lengths))


def row_splits_of(lengths: np.ndarray) -> np.ndarray:
    """Returns the row splits, int32 `[n + 1]`, of samples with these numbers of ids, int64 `[n]`.

    Raises:
        ValueError: the ids are too many for int32.
    """
    # Of an aligned array, TensorFlow makes no copy.
    row_splits = aligned(4 * (len(lengths) + 1)).view(np.int32)
    num_ids = int(lengths.sum(dtype=np.int64))
    if num_ids > np.iinfo(np.int32).max:
        raise ValueError(
            f"a batch has {num_ids:,} ids of one ragged feature; expected at "
            f"most {np.iinfo(np.int32).max:,}. Use a smaller batch"
        )
    row_splits[0] = 0
    np.cumsum(lengths, out=row_splits[1:])
    return row_splits


Samples = np.ndarray | Ragged  # of one feature: an array `[samples, hotness]`, or ragged ids


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns int64 `starts[0]`, `starts[0] + 1`, ... `lengths[0]` of them, then the next ones."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total)


def cut_samples(samples: Samples, start: int, stop: int) -> Samples:
    """Returns the samples `start` to `stop - 1`; not a copy of the values."""
    if not isinstance(samples, Ragged):
        return samples[start:stop]
    row_splits = samples.row_splits[start : stop + 1]
    return Ragged(samples.values[row_splits[0] : row_splits[-1]], row_splits - row_splits[0])


def concatenate_samples(pieces: Sequence[Samples]) -> Samples:
    """Returns the samples of all pieces, which are of one kind, one after the other."""
    if not isinstance(pieces[0], Ragged):
        return np.concatenate(pieces)
    return Ragged.from_lengths(
        np.concatenate([piece.values for piece in pieces]),
        np.concatenate([np.diff(piece.row_splits) for piece in pieces]),
    )
