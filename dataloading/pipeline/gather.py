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

    def in_batch_order(self) -> np.ndarray:
        """Returns the samples of the batch, int64 `[n]`."""
        batch = np.empty_like(self.samples)
        batch[self.places] = self.samples
        return batch


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
        addresses = [
            compiled.address(array, dtype)
            for array, dtype in ((content, np.uint8), (offsets, np.int64), (places, np.int64))
        ]
        library.gather(*addresses, len(offsets), size, out.ctypes.data)
    elif len(offsets):
        out.view(f"V{size}")[places] = _windows(content, size)[offsets]


def _windows(content: np.ndarray, size: int) -> np.ndarray:
    """Returns all runs of `size` bytes, so that an index is an offset.

    The dtype V has no alignment, so NumPy gathers from them without copying the file first.
    """
    values = content[: len(content) // size * size].view(f"V{size}")
    return as_strided(values, (len(content) - size + 1,), (1,))
