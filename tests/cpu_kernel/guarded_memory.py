"""Tensors between two pages that no one may touch."""

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE
# Before a tensor that ends at a page's end; after one that begins at a page's start.
CANARY = 0xA5
MARGIN = 256  # bytes
NO_ACCESS = 0


class GuardedMemory:
    """Room for one tensor at a time. A read or write next to it on the guarded side is a SIGSEGV.

    Args:
      capacity: bytes of the largest tensor.
    """

    def __init__(self, capacity: int):
        self.size = -(-capacity // PAGE) * PAGE
        self._map = mmap.mmap(-1, self.size + 2 * PAGE)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self.address = self._bytes.ctypes.data
        system = ctypes.CDLL(None, use_errno=True)
        for page in (self.address, self.address + PAGE + self.size):
            if system.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), NO_ACCESS):
                raise OSError(ctypes.get_errno(), "mprotect")

    def place(self, tensor: np.ndarray, at_end: bool = True) -> np.ndarray:
        """A copy of the 2-D `tensor` with its row strides that ends at the last page, or begins at
        the first one. The gaps between its rows hold canaries."""
        rows, columns = tensor.shape
        item = tensor.dtype.itemsize
        stride = max(tensor.strides[0], columns * item)
        size = (rows - 1) * stride + columns * item if rows and columns else 0
        if size > self.size:
            raise ValueError(f"{size} bytes do not fit in {self.size}")
        start = PAGE + (self.size - size if at_end else 0)
        begin, end = max(PAGE, start - MARGIN), min(PAGE + self.size, start + size + MARGIN)
        self._bytes[begin:end] = CANARY
        placed = np.ndarray(tensor.shape, tensor.dtype, self._map, start, (stride, item))
        placed[...] = tensor
        gaps = (rows - 1, stride - columns * item) if size else (0, 0)
        first_gap = start + columns * item
        self._around = [
            self._bytes[begin:start],
            self._bytes[start + size : end],
            np.ndarray(gaps, np.uint8, self._map, first_gap if size else 0, (stride, 1)),
        ]
        return placed

    def is_sound(self) -> bool:
        """Returns True if the bytes around the tensor and between its rows are unchanged."""
        return all((canaries == CANARY).all() for canaries in self._around)
