"""Tensors with guard bands around them: on the host for the emulator, on a GPU through PyTorch."""

import itertools
from typing import Protocol

import numpy as np

from tests.gpu.library import Emulator

GUARD_BYTES = 4096
# Of inputs NaN in every dtype; of outputs a large number, which no kernel computes by chance.
INPUT_GUARD = 0xFF
OUTPUT_GUARD = 0x7B


class Tensor:
    """Bytes at `address`, with GUARD_BYTES on either side."""

    def __init__(self, address: int, size_bytes: int, fetch):
        self.address = address
        self.size_bytes = size_bytes
        self._fetch = fetch

    def read(self) -> tuple[np.ndarray, bool]:
        """The bytes now, and whether those around an output are still what they were."""
        everything = self._fetch()
        guards = (everything[:GUARD_BYTES], everything[GUARD_BYTES + self.size_bytes :])
        intact = all((guard == OUTPUT_GUARD).all() for guard in guards)
        return everything[GUARD_BYTES : GUARD_BYTES + self.size_bytes], intact


class Memory(Protocol):
    """Memory for the tensors of kernels; each tensor is kept until `release`."""

    def tensor(self, contents: np.ndarray, offset_bytes: int, writable: bool) -> Tensor:
        """A tensor of these bytes, `offset_bytes` beyond an address that is a multiple of 256."""

    def stream(self) -> int:
        """The stream for the next kernel; elsewhere tensors may not hold their contents yet."""

    def settle(self) -> None:
        """Waits until the kernels are done; results may be read after that."""

    def release(self) -> None:
        """Forgets all tensors."""


def _with_guards(contents: np.ndarray, writable: bool) -> np.ndarray:
    guard = np.full(GUARD_BYTES, OUTPUT_GUARD if writable else INPUT_GUARD, np.uint8)
    return np.concatenate([guard, contents.reshape(-1).view(np.uint8), guard])


class HostMemory:
    """Host memory; registers the bytes that kernels may touch with the emulator."""

    _ALIGNMENT = 256
    # An odd number of them: forward and backward runs, which alternate, get each.
    _STREAMS = (0, 0x100, 0x200)

    def __init__(self, emulator: Emulator):
        self._emulator = emulator
        self._streams = itertools.cycle(self._STREAMS)

    def tensor(self, contents: np.ndarray, offset_bytes: int, writable: bool) -> Tensor:
        everything = _with_guards(contents, writable)
        size_bytes = everything.size - 2 * GUARD_BYTES
        block = np.empty(everything.size + offset_bytes + self._ALIGNMENT, np.uint8)
        start = -block.ctypes.data % self._ALIGNMENT + offset_bytes
        place = block[start : start + everything.size]
        place[:] = everything
        address = place.ctypes.data + GUARD_BYTES
        self._emulator.add_tensor(address, size_bytes, GUARD_BYTES, writable)
        return Tensor(address, size_bytes, lambda: place)

    def stream(self) -> int:
        stream = next(self._streams)
        self._emulator.set_stream(stream)
        return stream

    def settle(self) -> None:
        # The emulator rejects access to the guard bands, by the tests too, until it forgets them.
        self._emulator.forget_tensors()

    def release(self) -> None:
        self._emulator.forget_tensors()


class GpuMemory:
    """On the current CUDA device of PyTorch.

    One kernel in _RUNS_TO_A_STREAM is queued on a stream of its own, after a delay and the copies
    of the tensors' contents: on another stream it would read the tensors before the copies.
    """

    _RUNS_TO_A_STREAM = 9  # odd, so that forward and backward runs, which alternate, come to it
    _DELAY_CYCLES = 10_000_000  # some 5 ms; to queue the copies and the kernel takes less than 1

    def __init__(self, torch):
        self._torch = torch
        self._own_stream = torch.cuda.Stream()
        self._runs = itertools.count(1)
        self._arriving: list = []  # (where, what)
        self._kept: list = []

    def tensor(self, contents: np.ndarray, offset_bytes: int, writable: bool) -> Tensor:
        everything = _with_guards(contents, writable)
        size_bytes = everything.size - 2 * GUARD_BYTES
        block = self._torch.full(
            (everything.size + offset_bytes,), INPUT_GUARD, dtype=self._torch.uint8, device="cuda"
        )
        place = block[offset_bytes:]
        self._arriving.append((place, self._torch.from_numpy(everything).to("cuda")))
        self._kept.append(block)
        return Tensor(place.data_ptr() + GUARD_BYTES, size_bytes, lambda: place.cpu().numpy())

    def stream(self) -> int:
        cuda = self._torch.cuda
        cuda.synchronize()
        is_own = next(self._runs) % self._RUNS_TO_A_STREAM == 0
        stream = self._own_stream if is_own else cuda.default_stream()
        with cuda.stream(stream):
            if is_own:
                cuda._sleep(self._DELAY_CYCLES)
            for place, contents in self._arriving:
                place.copy_(contents)
        # Not to be freed before they are read.
        self._kept += [contents for _, contents in self._arriving]
        self._arriving.clear()
        return stream.cuda_stream

    def settle(self) -> None:
        self._torch.cuda.synchronize()

    def release(self) -> None:
        self._arriving.clear()
        self._kept.clear()
