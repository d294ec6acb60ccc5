"""Proof that a task of Spark works on the files of the run that started it; no PySpark here."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow


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

    def checked(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Checks the token on whichever worker gets the task; yields no rows."""
        for batch in batches:
            self.check()
            yield batch.slice(0, 0)
