"""Parts shared by tasks of Spark; no PySpark here."""

import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class RunToken:
    """A file of the run that started a task.

    A worker that does not see it writes elsewhere than the driver reads, or belongs to a run that
    was killed and that another one has resumed.
    """

    path: Path
    text: str

    def create(self) -> None:
        self.path.write_text(self.text)

    def check(self) -> None:
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            text = None
        if text != self.text:
            raise ValueError(
                f"a Spark worker on {os.uname().nodename} does not see {self.path} as the driver "
                "wrote it: --output and --input must lie on a file system that all workers share, "
                "under the same path (or another run has taken over this one's output)"
            )


def runs(
    batches: Iterator[pa.RecordBatch], key: str
) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Yields each run of equal keys and the parts of batches in it; read them before the next."""

    def slices() -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            keys = batch.column(key).to_numpy()
            starts = np.flatnonzero(np.diff(keys, prepend=-2))
            for start, stop in itertools.pairwise([*starts.tolist(), len(keys)]):
                yield int(keys[start]), batch.slice(start, stop - start)

    for number, run in itertools.groupby(slices(), lambda part: part[0]):
        yield number, (batch for _, batch in run)


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
