"""The CPU kernels called through ctypes, without TensorFlow."""

import ctypes
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
ISAS = ("avx512", "avx2", "generic")
BAD_ARGUMENT, OUT_OF_MEMORY = -1, -2


class Shape(ctypes.Structure):
    """dot_interact_shape"""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in ("batch", "features", "dim", "head", "first_stride", "rest_stride")
    ] + [("dtype", ctypes.c_int32)]


def load(path: Path) -> ctypes.CDLL:
    """The library with the signatures of dot_interact.h."""
    library = ctypes.CDLL(str(path))
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    library.dot_interact_width.argtypes = [size, size]
    library.dot_interact_width.restype = size
    shape = ctypes.POINTER(Shape)
    library.dot_interact_cpu_forward.argtypes = [shape, *[pointer] * 4, size, size]
    library.dot_interact_cpu_backward.argtypes = [shape, *[pointer] * 6, size, size]
    library.dot_interact_cpu_isa.argtypes = []
    library.dot_interact_cpu_isa.restype = ctypes.c_char_p
    library.dot_interact_cpu_use_isa.argtypes = [ctypes.c_char_p]
    return library


def pointer_to(array: np.ndarray | None) -> int | None:
    """Its address; None (null) stays None."""
    return None if array is None else array.ctypes.data


def round_up(size: int) -> int:
    """To a multiple of 8."""
    return -(-size // 8) * 8


def make_shape(first: np.ndarray, rest: np.ndarray, features: int, head: int) -> Shape:
    """The shape of first [batch, dim] and rest [batch, (features - 1) dim] with any row strides."""
    dtype = [np.dtype(numbers) for numbers in DTYPES.values()].index(first.dtype)
    item = first.dtype.itemsize
    strides = [max(t.strides[0] // item, t.shape[1]) for t in (first, rest)]
    return Shape(len(first), features, first.shape[1], head, *strides, dtype)


def forward(library, first, rest, features, head=None, output=None, begin=0, end=None):
    """Calls the kernel; `output` may be given, begin and end choose samples. Returns `output`."""
    head_width = 0 if head is None else head.shape[1]
    shape = make_shape(first, rest, features, head_width)
    if output is None:
        width = library.dot_interact_width(head_width, features)
        output = np.full([len(first), width], 77, first.dtype)
    pointers = [pointer_to(tensor) for tensor in (first, rest, head, output)]
    end = len(first) if end is None else end
    error = library.dot_interact_cpu_forward(ctypes.byref(shape), *pointers, begin, end)
    assert error == 0
    return output


@dataclass(frozen=True)
class Gradients:
    """Gradients of first, rest and head, in their shapes; head: None if it was added to first."""

    first: np.ndarray
    rest: np.ndarray
    head: np.ndarray | None


def empty_like_rows(tensor: np.ndarray) -> np.ndarray:
    """A poisoned tensor with the row strides of `tensor`."""
    stride = max(tensor.strides[0] // tensor.dtype.itemsize, tensor.shape[1])
    return np.full([len(tensor), stride], 77, tensor.dtype)[:, : tensor.shape[1]]


def backward(
    library, first, rest, features, upstream, head_width=0, split_head=False, begin=0, end=None,
    gradients=None,
):  # fmt: skip
    """Calls the kernel, with a head_gradient if `split_head`. Returns the `Gradients`."""
    shape = make_shape(first, rest, features, head_width)
    if gradients is None:
        head = np.full([len(first), head_width], 77, first.dtype) if split_head else None
        gradients = Gradients(empty_like_rows(first), empty_like_rows(rest), head)
    tensors = first, rest, upstream, gradients.first, gradients.rest, gradients.head
    pointers = [pointer_to(tensor) for tensor in tensors]
    end = len(first) if end is None else end
    error = library.dot_interact_cpu_backward(ctypes.byref(shape), *pointers, begin, end)
    assert error == 0
    return gradients


# ---- the specification ---------------------------------------------------------------------------


def join(first: np.ndarray, rest: np.ndarray, features: int, numbers=np.float64) -> np.ndarray:
    """[batch, features, dim] in `numbers`."""
    rest = rest.astype(numbers).reshape(len(first), features - 1, first.shape[1])
    return np.concatenate([first.astype(numbers)[:, np.newaxis], rest], axis=1)


def plain_forward(first, rest, features, head=None, numbers=np.float64):
    """The interaction summed in `numbers`: [head, lower triangle of X X^T, zeros], not rounded."""
    joined = join(first, rest, features, numbers)
    rows, columns = np.tril_indices(features, k=-1)
    parts = [] if head is None else [head.astype(numbers)]
    parts.append(np.matmul(joined, joined.transpose(0, 2, 1))[:, rows, columns])
    width = sum(part.shape[1] for part in parts)
    parts.append(np.zeros([len(first), round_up(width) - width], numbers))
    return np.concatenate(parts, axis=1)


def plain_backward(
    first, rest, features, upstream, head_width=0, split_head=False, numbers=np.float64
) -> Gradients:
    """(G + G^T) X summed in `numbers`, where G holds the pairs' gradients; not rounded."""
    upstream = upstream.astype(numbers)
    rows, columns = np.tril_indices(features, k=-1)
    symmetric = np.zeros([len(first), features, features], numbers)
    pairs = upstream[:, head_width : head_width + len(rows)]
    symmetric[:, rows, columns] = symmetric[:, columns, rows] = pairs
    joined = np.matmul(symmetric, join(first, rest, features, numbers))
    head = upstream[:, :head_width] if split_head else None
    of_first = joined[:, 0]
    if head_width and not split_head:
        of_first = of_first + upstream[:, :head_width]
    return Gradients(of_first, joined[:, 1:].reshape(len(first), rest.shape[1]), head)
