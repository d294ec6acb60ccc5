"""Tensors in the files of `torch.save`, read and written without PyTorch.

A file is a ZIP archive with a pickle, `data.pkl`, and the bytes of each storage, `data/0`, ...;
before PyTorch 1.6 it is a sequence of pickles, followed by the storages. Unpickling can run any
code: here only dicts, lists, tuples, numbers, texts and tensors are built, everything else is an
error.
"""

import io
import math
import os
import pickle
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.files.atomic import atomic_file

# The first pickle of the format before PyTorch 1.6 is this number, the second one is its version.
_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_DTYPES = {
    "DoubleStorage": "f8",
    "FloatStorage": "f4",
    "HalfStorage": "f2",
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}
_STORAGE_OF = {np.dtype(kind): name for name, kind in _DTYPES.items()}
_LOCAL_HEADER_BYTES = 30  # of a member of a ZIP archive; the lengths of name and extra are its end
_BIG_MEMBER_BYTES = 1 << 31


class _Storage(NamedTuple):
    """Reference to a storage: its key, dtype and number of values."""

    key: str
    dtype: np.dtype[Any]
    num_values: int


class _TensorView(NamedTuple):
    """A tensor before its storage is read; all numbers are in values, not bytes."""

    storage: _Storage
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


class _StateDict(dict[Any, Any]):
    """An `OrderedDict` of a file; attributes such as `_metadata` are left out."""

    def __setstate__(self, state: Any) -> None:
        """Ignores the attributes."""


def _rebuild_tensor(storage: Any, offset: Any, sizes: Any, strides: Any, *_: Any) -> _TensorView:
    numbers = (offset, *sizes, *strides)
    valid = isinstance(storage, _Storage) and len(sizes) == len(strides)
    if not valid or any(type(n) is not int or n < 0 for n in numbers):
        raise pickle.UnpicklingError("a tensor has an invalid size")
    steps = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if math.prod(sizes) and offset + steps >= storage.num_values:
        raise pickle.UnpicklingError("a tensor is larger than its storage")
    return _TensorView(storage, offset, tuple(sizes), tuple(strides))


def _rebuild_parameter(data: Any, *_: Any) -> Any:
    return data


# All that a pickle may name.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _StateDict,
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    **{("torch", name): np.dtype(kind) for name, kind in _DTYPES.items()},
}


class _RestrictedUnpickler(pickle.Unpickler):
    """Builds tensors as `_TensorView`, and nothing that is not in `_ALLOWED`."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it contains {module}.{name}; expected only tensors of "
                f"{', '.join(sorted(n.removesuffix('Storage') for n in _DTYPES))} values in dicts "
                "and lists. Save the state_dict of a model, or a tensor, with torch.save"
            ) from None

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _, num_values, *view = pid
        is_number = type(num_values) is int and num_values >= 0
        if kind != "storage" or not isinstance(dtype, np.dtype) or any(view) or not is_number:
            raise pickle.UnpicklingError(f"unknown storage {pid!r:.100}")
        return _Storage(str(key), dtype, num_values)


def read_tensors(path: str | os.PathLike[str]) -> Any:
    """Reads a file that `torch.save` wrote.

    Returns:
        What was saved, with tensors as arrays, which are mapped into memory and read-only.

    Raises:
        ValueError: the file was not written by `torch.save`, is damaged, or contains anything but
            tensors, dicts, lists, tuples, numbers and texts.
    """
    path = Path(path)
    try:
        with open(path, "rb") as file:
            if zipfile.is_zipfile(file):
                content, starts = _read_archive(file)
            else:
                content, starts = _read_sequence(file)
        mapped = np.memmap(path, np.uint8, "r").view(np.ndarray)
        return _with_arrays(content, mapped, starts)
    except OSError:
        raise
    except Exception as error:  # a damaged pickle raises any of them
        raise ValueError(
            f"{path}: expected a file of torch.save: {str(error) or type(error).__name__}"
        ) from None


def read_matrix(path: str | os.PathLike[str], num_columns: int) -> NDArray[Any]:
    """Reads a file of one tensor [rows, num_columns]; with one column it may also be [rows].

    Raises:
        ValueError: as `read_tensors`, or the file holds something else.
        OSError: it cannot be read.
    """
    tensor = read_tensors(path)
    if not isinstance(tensor, np.ndarray):
        shape = f"a {type(tensor).__name__}"
    elif tensor.ndim == 2 and tensor.shape[1] == num_columns:
        return tensor
    elif tensor.ndim == 1 and num_columns == 1:
        return tensor[:, None]
    else:
        shape = str(list(tensor.shape))
    raise ValueError(f"{path}: expected a tensor [rows, {num_columns}], got {shape}")


def is_torch_file(path: str | os.PathLike[str]) -> bool:
    """Returns whether a file begins as one of `torch.save`; its content may still be damaged."""
    if not Path(path).is_file():
        return False
    with open(path, "rb") as file:
        begin = file.read(64)
    return begin.startswith((b"PK\x03\x04", pickle.dumps(_MAGIC, 2)))


def _read_archive(file: BinaryIO) -> tuple[Any, dict[str, tuple[int, int]]]:
    """Returns the content of a ZIP file, and (first byte, bytes) of each storage."""
    with zipfile.ZipFile(file) as archive:
        members = {info.filename: info for info in archive.infolist()}
        pickles = [name for name in members if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ValueError("it is a ZIP archive without data.pkl")
        root = pickles[0].removesuffix("data.pkl")
        if (order := f"{root}byteorder") in members and archive.read(order) != b"little":
            raise ValueError("its byte order is not little")
        content = _RestrictedUnpickler(io.BytesIO(archive.read(pickles[0]))).load()
        starts = {}
        for name, info in members.items():
            if not name.startswith(f"{root}data/"):
                continue
            if info.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{name} is compressed")
            file.seek(info.header_offset + _LOCAL_HEADER_BYTES - 4)
            name_bytes, extra_bytes = struct.unpack("<HH", file.read(4))
            start = info.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes
            starts[name.removeprefix(f"{root}data/")] = start, info.file_size
    return content, starts


def _read_sequence(file: BinaryIO) -> tuple[Any, dict[str, tuple[int, int]]]:
    """Returns the content of a file from before PyTorch 1.6, as `_read_archive`."""
    file.seek(0)
    if file.read(len(magic := pickle.dumps(_MAGIC, 2))) != magic:
        raise ValueError("it has another format (torch.save writes a ZIP archive)")
    version, system, content, keys = (_RestrictedUnpickler(file).load() for _ in range(4))
    if version != _VERSION or not system["little_endian"]:
        raise ValueError(f"its version is {version!r:.100} or its byte order is not little")
    storages = {view.storage.key: view.storage for view in _views(content)}
    starts = {}
    for key in keys:
        (num_values,) = struct.unpack("<q", file.read(8))
        size_bytes = num_values * storages[key].dtype.itemsize
        starts[key] = file.tell(), size_bytes
        file.seek(size_bytes, os.SEEK_CUR)
    return content, starts


def _views(content: Any) -> Iterator[_TensorView]:
    if isinstance(content, _TensorView):
        yield content
    elif isinstance(content, dict | list | tuple):
        for item in content.values() if isinstance(content, dict) else content:
            yield from _views(item)


def _with_arrays(content: Any, mapped: NDArray[Any], starts: Mapping[str, tuple[int, int]]) -> Any:
    if isinstance(content, _TensorView):
        storage = content.storage
        start, size_bytes = starts[storage.key]
        if size_bytes != storage.num_values * storage.dtype.itemsize:
            raise ValueError(f"the storage {storage.key} has {size_bytes} bytes")
        if start + size_bytes > len(mapped):
            raise ValueError("the file is cut off")
        values = mapped[start : start + size_bytes].view(storage.dtype)[content.offset :]
        strides = [stride * storage.dtype.itemsize for stride in content.strides]
        return np.lib.stride_tricks.as_strided(values, content.sizes, strides, writeable=False)
    if isinstance(content, dict):
        return {key: _with_arrays(item, mapped, starts) for key, item in content.items()}
    if isinstance(content, list | tuple):
        return type(content)(_with_arrays(item, mapped, starts) for item in content)
    return content


class TensorBlocks(NamedTuple):
    """A tensor to write: its values are those of `blocks` one after the other."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: Iterable[NDArray[Any]]


