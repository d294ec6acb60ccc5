"""The CUDA part of embedding_bag.h from Python, on raw addresses."""

import ctypes
from pathlib import Path

from tests.gpu.library import Emulator

DTYPES = {"float32": 0, "float16": 1, "bfloat16": 2}
OPTIMIZERS = {"sgd": 0, "adagrad": 1, "row_wise_adagrad": 2, "lazy_adam": 3, "adam": 4}
BAD_ARGUMENT = -1

_Pointer = ctypes.c_void_p


class Table(ctypes.Structure):
    """embedding_bag_table; pointers are integers, 0 is null."""

    _fields_ = [
        ("values", _Pointer),
        ("rows", ctypes.c_int64),
        ("dim", ctypes.c_int64),
        ("dtype", ctypes.c_int32),
    ]


class Column(ctypes.Structure):
    """embedding_bag_column."""

    _fields_ = [
        ("hotness", ctypes.c_int64),
        ("row_offset", ctypes.c_int64),
        ("num_rows", ctypes.c_int64),
        ("mean", ctypes.c_int32),
    ]


class Ids(ctypes.Structure):
    """embedding_bag_ids; `columns` is an array of Column on the host."""

    _fields_ = [
        ("ids", _Pointer),
        ("id_bytes", ctypes.c_int32),
        ("num_ids", ctypes.c_int64),
        ("num_samples", ctypes.c_int64),
        ("splits", _Pointer),
        ("weights", _Pointer),
        ("columns", ctypes.POINTER(Column)),
        ("num_columns", ctypes.c_int64),
    ]


class Optimizer(ctypes.Structure):
    """embedding_bag_optimizer; its scalars are not read here."""

    _fields_ = [
        ("kind", ctypes.c_int32),
        ("slots", _Pointer * 2),
        ("scalars", ctypes.c_float * 6),
        ("attributes", ctypes.c_int32 * 2),
    ]


class Use(ctypes.Structure):
    """embedding_bag_use."""

    _fields_ = [("ids", Ids), ("gradient", _Pointer)]


class BagLibrary:
    """The functions; errors are numbers."""

    def __init__(self, path: Path):
        self.path = path
        self._library = ctypes.CDLL(str(path))
        table, uses = ctypes.POINTER(Table), ctypes.POINTER(Use)
        integer, count = ctypes.c_int32, ctypes.c_int64

        def function(name: str, *arguments, result=ctypes.c_int):
            loaded = getattr(self._library, f"embedding_bag_cuda_{name}")
            loaded.argtypes, loaded.restype = arguments, result
            return loaded

        self.forward = function(
            "forward", *(table, ctypes.POINTER(Ids), integer, _Pointer, _Pointer)
        )
        self.workspace = function("workspace", table, uses, count, result=ctypes.c_int64)
        self.update = function(
            *("update", table, uses, count, integer, ctypes.POINTER(Optimizer)),
            *(_Pointer, _Pointer, _Pointer),
        )
        self.count_rows = function("count_rows", table, uses, count, *[_Pointer] * 3)
        self.gradient = function("gradient", table, uses, count, integer, integer, *[_Pointer] * 4)
        self.copy = function("copy", _Pointer, _Pointer, count, _Pointer)
        self.wait = function("wait", _Pointer)
        self._error = function("error", ctypes.c_int, result=ctypes.c_char_p)

    def error(self, number: int) -> str:
        """Returns the text of an error number."""
        return self._error(number).decode()


class EmulatedBagLibrary(BagLibrary, Emulator):
    """The functions on the emulator."""

    def __init__(self, path: Path):
        BagLibrary.__init__(self, path)
        Emulator.__init__(self, path)
