"""The compiled functions of the package `dataloading-kernels`, where it is installed.

Each has a counterpart in Python, which callers use where there is no library.
"""

import ctypes
import functools

import numpy as np

_SIZE, _POINTER = ctypes.c_int64, ctypes.c_void_p
_SAMPLES = [_POINTER, _POINTER, _POINTER, _SIZE]
# Name -> result, arguments.
_FUNCTIONS = {
    "gather": (None, [*_SAMPLES, _SIZE, _POINTER]),
}


@functools.cache
def library() -> ctypes.CDLL | None:
    """Returns the compiled functions; None where they, or some of them, are not installed."""
    try:
        from dataloading_kernels import LIBRARY
    except ImportError:
        return None
    loaded = ctypes.CDLL(str(LIBRARY))
    for name, (result, arguments) in _FUNCTIONS.items():
        if not hasattr(loaded, name):  # of an older version
            return None
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def address(array: np.ndarray, dtype: type) -> int:
    """Returns the address of a contiguous array, which must have this dtype."""
    assert array.dtype == dtype and array.flags.c_contiguous, (array.dtype, dtype)
    return array.ctypes.data
