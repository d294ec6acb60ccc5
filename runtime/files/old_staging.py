"""The staging folder `<output>.partial`: what a killed run leaves, and what the next one re-uses.

A stage is known by its name and a key, made from all that its result depends on: file
fingerprints, options, the keys of earlier stages. A finished stage is skipped by a later run if
its key is still the same, and done again if it is not.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runtime.files.disk import FileLock, sync
from runtime.files.outputs import output_file

# Part of every key: raise it when a change of the code changes what a stage leaves behind.
_STAGE_VERSION = 3
SPEC_FILE = "feature_spec.yaml"


def stage_key(*parts: object) -> str:
    """A short hash of JSON values."""
    return hashlib.sha256(json.dumps([_STAGE_VERSION, *parts]).encode()).hexdigest()[:32]


class OldStaging:
    """The folder while a run uses it; a context manager that raises ValueError in other runs."""

    def __init__(self, output: Path):
        # Absolute: tasks of Spark may have another working folder.
        self.folder = output.absolute().with_name(output.name + ".partial")
        self.output = output
        self.data = self.folder / "data"
        self.scratch = self.folder / "scratch"
        self._state_path = self.folder / "state.json"
        self._lock = FileLock(self.folder / "lock")
        self._temp_folder: Path | None = None
        self._stages: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> "OldStaging":
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._lock.acquire(blocking=False):
            raise ValueError(
                f"another run is preparing {self.output} (it holds {self.folder}); let it end"
            )
        # Without its data folder, the rest was left by a run that was killed after publishing it.
        self._stages = {}
        if self.data.is_dir():
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                self._stages = json.loads(self._state_path.read_text())
        shutil.rmtree(self.scratch, ignore_errors=True)
        for folder in (self.data, self.scratch):
            folder.mkdir(exist_ok=True)
        return self

    def part(self, name: str) -> Path:
        """Returns the folder of this name for what stages leave behind, which may be new."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def __exit__(self, *exception: object) -> None:
        if self._temp_folder is not None:
            shutil.rmtree(self._temp_folder, ignore_errors=True)
        if not self._stages:  # nothing to resume from, e.g. where the engine would not start
            shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()

    def temp_folder(self, parent: Path | None) -> Path:
        """An empty folder of this output's own, in `parent` or else in the staging folder."""
        if parent is None:
            return self.scratch
        folder = parent / f"{self.output.name}-{stage_key(str(self.output.resolve()))[:8]}.temp"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self._temp_folder = folder
        return folder

    @property
    def num_finished(self) -> int:
        """Number of stages that earlier runs finished, with any options."""
        return len(self._stages)

    def is_finished(self, name: str, key: str) -> bool:
        """Returns True if a stage was finished with this key."""
        return self._stages.get(name, {}).get("key") == key

    def run(
        self, name: str, key: str, work: Callable[[], dict[str, Any]]
    ) -> tuple[dict[str, Any], bool]:
        """Returns the stage's result (JSON values), and whether it is new.

        Everything that `work` wrote is on the disk when it returns.
        """
        ((result, is_new),) = self.run_all([(name, key)], lambda _: [work()])
        return result, is_new

    def run_all(
        self, stages: Sequence[tuple[str, str]], work: Callable[[list[int]], list[dict[str, Any]]]
    ) -> list[tuple[dict[str, Any], bool]]:
        """Runs several stages (name, key) together; returns what `run` returns of each.

        work: receives the places of those that no earlier run finished, and returns their results.
        """
        left = [i for i, stage in enumerate(stages) if not self.is_finished(*stage)]
        stale = {stages[i][0] for i in left} & self._stages.keys()
        for name in stale:
            del self._stages[name]
        if stale:
            self._write_state()
        if left:
            for i, result in zip(left, work(left), strict=True):
                name, key = stages[i]
                self._stages[name] = {"key": key, "result": result}
            self._write_state()
        return [(self._stages[name]["result"], i in left) for i, (name, _) in enumerate(stages)]

    def _write_state(self) -> None:
        with output_file(self._state_path) as file:
            file.write(json.dumps(self._stages).encode())

    def publish(self, files: list[Path]) -> None:
        """Gives the data folder, with these files (relative to it) alone, the output's name."""
        wanted = {self.data / file for file in files}
        for path in sorted(self.data.rglob("*"), reverse=True):
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path not in wanted:
                path.unlink()
        for path in [*wanted, *{path.parent for path in wanted}]:
            sync(path)
        if self.output.exists():
            replaced = self.folder / "replaced"
            shutil.rmtree(replaced, ignore_errors=True)
            os.rename(self.output, replaced)
        os.rename(self.data, self.output)
        sync(self.output.parent)
        shutil.rmtree(self.folder)
