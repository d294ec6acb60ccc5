"""Thrift's compact protocol, in which Parquet states its metadata: writing alone.

A struct is a dictionary of field numbers, upwards, and values: an integer (i32), a `Wide` one
(i64), text, bytes, a list of values of one kind, or a struct. A value of None is left out.
"""

from collections.abc import Sequence

_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
_SHORT = 15  # lists below have their length in the first byte


class Wide(int):
    """An integer of 64 bits."""


Value = int | str | bytes | Sequence | dict | None


def varint(number: int) -> bytes:
    """Returns seven bits a byte, lowest first."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def struct(fields: dict[int, Value]) -> bytes:
    """Returns a struct; field numbers differ from the ones before by 1 to 15."""
    out, last = bytearray(), 0
    for number, value in fields.items():
        if value is None:
            continue
        out.append((number - last) << 4 | _kind(value))
        out += _encoded(value)
        last = number
    return bytes(out) + b"\0"


def _kind(value: Value) -> int:
    if isinstance(value, int):
        return _I64 if isinstance(value, Wide) else _I32
    if isinstance(value, str | bytes):
        return _BINARY
    return _STRUCT if isinstance(value, dict) else _LIST


def _encoded(value: Value) -> bytes:
    if isinstance(value, int):
        return varint(value << 1 if value >= 0 else (-value << 1) - 1)
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(len(value)) + value
    if isinstance(value, dict):
        return struct(value)
    kind = _kind(value[0]) if value else _STRUCT  # of an empty list, any kind will do
    head = bytes([min(len(value), _SHORT) << 4 | kind])
    if len(value) >= _SHORT:
        head += varint(len(value))
    return head + b"".join(map(_encoded, value))
