"""Samples of histories -> framed tf.train.Examples.

NumPy writes each feature of all records at once, into a table with room for the longest of them,
and one selection takes the bytes that are used.
"""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from dataloading.formats.tfrecord.framing import FOOTER_BYTES, HEADER_BYTES, header, masked_crc32c

# Tags of delimited fields (number << 3 | 2): Example.features, Features.feature, entry.key,
# entry.value, Feature.int64_list and Int64List.value, which is packed.
_FEATURES, _ENTRY, _KEY, _VALUE, _INT64_LIST, _NUMBERS = 0x0A, 0x0A, 0x0A, 0x12, 0x1A, 0x0A


class _Bytes(NamedTuple):
    """Bytes of all records: uint8 `[records, width]`, those in use (bool), and their number."""

    table: np.ndarray
    used: np.ndarray
    sizes: np.ndarray


def encode(features: Mapping[str, np.ndarray]) -> bytes:
    """Returns the content of a TFRecord file with one record for each row of the arrays.

    Args:
        features: name -> integers `[records, values]`, 0 or more; the same number of records each,
            at least one.
    """
    example: list[_Bytes] = []
    for name, values in features.items():
        numbers = _packed(values)
        example += [_by_size(numbers.sizes, functools.partial(_head, name)), numbers]
    sizes = np.sum([part.sizes for part in example], axis=0)
    start = _by_size(sizes, functools.partial(_start, _FEATURES))
    sizes = sizes + start.sizes
    footer = _by_size(sizes, lambda size: bytes(FOOTER_BYTES))
    tables, used, _ = zip(_by_size(sizes, header), start, *example, footer, strict=True)
    places = np.flatnonzero(np.concatenate(used, axis=1))
    content = np.concatenate(tables, axis=1).reshape(-1)[places]
    stops = np.cumsum(sizes + HEADER_BYTES + FOOTER_BYTES) - FOOTER_BYTES
    spans = zip((stops - sizes).tolist(), stops.tolist(), strict=True)
    checksums = np.array([masked_crc32c(content[start:stop]) for start, stop in spans], "<u4")
    content[stops[:, None] + np.arange(FOOTER_BYTES)] = checksums[:, None].view(np.uint8)
    return content.tobytes()


@functools.lru_cache(1 << 14)
def _head(name: str, num_bytes: int) -> bytes:
    """Returns the bytes of a feature before its packed numbers."""
    head = b""
    for tag in (_NUMBERS, _INT64_LIST, _VALUE):
        head = _start(tag, len(head) + num_bytes) + head
    head = _start(_KEY, len(name.encode())) + name.encode() + head
    return _start(_ENTRY, len(head) + num_bytes) + head


@functools.lru_cache(1 << 14)
def _start(tag: int, size: int) -> bytes:
    """Returns the bytes of a delimited field before its content."""
    content = [tag]
    while size >= 0x80:
        content.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*content, size])


def _by_size(sizes: np.ndarray, bytes_of: Callable[[int], bytes]) -> _Bytes:
    """Returns `bytes_of` of the size of each record, which it calls once for each size."""
    different, numbers = np.unique(sizes, return_inverse=True)
    texts = [bytes_of(size) for size in different.tolist()]
    lengths = np.array([len(text) for text in texts])
    width = lengths.max()
    padded = b"".join(text.ljust(width, b"\0") for text in texts)
    table = np.frombuffer(padded, np.uint8).reshape(-1, width)
    used = np.arange(width) < lengths[:, None]
    return _Bytes(table[numbers], used[numbers], lengths[numbers])


def _packed(values: np.ndarray) -> _Bytes:
    """Returns integers `[records, n]` in seven bits per byte, lowest first."""
    longest = max(1, -(-int(values.max(initial=0)).bit_length() // 7))
    encoded = np.empty((*values.shape, longest), np.uint8)
    used = np.empty(encoded.shape, bool)
    rest = values
    for number in range(longest):
        used[..., number] = rest > 0 if number else True
        encoded[..., number] = (rest & 0x7F) | ((rest >= 0x80) * np.uint8(0x80))
        rest = rest >> 7
    used = used.reshape(len(values), -1)
    return _Bytes(encoded.reshape(used.shape), used, np.count_nonzero(used, axis=1))
