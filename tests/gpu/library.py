"""The C interface of dot_interact.h from Python, on raw addresses."""

import ctypes
from pathlib import Path
from typing import NamedTuple

DTYPES = {"float32": 0, "float16": 1, "bfloat16": 2}
BAD_ARGUMENT = -1
NO_TF32 = 1
PLAIN = 2


class Shape(ctypes.Structure):
    """dot_interact_shape; sizes in numbers."""

    _fields_ = [
        ("batch", ctypes.c_int64),
        ("features", ctypes.c_int64),
        ("dim", ctypes.c_int64),
        ("head", ctypes.c_int64),
        ("first_stride", ctypes.c_int64),
        ("rest_stride", ctypes.c_int64),
        ("dtype", ctypes.c_int32),
    ]


def width(head: int, features: int) -> int:
    """Numbers of an output row, as dot_interact_width."""
    return -(-(head + features * (features - 1) // 2) // 8) * 8


class Library:
    """The CUDA part of the C interface; pointers are integers, 0 is null."""

    def __init__(self, path: Path):
        self.path = path
        self._library = ctypes.CDLL(str(path))
        shape, pointer, flags = ctypes.POINTER(Shape), ctypes.c_void_p, ctypes.c_int32
        self._forward = self._library.dot_interact_cuda_forward
        self._forward.argtypes = [shape, *[pointer] * 4, flags, pointer]
        self._backward = self._library.dot_interact_cuda_backward
        self._backward.argtypes = [shape, *[pointer] * 6, flags, pointer]
        self._kernel = self._library.dot_interact_cuda_kernel
        self._kernel.argtypes, self._kernel.restype = [shape, flags], ctypes.c_char_p
        self._error = self._library.dot_interact_cuda_error
        self._error.argtypes, self._error.restype = [ctypes.c_int], ctypes.c_char_p

    def forward(self, shape, first, rest, head, output, flags=0, stream=0) -> int:
        """dot_interact_cuda_forward; returns its error number."""
        return self._forward(shape, first, rest, head, output, flags, stream)

    def backward(
        self, shape, first, rest, upstream, first_gradient, rest_gradient, head_gradient, flags=0,
        stream=0,
    ) -> int:  # fmt: skip
        """dot_interact_cuda_backward; returns its error number."""
        return self._backward(
            *(shape, first, rest, upstream),
            *(first_gradient, rest_gradient, head_gradient, flags, stream),
        )

    def kernel(self, shape: Shape, flags: int = 0) -> str:
        """Returns the name of the kernel for these sizes."""
        return self._kernel(shape, flags).decode()

    def error(self, number: int) -> str:
        """Returns the text of an error number."""
        return self._error(number).decode()


class Device(NamedTuple):
    """Resources of the emulated device; sizes in bytes."""

    multiprocessors: int = 1
    resident_blocks: int = 1
    shared_per_block: int = 232448  # 227 KiB: 9.0 and 10.0
    shared_per_multiprocessor: int = 233472


class Traffic(NamedTuple):
    """Memory traffic of the kernels; only the checked build counts bytes."""

    bytes_read: int
    bytes_written: int
    matrix_loads: int
    matrix_load_conflicts: int


class Emulator:
    """The controls of a library that runs on the emulator."""

    def __init__(self, path: Path):
        self._emulator = ctypes.CDLL(str(path))
        self._set_device = self._emulator.dot_interact_emulator_set_device
        self._set_device.argtypes = [ctypes.c_int] * 2 + [ctypes.c_int64] * 2
        self._set_seed = self._emulator.dot_interact_emulator_set_seed
        self._set_seed.argtypes = [ctypes.c_uint64]
        self._set_stream = self._emulator.dot_interact_emulator_set_stream
        self._set_stream.argtypes = [ctypes.c_void_p]
        self._take_fault = self._emulator.dot_interact_emulator_take_fault
        self._take_fault.restype = ctypes.c_char_p
        self._take_race = self._emulator.dot_interact_emulator_take_race
        self._take_race.restype = ctypes.c_char_p
        self._add_tensor = self._emulator.dot_interact_emulator_add_tensor
        self._add_tensor.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int]
        self._take_traffic = self._emulator.dot_interact_emulator_take_traffic
        self.set_device(Device())

    def set_device(self, device: Device) -> None:
        """The device that the launches from now on see."""
        self._set_device(*device)

    def set_seed(self, seed: int) -> None:
        """The order of threads and blocks; 0: ascending, copies as late as can be."""
        self._set_seed(seed)

    def set_stream(self, stream: int) -> None:
        """The stream that launches must be on from now on: those on another fault."""
        self._set_stream(stream)

    def take_fault(self) -> str:
        """Returns the description of the last fault; empty without a fault."""
        return self._take_fault().decode()

    def take_race(self) -> str:
        """The first read since the last call that a missing barrier made garbage; or empty."""
        return self._take_race().decode()

    def add_tensor(self, address: int, size_bytes: int, guard_bytes: int, writable: bool) -> None:
        """Kernels may touch these bytes, and not the guard bytes on either side."""
        self._add_tensor(address, size_bytes, guard_bytes, writable)

    def forget_tensors(self) -> None:
        """Withdraws the access that `add_tensor` granted."""
        self._emulator.dot_interact_emulator_forget_tensors()

    def take_traffic(self) -> Traffic:
        """Returns the traffic of the kernels since the last call."""
        numbers = (ctypes.c_int64 * 4)()
        self._take_traffic(numbers)
        return Traffic(*numbers)


class EmulatedLibrary(Library, Emulator):
    """The kernels on the emulator."""

    def __init__(self, path: Path):
        Library.__init__(self, path)
        Emulator.__init__(self, path)
