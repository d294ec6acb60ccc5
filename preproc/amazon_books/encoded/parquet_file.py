"""Parquet files of required int64 columns and lists of one length, from pages that are encoded.

The layout is Apache Parquet's, https://github.com/apache/parquet-format: data pages of version 1;
integers are plain, lists are indices of a dictionary of their row group.
"""

import struct as binary
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from preproc.amazon_books.encoded import thrift
from preproc.amazon_books.encoded.thrift import Wide, varint

_MAGIC = b"PAR1"
_VERSION = 2
_CREATED_BY = "preproc.amazon_books version 1.0.0"
# Numbers of parquet.thrift.
_INT64 = 2
_REQUIRED, _REPEATED = 0, 2
_CONVERTED_LIST, _LOGICAL_LIST = 3, 3
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_PLAIN, _RLE, _RLE_DICTIONARY = 0, 3, 8
_UNCOMPRESSED, _SNAPPY = 0, 1
_CODEC = pa.Codec("snappy")
_LIST_PATH = ("list", "element")  # below a column of lists


@dataclass
class ColumnPages:
    """The pages of a column in a row group, ready to be written.

    Attributes:
        compressed: whether pages are compressed by Snappy.
        list_length: values of each list; None for a column of integers.
        plain_bytes: size of all pages without compression.
        num_bytes: size of all pages.
        pages: head and content of each page.
    """

    compressed: bool
    list_length: int | None = None
    num_values: int = 0
    plain_bytes: int = 0
    num_bytes: int = 0
    pages: list[tuple[bytes, bytes]] = field(default_factory=list)

    def add_integers(self, values: np.ndarray) -> None:
        """Adds a page of integers, int64 [n]."""
        self._add(len(values), _PLAIN, values)

    def add_lists(self, num_lists: int, content: np.ndarray) -> None:
        """Adds a page of lists: `list_prefix` and the runs of all values, uint8 [bytes]; copied."""
        self._add(num_lists * self.list_length, _RLE_DICTIONARY, content)

    def set_dictionary(self, values: np.ndarray) -> None:
        """Adds the page of the dictionary: values, int64 [n], in the order of their indices."""
        header = {1: len(values), 2: _PLAIN}
        self.pages.insert(0, self._page(values, {1: _DICTIONARY_PAGE}, {7: header}))

    def _add(self, num_values: int, encoding: int, content: np.ndarray) -> None:
        header = {1: num_values, 2: encoding, 3: _RLE, 4: _RLE}
        self.pages.append(self._page(content, {1: _DATA_PAGE}, {5: header}))
        self.num_values += num_values

    def _page(self, content: np.ndarray, kind: dict, header: dict) -> tuple[bytes, bytes]:
        stored = (
            content.tobytes() if not self.compressed else _CODEC.compress(content, asbytes=True)
        )
        head = thrift.struct(kind | {2: content.nbytes, 3: len(stored)} | header)
        self.plain_bytes += len(head) + content.nbytes
        self.num_bytes += len(head) + len(stored)
        return head, stored


def list_prefix(num_lists: int, length: int, index_bits: int) -> bytes:
    """Returns what a page of lists has before the runs of its dictionary indices."""
    return _levels(num_lists, length) + bytes([index_bits])


def _levels(num_lists: int, length: int) -> bytes:
    """Returns the repetition levels of all values (0 where a list begins, else 1), and the
    definition levels (1: there is a value), each after its number of bytes."""
    # A run is its length, shifted by 1, and its value.
    repetition = (varint(1 << 1) + b"\0" + varint((length - 1) << 1) + b"\1") * num_lists
    if length == 1:
        repetition = varint(num_lists << 1) + b"\0"
    definition = varint((num_lists * length) << 1) + b"\1"
    return b"".join(binary.pack("<I", len(part)) + part for part in (repetition, definition))


class ParquetFile:
    """Writes a file row group by row group.

    Args:
        file: open for writing, empty.
        schema: int64 or lists of int64, nothing nullable.
    """

    def __init__(self, file: BinaryIO, schema: pa.Schema):
        self._file, self._schema = file, schema
        self._groups: list[dict] = []
        self._num_rows = 0
        self._end = file.write(_MAGIC)

    def write_row_group(self, num_rows: int, columns: Sequence[ColumnPages]) -> None:
        """Writes the pages of all columns, in the order of the schema."""
        start = self._end
        chunks = [
            self._write_column(name, column)
            for name, column in zip(self._schema.names, columns, strict=True)
        ]
        self._groups.append(
            {
                1: chunks,
                2: Wide(sum(column.plain_bytes for column in columns)),
                3: Wide(num_rows),
                5: Wide(start),
                6: Wide(self._end - start),
            }
        )
        self._num_rows += num_rows

    def _write_column(self, name: str, column: ColumnPages) -> dict:
        start = self._end
        for head, content in column.pages:
            self._end += self._file.write(head) + self._file.write(content)
        is_list = column.list_length is not None
        metadata = {
            1: _INT64,
            2: [_PLAIN, _RLE, _RLE_DICTIONARY] if is_list else [_PLAIN, _RLE],
            3: [name, *_LIST_PATH] if is_list else [name],
            4: _SNAPPY if column.compressed else _UNCOMPRESSED,
            5: Wide(column.num_values),
            6: Wide(column.plain_bytes),
            7: Wide(self._end - start),
            9: Wide(start + (sum(map(len, column.pages[0])) if is_list else 0)),
            11: Wide(start) if is_list else None,
        }
        return {2: Wide(start), 3: metadata}

    def close(self) -> None:
        """Writes the metadata; the file itself stays open."""
        elements = [{4: "schema", 5: len(self._schema)}]
        for column in self._schema:
            elements += _schema_elements(column)
        metadata = {
            1: _VERSION,
            2: elements,
            3: Wide(self._num_rows),
            4: self._groups,
            6: _CREATED_BY,
        }
        footer = thrift.struct(metadata)
        self._file.write(footer + binary.pack("<I", len(footer)) + _MAGIC)


def _schema_elements(column: pa.Field) -> Iterable[dict]:
    if column.type == pa.int64():
        return [{1: _INT64, 3: _REQUIRED, 4: column.name}]
    outer, inner = _LIST_PATH
    return [
        {3: _REQUIRED, 4: column.name, 5: 1, 6: _CONVERTED_LIST, 10: {_LOGICAL_LIST: {}}},
        {3: _REPEATED, 4: outer, 5: 1},
        {1: _INT64, 3: _REQUIRED, 4: inner},
    ]
