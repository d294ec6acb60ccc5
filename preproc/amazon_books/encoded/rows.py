"""Rows of a split as row groups, with histories encoded by compiled functions.

What `SampleSplit.rows` returns as arrays is here read from the log and encoded at once. Positive
histories, which the rows of a user share, are compressed; negative ones, which are random, are not.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa

from dataloading import compiled
from preproc.amazon_books.encoded.parquet_file import ColumnPages, ParquetFile, list_prefix
from preproc.amazon_books.negatives import POPULARITY
from preproc.amazon_books.samples import SamplePairs, SampleSplit

_MAX_INDEX_BITS = 31
# Of a list without its values: the head of a run of zeros, up to 7 runs of a value, the head of the
# packed ones; and what the last store writes beyond its value.
_LIST_BYTES = 64


def dictionary_bytes(item_sizes: list[int]) -> int:
    """Returns what a thread needs for the dictionaries of item features, by number of ids."""
    return 2 * (4 + 8) * sum(item_sizes)


class _Dictionary:
    """The different values of a column in a row group, in the order in which they come."""

    def __init__(self, num_ids: int):
        self._numbers = np.zeros(num_ids, np.int32)
        self._values = np.empty(num_ids, np.int64)
        self._size = np.zeros(1, np.int64)
        self.index_bits = max(1, (num_ids - 1).bit_length())
        assert self.index_bits <= _MAX_INDEX_BITS, num_ids

    @property
    def values(self) -> np.ndarray:
        return self._values[: self._size[0]]

    def encode(
        self,
        values: np.ndarray,
        ends: np.ndarray,
        lengths: np.ndarray,
        list_length: int,
        copies: int,
        feature: np.ndarray | None,
        buffer: "_Buffer",
    ) -> np.ndarray:
        """Returns the content of a page of lists, uint8 [bytes], in a buffer.

        Args:
            values: int32; list i has those from ends[i] - lengths[i] to ends[i] - 1.
            ends, lengths: int64 [n].
            list_length: values of each list, zeros first.
            copies: times that each list is written.
            feature: int32, what is stored in place of a value; None for the value itself.
        """
        prefix = list_prefix(copies * len(ends), list_length, self.index_bits)
        sizes = copies * (len(ends) * _LIST_BYTES + int(lengths.sum()) * -(-self.index_bits // 8))
        page = buffer.get(len(prefix) + sizes + _LIST_BYTES, np.uint8)
        page[: len(prefix)] = np.frombuffer(prefix, np.uint8)
        out = page[len(prefix) :]
        size = compiled.library().encode_lists(
            compiled.address(values, np.int32),
            compiled.address(ends, np.int64),
            compiled.address(lengths, np.int64),
            len(ends),
            list_length,
            copies,
            None if feature is None else compiled.address(feature, np.int32),
            self.index_bits,
            compiled.address(self._numbers, np.int32),
            compiled.address(self._values, np.int64),
            compiled.address(self._size, np.int64),
            compiled.address(out, np.uint8),
        )
        assert size <= sizes, (size, sizes)
        return page[: len(prefix) + size]


class _Buffer:
    """Memory that stays: new memory costs as much as what is written to it."""

    def __init__(self):
        self._bytes = np.empty(0, np.uint8)

    def get(self, count: int, dtype: type) -> np.ndarray:
        """Returns an uninitialized array [count], valid until the next call."""
        num_bytes = count * np.dtype(dtype).itemsize
        if num_bytes > len(self._bytes):
            self._bytes = np.empty(num_bytes, np.uint8)
        return self._bytes[:num_bytes].view(dtype)


class EncodedRows:
    """Rows of a split that are encoded, a block after the other.

    Args:
        split: the rows.
        num_scalars: columns before those of histories.
        buffers: for negative items and for pages.
    """

    def __init__(self, split: SampleSplit, num_scalars: int, buffers: tuple[_Buffer, _Buffer]):
        self.num_rows = 0
        self._drawn, self._pages = buffers
        self._split = split
        # None: the item itself.
        self._features = [None, *split.log.item_features]
        sizes = item_sizes(split)
        self._scalars = [ColumnPages(compressed=True) for _ in range(num_scalars)]
        self._positive, self._negative = (
            [(ColumnPages(compressed, split.max_history), _Dictionary(size)) for size in sizes]
            for compressed in (True, False)
        )

    @property
    def num_bytes(self) -> int:
        """Bytes of the pages."""
        histories = (column for column, _ in (*self._positive, *self._negative))
        return sum(column.num_bytes for column in (*self._scalars, *histories))

    def add(self, start: int, stop: int) -> None:
        """Adds the rows [start, stop), both even."""
        pairs = self._split.pairs(start, stop)
        integers = (pairs.label, *pairs.user, *pairs.target)
        for column, values in zip(self._scalars, integers, strict=True):
            column.add_integers(values)
        lengths = np.ascontiguousarray(pairs.lengths)
        items = np.asarray(self._split.items)
        self._add(self._positive, items, pairs.places, lengths, copies=2)
        row_lengths = np.repeat(lengths, 2)
        negatives = self._negatives(pairs, int(row_lengths.sum()))
        self._add(self._negative, negatives, np.cumsum(row_lengths), row_lengths, copies=1)
        self.num_rows += stop - start

    def _add(self, columns, values: np.ndarray, ends, lengths, copies: int) -> None:
        for (column, dictionary), feature in zip(columns, self._features, strict=True):
            lists = (values, ends, lengths, self._split.max_history, copies)
            content = dictionary.encode(*lists, feature, self._pages)
            column.add_lists(copies * len(ends), content)

    def _negatives(self, pairs: SamplePairs, num_values: int) -> np.ndarray:
        """Returns the negative items of all rows, int32 [num_values]; see `draw_negatives`."""
        split, drawn = self._split, self._drawn.get(num_values, np.int32)
        compiled.library().draw_negatives(
            compiled.address(pairs.keys, np.uint64),
            len(pairs.keys),
            compiled.address(np.asarray(split.items), np.int32),
            compiled.address(pairs.places, np.int64),
            compiled.address(pairs.lengths, np.int64),
            split.log.num_items,
            len(split.items) if split.negatives == POPULARITY else 0,
            compiled.address(drawn, np.int32),
        )
        return drawn

    def write(self, file: ParquetFile) -> None:
        """Writes the rows; nothing can be added after that."""
        for column, dictionary in (*self._positive, *self._negative):
            column.set_dictionary(dictionary.values)
        histories = (column for column, _ in (*self._positive, *self._negative))
        file.write_row_group(self.num_rows, [*self._scalars, *histories])


def item_sizes(split: SampleSplit) -> list[int]:
    """Returns the number of ids, with 0, of items and of each of their features."""
    return [split.log.num_items + 1, *(int(ids.max()) + 1 for ids in split.log.item_features)]


def write_rows(
    split: SampleSplit,
    path: Path,
    schema: pa.Schema,
    rows: range,
    max_group_bytes: int,
) -> None:
    """Writes the rows of a range, whose step is that of blocks, as a file.

    A row group ends where its pages have `max_group_bytes` or more.
    """
    num_scalars = sum(column.type == pa.int64() for column in schema)
    buffers = _Buffer(), _Buffer()
    with open(path, "wb") as out:
        file = ParquetFile(out, schema)
        group = EncodedRows(split, num_scalars, buffers)
        for start in rows:
            group.add(start, min(start + rows.step, rows.stop))
            if group.num_bytes >= max_group_bytes:
                group.write(file)
                group = EncodedRows(split, num_scalars, buffers)
        if group.num_rows:
            group.write(file)
        file.close()
