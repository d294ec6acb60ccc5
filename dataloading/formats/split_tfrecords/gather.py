"""Bytes from anywhere in mapped files into one array, without a Python step per row."""

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided


def gather(
    contents: Sequence[np.ndarray], file: np.ndarray | None, offsets: np.ndarray, size: int
) -> np.ndarray:
    """`size` bytes, as one value of dtype V, from each of these places.

    Args:
        contents: bytes of each file, uint8.
        file: int64 `[n]`, which file; None where there is one.
        offsets: int64 `[n]`, where in it.
    """
    if file is None:
        return _windows(contents[0], size)[offsets] if len(offsets) else np.empty(0, f"V{size}")
    values = np.empty(len(offsets), f"V{size}")
    for number in np.unique(file):
        chosen = np.flatnonzero(file == number)
        values[chosen] = _windows(contents[number], size)[offsets[chosen]]
    return values


def gather_rows(
    contents: Sequence[np.ndarray],
    file: np.ndarray | None,
    offsets: np.ndarray,
    lengths: np.ndarray,
    size: int,
) -> np.ndarray:
    """`lengths[i] * size` bytes from each place, one after the other, uint8.

    Rows of one length are copied together: the costs are per row and not per value.
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
            rows = gather(
                contents, None if file is None else file[chosen], offsets[chosen], length * size
            )
            _windows(values, length * size)[(ends[chosen] - length) * size] = rows
    return values


def _windows(content: np.ndarray, size: int) -> np.ndarray:
    """All runs of `size` bytes, so that an index is an offset.

    The dtype V has no alignment, so NumPy gathers from them without copying the file first.
    """
    values = content[: len(content) // size * size].view(f"V{size}")
    return as_strided(values, (len(content) - size + 1,), (1,))
