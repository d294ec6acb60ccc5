"""What tasks of Spark in Python share; runs on the workers and imports nothing of Spark."""

import os
import tempfile
from collections.abc import Iterator

import pyarrow as pa


def numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    """Yields the numbers of a task's rows, of `SparkSession.range`."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def local_folder() -> tempfile.TemporaryDirectory:
    """Returns a temporary folder where the executor keeps its own files."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir())
    return tempfile.TemporaryDirectory(dir=folders.split(",")[0])