def write_state_dict(path: str | os.PathLike[str], tensors: Mapping[str, TensorBlocks]) -> None:
    """Writes a dict of tensors as `torch.save` does; `torch.load` reads it, with weights_only too.

    The file takes its name when it is complete.
    """
    members: dict[str, Iterable[bytes]] = {
        "data.pkl": [_pickled(tensors)],
        "byteorder": [b"little"],
        "version": [b"3\n"],
    }
    for number, tensor in enumerate(tensors.values()):
        members[f"data/{number}"] = _bytes_of(tensor)
    with atomic_file(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        sizes = [math.prod(t.shape) * t.dtype.itemsize for t in tensors.values()]
        is_big = max(sizes, default=0) >= _BIG_MEMBER_BYTES
        for name, blocks in members.items():
            with archive.open(f"archive/{name}", "w", force_zip64=is_big) as member:
                for block in blocks:
                    member.write(block)


def _bytes_of(tensor: TensorBlocks) -> Iterator[bytes]:
    for block in tensor.blocks:
        yield np.asarray(block, tensor.dtype).tobytes()


def _pickled(tensors: Mapping[str, TensorBlocks]) -> bytes:
    """Returns the pickle of a dict of tensors, whose storages are 0, 1, ... in order."""
    out = [pickle.PROTO, b"\x02", pickle.EMPTY_DICT, pickle.MARK]
    for number, (name, tensor) in enumerate(tensors.items()):
        num_values = math.prod(tensor.shape)
        strides = [math.prod(tensor.shape[i + 1 :]) for i in range(len(tensor.shape))]
        out += [_text(name), _global("torch._utils", "_rebuild_tensor_v2"), pickle.MARK]
        out += [pickle.MARK, _text("storage"), _global("torch", _STORAGE_OF[tensor.dtype])]
        out += [_text(str(number)), _text("cpu"), _number(num_values), pickle.TUPLE]
        out += [pickle.BINPERSID, _number(0)]
        for numbers in (tensor.shape, strides):
            out += [pickle.MARK, *map(_number, numbers), pickle.TUPLE]
        out += [pickle.NEWFALSE, _global("collections", "OrderedDict"), pickle.EMPTY_TUPLE]
        out += [pickle.REDUCE, pickle.TUPLE, pickle.REDUCE]
    return b"".join([*out, pickle.SETITEMS, pickle.STOP])


def _global(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def _text(text: str) -> bytes:
    return pickle.BINUNICODE + struct.pack("<I", len(text.encode())) + text.encode()


def _number(number: int) -> bytes:
    if number < 1 << 31:
        return pickle.BININT + struct.pack("<i", number)
    digits = pickle.encode_long(number)
    return pickle.LONG1 + bytes([len(digits)]) + digits
