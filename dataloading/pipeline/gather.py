"""Copies of samples from anywhere in mapped files, without a Python step per sample.

The package `dataloading-kernels` does it in compiled code, where it is installed; else NumPy does.
"""

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dataloading import compiled

_ALIGNMENT = 64  # bytes; TensorFlow takes over arrays at such addresses without a copy


class Scattered(NamedTuple):
    """Samples from anywhere, in ascending order: files are read once through.

    `samples[i]` is the sample at position `places[i]` of the batch.
    """

    samples: np.ndarray  # int64 [n], ascending
    places: np.ndarray  # int64 [n], a permutation

    @classmethod
    def from_batch(cls, batch: np.ndarray) -> "Scattered":
        """From the samples of a batch, int64 `[n]`, in its order."""
        places = np.argsort(batch)
        return cls(batch[places], places)


class Located(NamedTuple):
    """Offsets of samples in files of records.

    A run are the samples of one record: those from `run_starts[i]` to `run_starts[i + 1] - 1` are
    of record `records[i]`.
    """

    offsets: np.ndarray  # int64 [n]
    begins: np.ndarray | None  # int64 [n], what was passed for the record of each sample
    records: np.ndarray  # int64 [runs], ascending
    run_starts: np.ndarray  # int64 [runs + 1], the last one is n


def locate(
    samples: np.ndarray,
    first_samples: np.ndarray,
    origins: np.ndarray,
    step: int,
    begins: np.ndarray | None = None,
) -> Located:
    """Returns the offset `origins[record] + sample * step` of each sample.

    Args:
        samples: int64 `[n]`, ascending.
        first_samples: int64 `[records + 1]`; the last one is the number of samples.
        origins: int64 `[records]`.
        begins: int64 `[records]`.
    """
    library, size = compiled.library(), len(samples)
    if library is None:
        record = np.searchsorted(first_samples, samples, side="right") - 1
        starts = np.flatnonzero(np.diff(record, prepend=-1))
        offsets = samples * step
        offsets += origins[record]
        run_begins = None if begins is None else begins[record]
        return Located(offsets, run_begins, record[starts], np.append(starts, size))
    offsets, records, starts = (np.empty(size + more, np.int64) for more in (0, 0, 1))
    run_begins = None if begins is None else np.empty(size, np.int64)
    arrays = [
        None if array is None else compiled.address(array, np.int64)
        for array in (samples, first_samples, origins, begins, offsets, run_begins, records, starts)
    ]
    count = library.locate(
        *(arrays[0], size, arrays[1], len(origins), arrays[2], step, arrays[3]), *arrays[4:]
    )
    starts[count] = size
    return Located(offsets, run_begins, records[:count], starts[: count + 1])


def running_totals(lengths: np.ndarray, row_splits: np.ndarray) -> int:
    """Writes 0 and the totals of the first, of the first two lengths and so on; returns the last.

    Args:
        lengths: int64 `[n]`, contiguous.
        row_splits: int32 `[n + 1]`; of no use where the last total is above the range of int32.
    """
    library = compiled.library()
    if library is not None:
        arrays = compiled.address(lengths, np.int64), compiled.address(row_splits, np.int32)
        return library.sum_lengths(arrays[0], len(lengths), arrays[1])
    row_splits[0] = 0
    np.cumsum(lengths, out=row_splits[1:])
    return int(lengths.sum())


def are_row_splits(splits: np.ndarray, num_values: int, hotness: int, ragged: bool) -> bool:
    """Returns whether these lead from 0 to `num_values`, and differ by `hotness` or, where ragged,
    by 0 to `hotness`.

    Args:
        splits: int32 or int64 `[n + 1]`, possibly at an odd address.
    """
    library = compiled.library()
    if library is not None:
        size, rules = splits.itemsize, (num_values, hotness, ragged)
        return library.first_bad_split(splits.ctypes.data, len(splits) - 1, size, *rules) < 0
    lengths = np.diff(splits)
    least = 0 if ragged else hotness
    ends = splits[0] == 0 and splits[-1] == num_values
    return bool(ends and (lengths >= least).all() and (lengths <= hotness).all())


