"""Locations of the values of serialized tensors: tf.train.Example and TensorProto.

    record of split TFRecords: tf.train.Example with one bytes feature, `tf.io.serialize_tensor` of
    a prebatch; multi-hot prebatch: a string tensor of two serialized tensors, ids and row splits

Nothing is copied: the functions find offsets, and the loader takes the bytes from there.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dataloading.formats.tfrecord.framing import RecordError

# Numbers of tensorflow.DataType.
_STRING = 7
DTYPES = {
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    3: np.dtype("<i4"),
    4: np.dtype("u1"),
    5: np.dtype("<i2"),
    6: np.dtype("i1"),
    9: np.dtype("<i8"),
    10: np.dtype("u1"),  # a stored bool is a byte; readers check that it is 0 or 1
    19: np.dtype("<f2"),
}
# Field numbers of tf.train.Example > Features > map entry > Feature > BytesList, and TensorProto.
_FEATURES, _ENTRY, _KEY, _VALUE, _BYTES_LIST, _BYTES = 1, 1, 1, 2, 1, 1
_DTYPE, _SHAPE, _CONTENT, _STRINGS = 1, 2, 4, 8
_DIMENSION, _SIZE = 2, 1
# Kinds of fields ("wire types").
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5


class Tensor(NamedTuple):
    """A tensor of numbers inside a buffer: its elements are at `offset`, row after row."""

    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def tensors_of(content: memoryview, start: int, stop: int, feature: str) -> list[Tensor]:
    """The tensor of a record, or the two of a multi-hot one.

    Args:
        content: bytes of the file.
        start, stop: of the record's content.
        feature: name of the bytes feature.

    Raises:
        RecordError: the content is not such an Example.
    """
    for span in _spans(content, start, stop, _FEATURES):
        for entry in _spans(content, *span, _ENTRY):
            fields = dict(_fields(content, *entry))
            if bytes(content[slice(*_span(fields.get(_KEY)))]) != feature.encode():
                continue
            value = _the_span(content, *_span(fields.get(_VALUE)), _BYTES_LIST)
            return _tensors(content, *_the_span(content, *value, _BYTES))
    raise RecordError(f"holds no bytes feature '{feature}'")


def _tensors(content: memoryview, start: int, stop: int, inner: bool = False) -> list[Tensor]:
    """Returns the tensor of numbers of a TensorProto, or those of the TensorProtos in its
    strings, unless it is an inner one."""
    number, sizes, place, strings = None, [], None, []
    for field, value in _fields(content, start, stop):
        if field == _DTYPE:
            number = value
        elif field == _SHAPE:
            for dimension in _spans(content, *_span(value), _DIMENSION):
                size = dict(_fields(content, *dimension)).get(_SIZE, 0)
                if not isinstance(size, int):
                    raise RecordError("holds a tensor whose shape is invalid")
                sizes.append(size)
        elif field == _CONTENT:
            place = _span(value)
        elif field == _STRINGS:
            strings.append(_span(value))
    if number == _STRING and not inner:
        return [tensor for span in strings for tensor in _tensors(content, *span, inner=True)]
    if number not in DTYPES:
        raise RecordError(f"holds a tensor of TensorFlow's dtype number {number}")
    tensor = Tensor(DTYPES[number], tuple(sizes), place[0] if place else start)
    size_bytes = place[1] - place[0] if place else 0
    if tensor.size * tensor.dtype.itemsize != size_bytes:
        raise RecordError(
            f"holds a tensor of shape {list(tensor.shape)} and dtype {tensor.dtype} in "
            f"{size_bytes} bytes"
        )
    return [tensor]


def _spans(content: memoryview, start: int, stop: int, wanted: int) -> list[tuple[int, int]]:
    """Returns (start, stop) of each delimited field with this number."""
    return [_span(value) for field, value in _fields(content, start, stop) if field == wanted]


def _the_span(content: memoryview, start: int, stop: int, wanted: int) -> tuple[int, int]:
    """Returns (start, stop) of the only delimited field with this number."""
    spans = _spans(content, start, stop, wanted)
    return _span(spans[0] if len(spans) == 1 else None)


def _span(value) -> tuple[int, int]:
    if not isinstance(value, tuple):
        raise RecordError("holds no Example of one serialized tensor")
    return value


def _fields(content: memoryview, start: int, stop: int) -> Iterator[tuple[int, object]]:
    """(number, value) of each field of a protocol buffer message.

    The value of a delimited field is its (start, stop), that of a fixed one None.
    """
    while start < stop:
        tag, start = _varint(content, start, stop)
        kind, value = tag & 7, None
        if kind == _VARINT:
            value, start = _varint(content, start, stop)
        elif kind == _DELIMITED:
            length, begin = _varint(content, start, stop)
            start = begin + length
            value = (begin, start)
        elif kind in (_FIXED32, _FIXED64):
            start += 4 if kind == _FIXED32 else 8
        else:
            raise RecordError("holds no protocol buffer message")
        if start > stop:
            raise RecordError("holds a message that ends within a field")
        yield tag >> 3, value


def _varint(content: memoryview, start: int, stop: int) -> tuple[int, int]:
    """(number, the position after it) of seven bits a byte, lowest first."""
    number = shift = 0
    while start < stop and shift < 64:
        byte = content[start]
        number |= (byte & 0x7F) << shift
        start, shift = start + 1, shift + 7
        if byte < 0x80:
            return number, start
    raise RecordError("holds a number without an end")
