"""Tasks of Spark in Python, and their parts; runs on the workers and imports nothing of Spark."""

import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataloading.engines.key_runs import runs
from preproc.engines.spark_parts import RowGroup, new_part

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


def write_events(folder: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """(user, item, part), sorted ids of one part -> a file of int32 pairs; yields how many."""
    for number, run in runs(batches, "part"):
        num_events = 0
        with new_part(folder, number) as target, open(target, "wb") as file:
            for batch in run:
                columns = [batch.column(name).to_numpy() for name in ("user", "item")]
                np.stack(columns, axis=1).astype(np.int32).tofile(file)
                num_events += batch.num_rows
        yield record_batch("num_events long", [num_events])