def aligned(num_bytes: int) -> np.ndarray:
    """Returns uninitialized bytes at an address that TensorFlow takes over without a copy."""
    buffer = np.empty(num_bytes + _ALIGNMENT, np.uint8)
    return buffer[-buffer.ctypes.data % _ALIGNMENT :][:num_bytes]


def gather(
    content: np.ndarray, offsets: np.ndarray, places: np.ndarray, size: int, out: np.ndarray
) -> None:
    """Copies `size` bytes from each offset to `out[places[i] * size]` and the bytes behind.

    Args:
        content: uint8 `[bytes]`, contiguous; all ranges are within it.
        offsets: int64 `[n]`.
        places: int64 `[n]`.
        out: uint8, contiguous.
    """
    library = compiled.library()
    if library is not None:
        library.gather(*_addresses(content, offsets, places), len(offsets), size, out.ctypes.data)
    elif len(offsets):
        out.view(f"V{size}")[places] = _windows(content, size)[offsets]


def read_splits(
    content: np.ndarray,
    offsets: np.ndarray,
    places: np.ndarray,
    dtype: np.dtype,
    size: int,
    begins: np.ndarray,
    lengths: np.ndarray,
) -> None:
    """Reads two neighboring row splits at each offset: where a sample's values begin and end.

    Args:
        content, offsets, places: see `gather`.
        dtype: of the row splits, int32 or int64.
        size: bytes per value.
        begins: int64 `[n]`, contiguous; `size` times the first row split is added to `begins[i]`.
        lengths: int64; `lengths[places[i]]` becomes the difference.
    """
    library = compiled.library()
    if library is not None:
        library.read_splits(
            *_addresses(content, offsets, places),
            *(len(offsets), dtype.itemsize, size, begins.ctypes.data, lengths.ctypes.data),
        )
    elif len(offsets):
        pairs = _windows(content, 2 * dtype.itemsize)[offsets].view(dtype).astype(np.int64)
        lengths[places] = pairs[1::2] - pairs[::2]
        begins += size * pairs[::2]


def gather_ragged(
    content: np.ndarray,
    offsets: np.ndarray,
    places: np.ndarray,
    size: int,
    row_splits: np.ndarray,
    out: np.ndarray,
) -> None:
    """Copies the values of ragged samples, sample `places[i]` from `offsets[i]`.

    Args:
        content, offsets, places: see `gather`.
        size: bytes per value.
        row_splits: int32 `[n + 1]`, where the values of each sample begin in `out`, and their end.
        out: uint8 `[row_splits[-1] * size]`, contiguous.
    """
    library = compiled.library()
    if library is not None:
        library.gather_ragged(
            *_addresses(content, offsets, places),
            *(len(offsets), size, row_splits.ctypes.data, out.ctypes.data),
        )
        return
    # Samples of one length are copied together: the costs are per sample and not per value.
    starts = row_splits[places] * np.int64(size)
    sizes = row_splits[places + 1] * np.int64(size) - starts
    order = np.argsort(sizes, kind="stable")
    for chosen in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1):
        width = int(sizes[chosen[0]]) if len(chosen) else 0
        if width:
            _windows(out, width)[starts[chosen]] = _windows(content, width)[offsets[chosen]]


def _windows(content: np.ndarray, size: int) -> np.ndarray:
    """Returns all runs of `size` bytes, so that an index is an offset.

    The dtype V has no alignment, so NumPy gathers from them without copying the file first.
    """
    values = content[: len(content) // size * size].view(f"V{size}")
    return as_strided(values, (len(content) - size + 1,), (1,))


def _addresses(content: np.ndarray, offsets: np.ndarray, places: np.ndarray) -> list[int]:
    pairs = ((content, np.uint8), (offsets, np.int64), (places, np.int64))
    return [compiled.address(array, dtype) for array, dtype in pairs]
