"""Rows of histories -> framed tf.train.Examples, many at a time by NumPy.

All records are laid out in one matrix of bytes in which each number has the room of the longest;
then the bytes that are not used are left out of all records at once.
"""

from collections.abc import Mapping

import numpy as np

from dataloading.formats.tfrecord.framing import FOOTER_BYTES, HEADER_BYTES, masked_crc32c

# Tags of delimited fields (number << 3 | 2): Example.features, Features.feature, entry.key,
# entry.value, Feature.int64_list and Int64List.value, which is packed.
_FEATURES, _ENTRY, _KEY, _VALUE, _INT64_LIST, _NUMBERS = 0x0A, 0x0A, 0x0A, 0x12, 0x1A, 0x0A


def encode(features: Mapping[str, np.ndarray]) -> np.ndarray:
    """The bytes of a TFRecord file, uint8, with one record for each row of the arrays.

    Args:
        features: name -> whole numbers `[records, values]`, 0 or more; all of as many records, at
            least one.
    """
    pieces = []  # (bytes, mask of those that are used), `[records or 1, room]`, in their order
    total = 0  # bytes of all entries of a record, `[records]`
    for name, values in features.items():
        numbers = _varints(values)
        size = numbers[1].sum(axis=1, dtype=np.int64)
        lists = [numbers]
        for tag in (_NUMBERS, _INT64_LIST, _VALUE):
            lists[:0] = [_constant(bytes([tag])), _varints(size[:, None])]
            size = size + 1 + _sizes(size)
        key = name.encode()
        key = bytes([_KEY]) + _varint(len(key)) + key
        size = size + len(key)
        pieces += [_constant(bytes([_ENTRY])), _varints(size[:, None]), _constant(key), *lists]
        total = total + 1 + _sizes(size) + size
    pieces[:0] = [_constant(bytes([_FEATURES])), _varints(total[:, None])]
    content = total + 1 + _sizes(total)
    pieces[:0] = [_headers(content)]
    pieces.append(_constant(bytes(FOOTER_BYTES)))
    records = _join(pieces, len(content))
    _write_checksums(records, content)
    return records


def _join(pieces, num_records: int) -> np.ndarray:
    """The used bytes of all pieces, record by record."""
    room = sum(part.shape[1] for part, _ in pieces)
    matrix = np.empty((num_records, room), np.uint8)
    used = np.empty((num_records, room), bool)
    begin = 0
    for part, mask in pieces:
        end = begin + part.shape[1]
        matrix[:, begin:end] = part
        used[:, begin:end] = mask
        begin = end
    return matrix[used]


def _varints(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers `[records, n]` in seven bits a byte, lowest first; uint8 and mask
    `[records, n * bytes of the largest]`."""
    longest = len(_varint(int(values.max(initial=0))))
    encoded = np.empty((*values.shape, longest), np.uint8)
    used = np.empty(encoded.shape, bool)
    rest = values
    for number in range(longest):
        used[..., number] = rest > 0 if number else True
        more = rest >= 0x80
        encoded[..., number] = (rest & 0x7F) | (more * np.uint8(0x80))
        rest = rest >> 7
    return encoded.reshape(len(values), -1), used.reshape(len(values), -1)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _sizes(numbers: np.ndarray) -> np.ndarray:
    """Bytes of each number's varint."""
    longest = len(_varint(int(numbers.max(initial=0))))
    return 1 + sum((numbers >= 1 << 7 * k).astype(np.int64) for k in range(1, longest))


def _constant(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(content, np.uint8)[None], np.ones((1, len(content)), bool)


def _headers(content: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Length and its checksum of each record."""
    lengths, number = np.unique(content, return_inverse=True)
    headers = np.empty((len(lengths), HEADER_BYTES), np.uint8)
    headers[:, :8] = lengths.astype("<u8")[:, None].view(np.uint8)
    for header in headers:
        checksum = masked_crc32c(header[:8].tobytes())
        header[8:] = np.frombuffer(checksum.to_bytes(4, "little"), np.uint8)
    return headers[number], np.ones((1, HEADER_BYTES), bool)


def _write_checksums(records: np.ndarray, content: np.ndarray) -> None:
    """Fills the footers in."""
    stops = np.cumsum(HEADER_BYTES + content + FOOTER_BYTES) - FOOTER_BYTES
    stored = records.tobytes()
    checksums = [
        masked_crc32c(stored[stop - length : stop])
        for stop, length in zip(stops.tolist(), content.tolist(), strict=True)
    ]
    footers = np.array(checksums, "<u4").view(np.uint8).reshape(-1, FOOTER_BYTES)
    records[stops[:, None] + np.arange(FOOTER_BYTES)] = footers
