"""Staged folders of Parquet files, and tasks of Spark that read and write them; no PySpark here.

The rows of a folder are those of its files in the order of their names, so that a row has a number
although no task counts another one's rows.
"""

import contextlib
import itertools
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataloading.engines.tasks import runs
from runtime.files.disk import sync


@dataclass(frozen=True)
class RowGroup:
    """A row group of a staged file, whose first row is number `first_row` of all."""

    path: Path
    row_group: int
    first_row: int
    num_rows: int

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Returns the columns, num_rows rows of each."""
        with pq.ParquetFile(self.path) as file:
            return file.read_row_group(self.row_group, columns).slice(0, self.num_rows)

    def read_dictionaries(self, columns: Sequence[str]) -> Iterator[pa.DictionaryArray]:
        """Yields columns of text as arrays of num_rows indices and their values."""
        with pq.ParquetFile(self.path, read_dictionary=list(columns)) as file:
            table = file.read_row_group(self.row_group, columns)
        for name in columns:
            values = table.column(name).slice(0, self.num_rows).unify_dictionaries()
            yield values.combine_chunks()


def part_files(folder: Path) -> list[Path]:
    """Returns the files of a folder in the order of their rows."""
    return sorted(folder.glob("part-*.parquet"))


@contextlib.contextmanager
def new_part(folder: Path, number: int) -> Iterator[Path]:
    """Yields a path to write, which becomes the part `number`: whole, also by a repeated task."""
    target = folder / f"part-{number:08d}.parquet"
    new = target.with_name(f"{target.name}.{secrets.token_hex(8)}")
    yield new
    sync(new)
    new.replace(target)


def pieces(folders: Sequence[tuple[Path, int]], num_rows: int | None = None) -> list[RowGroup]:
    """Returns the pieces of folders, each passed with the number of its first row.

    Rows with a number of num_rows or more are left out.
    """
    result = []
    for folder, first_row in folders:
        for path in part_files(folder):
            footer = pq.read_metadata(path)
            for i in range(footer.num_row_groups):
                size = footer.row_group(i).num_rows
                left = size if num_rows is None else min(size, num_rows - first_row)
                if left > 0:
                    result.append(RowGroup(path, i, first_row, left))
                first_row += size
    return result


def new_folder(target: Path) -> Path:
    """Makes the empty folder in which the parts of `target` are written."""
    new = target.with_name(f"{target.name}.new")
    _remove(new)
    new.mkdir()
    return new


def publish(new: Path, target: Path) -> None:
    """Gives a folder the name `target`, in place of what has it."""
    sync(new)
    _remove(target)
    os.rename(new, target)
    sync(target.parent)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


KEPT = "column int, num_values long"


def numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    """Yields the numbers of a task's rows, of `SparkSession.range`."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def local_folder() -> tempfile.TemporaryDirectory:
    """Returns a temporary folder where the executor keeps its own files."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir())
    return tempfile.TemporaryDirectory(dir=folders.split(",")[0])


def record_batch(schema: str, *columns: Sequence) -> pa.RecordBatch:
    """Returns a batch of a schema that is written as Spark takes it: "piece long, value string"."""
    types = {"int": pa.int32(), "long": pa.int64(), "string": pa.string()}
    fields = [field.split() for field in schema.split(", ")]
    arrays = [
        column.cast(types[kind]) if isinstance(column, pa.Array) else pa.array(column, types[kind])
        for (_, kind), column in zip(fields, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, [name for name, _ in fields])


def write_vocabularies(
    folders: Sequence[Path], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """(column, value, count, part), sorted, of one part -> a file in each column's folder.

    Yields `KEPT`.
    """
    for number, run in runs(batches, "column"):
        first = next(run)
        schema = first.select(["value", "count"]).schema
        num_values = 0
        with (
            new_part(folders[number], first["part"][0].as_py()) as target,
            pq.ParquetWriter(target, schema) as writer,
        ):
            for batch in itertools.chain([first], run):
                writer.write_batch(batch.select(schema.names))
                num_values += batch.num_rows
        yield record_batch(KEPT, [number], [num_values])


def read_vocabularies(
    pieces: Sequence[tuple[int, RowGroup]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Number of one of `pieces`, (column, piece of its vocabulary) -> (column, value, id)."""
    for number in numbers(batches):
        column, piece = pieces[number]
        values = piece.read(["value"]).column(0).combine_chunks()
        columns = pa.array(np.full(len(values), column, np.int32))
        ids = pa.array(piece.first_row + np.arange(len(values)))
        yield pa.RecordBatch.from_arrays([columns, values, ids], ["column", "value", "id"])
