"""What tasks of Spark in Python share; runs on the workers and imports nothing of Spark."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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

    def checked(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Checks the token on whichever worker gets the task; yields no rows."""
        for batch in batches:
            self.check()
            yield batch.slice(0, 0)


def numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    """Yields the numbers of a task's rows, of `SparkSession.range`."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def local_folder() -> tempfile.TemporaryDirectory:
    """Returns a temporary folder where the executor keeps its own files."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir())
    return tempfile.TemporaryDirectory(dir=folders.split(",")[0])
