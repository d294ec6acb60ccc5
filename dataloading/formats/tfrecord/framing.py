"""Framing of TFRecord files.

length uint64 | its masked CRC32C uint32 | content | its masked CRC32C uint32
"""

import struct
from collections.abc import Iterator

import google_crc32c
import numpy as np

HEADER_BYTES = 12
FOOTER_BYTES = 4


class RecordError(Exception):
    """An invalid record; the text is the predicate of a sentence about the file."""


def framed(content: bytes) -> bytes:
    """Returns the record of this content."""
    return header(len(content)) + content + struct.pack("<I", masked_crc32c(content))


def header(size: int) -> bytes:
    """Returns the bytes before the content, of `size` bytes, of a record."""
    length = struct.pack("<Q", size)
    return length + struct.pack("<I", masked_crc32c(length))


def records(content: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields (start, stop) of the content of each record of a file's bytes, uint8 `[size]`.

    Raises:
        RecordError: a length's checksum differs, or the file ends within a record.
    """
    position, end = 0, len(content)
    while position < end:
        start = position + HEADER_BYTES
        if start > end:
            raise RecordError(f"is cut off: its last {end - position} bytes are not a whole record")
        head = content[position:start].tobytes()
        length, checksum = struct.unpack("<QI", head)
        if masked_crc32c(head[:8]) != checksum:
            raise RecordError(
                f"is damaged, or not a TFRecord file: no record begins at byte {position}"
            )
        if start + length + FOOTER_BYTES > end:
            raise RecordError(
                f"is cut off: a record of {length} bytes begins at byte {position}, and "
                f"{end - start} bytes follow"
            )
        yield start, start + length
        position = start + length + FOOTER_BYTES


def is_intact(content: np.ndarray, start: int, stop: int) -> bool:
    """Returns whether the checksum of a record's content is the stored one."""
    (checksum,) = struct.unpack("<I", content[stop : stop + FOOTER_BYTES].tobytes())
    return masked_crc32c(content[start:stop]) == checksum


def masked_crc32c(content) -> int:
    """Returns the checksum of TFRecord files: CRC32C, rotated by 15 bits, plus a constant."""
    checksum = google_crc32c.value(content)
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF
