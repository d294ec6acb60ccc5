"""Folder of a run, which all workers share, and the results and failures that it keeps."""

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dataloading.engines.tasks import RunToken
from runtime.files.outputs import output_file


class Failure(NamedTuple):
    """Message of a part's error, for the user."""

    message: str


@dataclass(frozen=True)
class RunFolder:
    """Folder of a run, on a file system that all workers share.

    Attributes:
        path: the folder.
        token: proves that a worker sees it, and that its run has not ended.
        sync: whether files are written by several machines.
    """

    path: Path
    token: RunToken
    sync: bool

    def staged(self, split: str, part: int) -> Path:
        """Returns the staged rows of a part that a split of the data set gets."""
        return self.path / "rows" / split / f"{part:06}.parquet"

    def counts(self, part: int) -> Path:
        """Returns the counted texts of a part."""
        return self.path / "counts" / f"{part:06}.parquet"

    def result(self, name: str) -> Path:
        """Returns the file of a result, which is there when its work is done."""
        return self.path / "results" / f"{name}.json"

    def once(self, name: str, work: Callable[[], Any]) -> Any:
        """Returns the result of work, JSON values: a run that resumes reads it from its file."""
        path = self.result(name)
        with contextlib.suppress(FileNotFoundError):
            return json.loads(path.read_bytes())
        result = work()
        with output_file(path) as stream:
            stream.write(json.dumps(result).encode())
        return result

    def unless_failed(self, job: str, place: int, work: Callable[[], Any]) -> Any:
        """Returns the result of work, or its `Failure`; None where an earlier place has failed."""
        self.token.check()
        folder = self.path / "failed" / job
        with contextlib.suppress(FileNotFoundError):
            if any(int(name) < place for name in os.listdir(folder)):
                return None
        try:
            return work()
        except ValueError as error:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / str(place)).touch()
            return Failure(str(error))
