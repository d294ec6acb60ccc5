"""Rows as Parquet files, `train/part.0.parquet` and so on, and `metadata.json`.

The columns: label, the users' features, those of the target item, of the positive and of the
negative history. Histories are lists of int64.
"""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from preproc.amazon_books.samples import SampleBlock, SampleSplit
from runtime.files.disk import write_errors_name

METADATA_FILE = "metadata.json"
LABEL = "label"
_BLOCK_VALUES = 1 << 20  # values of a column that are made at a time: 8 MiB
# What a thread holds while it makes a block: for each value of each column of lists the value
# itself, its like in the making and in Parquet's pages.
_BYTES_PER_VALUE = 32


@dataclass(frozen=True)
class ColumnNames:
    """Names of the features in the data set and in `metadata.json`.

    user, item: the id first. The columns of items are <name>_trgt, <name>_pos and <name>_neg.
    titles: those of users, then those of items, in `metadata.json`. If two of these are the same
        (a feature of users and one of items, or one called uid), all are what the columns of users
        and target items are called, which differ.

    Raises:
        ValueError: two columns would have one name.
    """

    user: tuple[str, ...]
    item: tuple[str, ...]
    titles: tuple[str, ...]

    def __post_init__(self):
        names = self.schema().names
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"two columns of the data set would be called {name}; rename a feature of "
                    "--user_features or --item_features in its file"
                )
        if len(set(self.titles)) < len(self.titles):
            object.__setattr__(self, "titles", (*self.user, *self.target))

    @property
    def target(self) -> tuple[str, ...]:
        return tuple(f"{name}_trgt" for name in self.item)

    def schema(self) -> pa.Schema:
        history = pa.list_(pa.field("element", pa.int64(), nullable=False))
        scalars = [LABEL, *self.user, *self.target]
        lists = [f"{name}_{kind}" for kind in ("pos", "neg") for name in self.item]
        return pa.schema(
            [pa.field(name, pa.int64(), nullable=False) for name in scalars]
            + [pa.field(name, history, nullable=False) for name in lists]
        )


def write_split(
    split: SampleSplit,
    folder: Path,
    columns: ColumnNames,
    rows_per_file: int,
    block_rows: int,
    threads: int,
) -> list[Path]:
    """Writes the rows of a split in order, several files at a time.

    Args:
        split: the rows.
        folder: made here.
        columns: names of the columns.
        rows_per_file: even.
        block_rows: even; a block of rows is made at a time, and is a row group.
        threads: number of files at a time.

    Returns:
        the files; one without rows where the split has none.
    """
    folder.mkdir()
    schema = columns.schema()
    starts = range(0, max(split.num_rows, 1), rows_per_file)
    paths = [folder / f"part.{i}.parquet" for i in range(len(starts))]

    def write(path: Path, start: int) -> None:
        rows = range(start, min(start + rows_per_file, split.num_rows), block_rows)
        with write_errors_name(path):
            _write_rows(split, path, schema, rows)

    with ThreadPoolExecutor(threads) as pool:
        try:
            list(pool.map(write, paths, starts))
        finally:
            pool.shutdown(cancel_futures=True)
    return paths


def _write_rows(split: SampleSplit, path: Path, schema: pa.Schema, rows: range) -> None:
    """Writes a range of rows, whose step is that of blocks, as a file."""
    # Plain values: Zstandard finds that a history is the one before it but for an element, and
    # is faster at it than a dictionary. No reader selects rows by ranges of ids.
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,
        write_statistics=False,
    ) as writer:
        for first in rows:
            block = split.rows(first, min(first + rows.step, rows.stop))
            writer.write_table(_table(block, schema))


def block_rows(num_item_features: int, max_history: int, memory_bytes: int, threads: int) -> int:
    """Returns the number of rows that each thread may create at a time: even, 2 or more."""
    values = memory_bytes // (threads * 2 * num_item_features * _BYTES_PER_VALUE)
    return max(2, min(_BLOCK_VALUES, values) // max_history // 2 * 2)


def _table(rows: SampleBlock, schema: pa.Schema) -> pa.Table:
    arrays = [_array(pa.int64(), column) for column in (rows.label, *rows.user, *rows.target)]
    for history in (*rows.positive, *rows.negative):
        num_rows, length = history.shape
        offsets = _array(pa.int32(), np.arange(num_rows + 1, dtype=np.int32) * np.int32(length))
        values = _array(pa.int64(), history.reshape(-1))
        history_type = schema.field(len(arrays)).type
        arrays.append(pa.ListArray.from_arrays(offsets, values, type=history_type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(arrow_type: pa.DataType, values: np.ndarray) -> pa.Array:
    """Returns an Arrow array of the same memory; unlike pa.array, without importing pandas."""
    return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(values)])


def write_metadata(path: Path, titles: Sequence[str], cardinalities: Sequence[int], more: dict):
    """Writes `metadata.json`: a cardinality, the largest id + 1, for each title, and `more`."""
    pairs = zip(titles, cardinalities, strict=True)
    content = {"cardinalities": [{"name": name, "value": int(n)} for name, n in pairs], **more}
    path.write_text(json.dumps(content, indent=2) + "\n")
