"""Copies of samples from anywhere in mapped files, without a Python step per sample.

The package `dataloading-kernels` does it in compiled code, where it is installed; else NumPy does.
"""

import ctypes
import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

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

    def in_batch_order(self) -> np.ndarray:
        """Returns the samples of the batch, int64 `[n]`."""
        batch = np.empty_like(self.samples)
        batch[self.places] = self.samples
        return batch


def aligned(num_bytes: int) -> np.ndarray:
    """Returns uninitialized bytes at an address that TensorFlow takes over without a copy."""
    buffer = np.empty(num_bytes + _ALIGNMENT, np.uint8)
    return buffer[-buffer.ctypes.data % _ALIGNMENT :][:num_bytes]


@functools.cache
def compiled(name: str) -> Callable[..., None] | None:
    """Returns a compiled function of arrays and int64 numbers, whose content nothing checks.

    None where its package is not installed, or is older than the function.
    """
    try:
        from dataloading_kernels import LIBRARY
    except ImportError:
        return None
    function = getattr(ctypes.CDLL(str(LIBRARY)), name, None)
    if function is None:
        return None
    function.restype = None

    def call(*arguments: np.ndarray | int) -> None:
        values = []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                assert argument.flags.c_contiguous, name
                argument = argument.ctypes.data
            values.append(ctypes.c_int64(argument))
        function(*values)

    return call


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
    function = compiled("gather")
    if function is not None:
        for array, dtype in ((content, np.uint8), (offsets, np.int64), (places, np.int64)):
            assert array.dtype == dtype, (array.dtype, dtype)
        function(content, offsets, places, len(offsets), size, out)
    elif len(offsets):
        out.view(f"V{size}")[places] = _windows(content, size)[offsets]


def read_rows(values: np.ndarray, samples: range | Scattered) -> np.ndarray:
    """Returns a copy of rows of a contiguous array `[n, width]`."""
    if isinstance(samples, range):
        return np.array(values[samples.start : samples.stop])
    size = values.itemsize * values.shape[1]
    rows = aligned(len(samples.samples) * size)
    content = values.reshape(-1).view(np.uint8)
    gather(content, samples.samples * size, samples.places, size, rows)
    return rows.view(values.dtype).reshape(-1, values.shape[1])


def _windows(content: np.ndarray, size: int) -> np.ndarray:
    """Returns all runs of `size` bytes, so that an index is an offset.

    The dtype V has no alignment, so NumPy gathers from them without copying the file first.
    """
    values = content[: len(content) // size * size].view(f"V{size}")
    return as_strided(values, (len(content) - size + 1,), (1,))
