"""Tensors with guard bands around them: on the host for the emulator, on a GPU through PyTorch."""

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
    """Where kernels find their tensors; each is kept until `release`."""

    def tensor(self, contents: np.ndarray, offset_bytes: int, writable: bool) -> Tensor:
        """A tensor of these bytes, `offset_bytes` beyond an address that is a multiple of 256."""

    def settle(self) -> None:
        """Waits until the kernels are done; results may be read after that."""

    def release(self) -> None:
        """Forgets all tensors."""


def _with_guards(contents: np.ndarray, writable: bool) -> np.ndarray:
    guard = np.full(GUARD_BYTES, OUTPUT_GUARD if writable else INPUT_GUARD, np.uint8)
    return np.concatenate([guard, contents.reshape(-1).view(np.uint8), guard])


class HostMemory:
    """For the emulator, which is told what kernels may touch."""

    _ALIGNMENT = 256

    def __init__(self, emulator: Emulator):
        self._emulator = emulator

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

    def settle(self) -> None:
        # The guard bands are nobody's, not even ours, until the emulator gives them up.
        self._emulator.forget_tensors()

    def release(self) -> None:
        self._emulator.forget_tensors()


class GpuMemory:
    """On the current CUDA device of PyTorch."""

    def __init__(self, torch):
        self._torch = torch
        self._kept: list = []

    def tensor(self, contents: np.ndarray, offset_bytes: int, writable: bool) -> Tensor:
        everything = _with_guards(contents, writable)
        size_bytes = everything.size - 2 * GUARD_BYTES
        block = self._torch.empty(
            everything.size + offset_bytes, dtype=self._torch.uint8, device="cuda"
        )
        place = block[offset_bytes:]
        place.copy_(self._torch.from_numpy(everything))
        self._kept.append(block)
        return Tensor(place.data_ptr() + GUARD_BYTES, size_bytes, lambda: place.cpu().numpy())

    def settle(self) -> None:
        self._torch.cuda.synchronize()

    def release(self) -> None:
        self._kept.clear()
