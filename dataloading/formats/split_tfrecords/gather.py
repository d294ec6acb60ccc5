"""Bytes from anywhere in mapped files into one array, without a Python step per sample."""

from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import as_strided

Content = Callable[[int], np.ndarray]  # number of a file -> its bytes, uint8


def gather(
    content: Content, files: np.ndarray | None, offsets: np.ndarray, size: int
) -> np.ndarray:
    """Returns `size` bytes, as one value of dtype V, from each of these places.

    Args:
        content: bytes of each file.
        files: int64 `[n]`, file of each place; None for file 0.
        offsets: int64 `[n]`, offset in it.
    """
    if files is None and len(offsets):
        return _windows(content(0), size)[offsets]
    values = np.empty(len(offsets), f"V{size}")
    for number in [] if files is None else np.unique(files).tolist():
        chosen = np.flatnonzero(files == number)
        values[chosen] = _windows(content(number), size)[offsets[chosen]]
    return values


def gather_ragged(
    content: Content,
    files: np.ndarray | None,
    offsets: np.ndarray,
    lengths: np.ndarray,
    size: int,
) -> np.ndarray:
    """Returns `lengths[i] * size` bytes from each place, one after the other, uint8.

    Places of one length are copied together: the costs are per place and not per value.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    values = np.empty((int(ends[-1]) if len(ends) else 0) * size, np.uint8)
    longest = int(lengths.max(initial=0))
    # NumPy sorts 16-bit numbers by counting.
    order = np.argsort(lengths.astype(np.uint16 if longest < 2**16 else np.int64), kind="stable")
    bounds = np.flatnonzero(np.diff(lengths[order])) + 1
    for chosen in np.split(order, bounds):
        length = int(lengths[chosen[0]]) if len(chosen) else 0
        if length:
            files_of_chosen = None if files is None else files[chosen]
            parts = gather(content, files_of_chosen, offsets[chosen], length * size)
            _windows(values, length * size)[(ends[chosen] - length) * size] = parts
    return values


def _windows(content: np.ndarray, size: int) -> np.ndarray:
    """Returns all runs of `size` bytes, so that an index is an offset.

    The dtype V has no alignment, so NumPy gathers from them without copying the file first.
    """
    values = content[: len(content) // size * size].view(f"V{size}")
    return as_strided(values, (len(content) - size + 1,), (1,))
