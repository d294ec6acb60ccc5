"""Staging folder of an output: what a killed run leaves, and what the next one uses again.

    with Staging(path, TOOL, DATA_SET) as staging:
        staging.run("count", key, work, files=[staging.data / "count.bin"])
        staging.publish()

- The folder is a hidden neighbour of the output, whose name is a hash of tool and output. It is
  used only if this user made it for them; one run at a time holds its lock.
- A stage is known by its name, its key (a hash of all that its result depends on) and the files
  that it writes. Before it writes, the marks of all finished stages that wrote one of them are
  removed.
"""

import contextlib
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from runtime.files.disk import FileLock, sync_tree, write_errors_name
from runtime.files.outputs import (
    MARKER,
    check_folder,
    list_files,
    output_file,
    publish_folder,
    read_marker,
    remove_folder,
    write_marker,
)

# Part of every key: raise it when a change of the code changes what a stage leaves behind.
_STAGE_VERSION = 5


@contextlib.contextmanager
def output_folder(
    path: str | os.PathLike[str],
    tool: str,
    kind: str,
    overwrite: bool | None = None,
    read: Sequence[Path] = (),
) -> Iterator[Path]:
    """Yields a new folder that takes the name `path` when the block ends without error.

    Args:
        path, kind, overwrite, read: as of `check_folder`. Parent folders are created.
        tool: module of the command.

    Raises:
        ValueError: as of `check_folder`, at the start and at the end; another run writes `path`.
        OSError: the folder cannot be written or renamed; `path` is unchanged.
    """
    with Staging(Path(path), tool, kind, overwrite, read, resumes=False) as staging:
        yield staging.data
        staging.publish()


class Staging:
    """Staging folder of an output while a run uses it; a context manager.

    Attributes:
        folder: the hidden folder.
        data: what takes the output's name.
        scratch: emptied at the start and the end of a run.

    Raises:
        ValueError: as of `check_folder`; another run holds the folder, or it is not ours.
    """

    def __init__(
        self,
        output: Path,
        tool: str,
        kind: str,
        overwrite: bool | None = None,
        read: Sequence[Path] = (),
        resumes: bool = True,
    ):
        # Absolute: tasks of Spark may have another working folder.
        self.output = output.absolute()
        self._tool, self._kind, self._overwrite, self._read = tool, kind, overwrite, read
        self._resumes = resumes
        self._owned = OwnedFolder(self.output.parent, self.output, tool)
        self.folder = self._owned.path
        self.data = self.folder / "data"
        self.scratch = self.folder / "scratch"
        self._complete = self.folder / "complete"
        self._state_path = self.folder / "state.json"
        self._temp: OwnedFolder | None = None
        self._stages: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> "Staging":
        check_folder(self.output, self._kind, self._overwrite, self._read)
        self._owned.acquire(keep=self._resumes)
        self._stages = self._read_state()
        shutil.rmtree(self.scratch, ignore_errors=True)
        for folder in (self.data, self.scratch):
            folder.mkdir(exist_ok=True)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._temp is not None:
            self._temp.release(remove=True)
        shutil.rmtree(self.scratch, ignore_errors=True)
        # Without a finished stage there is nothing to resume from.
        self._owned.release(remove=not self._stages)

    def part(self, name: str) -> Path:
        """Returns the folder of this name for what stages leave behind, which may be new."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def temp_folder(self, parent: Path | None) -> Path:
        """Returns an empty folder of this run, in `parent` or else in the staging folder."""
        if parent is None:
            return self.scratch
        # Another name than that of the staging folder, which may lie in `parent`, too.
        self._temp = OwnedFolder(parent, self.output, f"{self._tool} (temporary files)")
        self._temp.acquire(keep=False)
        return self._temp.path

    @property
    def num_finished(self) -> int:
        """Number of stages that earlier runs finished, with any options."""
        return len(self._stages)

    def is_finished(self, name: str, key: str) -> bool:
        """Returns True if a stage was finished with this key."""
        return self._stages.get(name, {}).get("key") == key

    def run(
        self,
        name: str,
        key: str,
        work: Callable[[], dict[str, Any]],
        files: Sequence[Path] = (),
    ) -> tuple[dict[str, Any], bool]:
        """Returns the stage's result (JSON values), and whether it is new.

        Everything that `work` wrote is on the disk when it returns.
        """
        ((result, is_new),) = self.run_all([(name, key, files)], lambda _: [work()])
        return result, is_new

    def run_all(
        self,
        stages: Sequence[tuple[str, str, Sequence[Path]]],
        work: Callable[[list[int]], list[dict[str, Any]]],
    ) -> list[tuple[dict[str, Any], bool]]:
        """Runs several stages (name, key, files) together; returns what `run` returns of each.

        Args:
            work: receives the places of those that no earlier run finished; returns their results.
        """
        left = [i for i, (name, key, _) in enumerate(stages) if not self.is_finished(name, key)]
        self.forget([stages[i] for i in left])
        if left:
            for i, result in zip(left, work(left), strict=True):
                name, key, files = stages[i]
                written = self._relative(files)
                self._stages[name] = {"key": key, "files": written, "result": result}
            self._write_state()
        return [(self._stages[name]["result"], i in left) for i, (name, _, _) in enumerate(stages)]

    def forget(self, stages: Sequence[tuple[str, str, Sequence[Path]]]) -> None:
        """Removes the marks of finished stages that have a name or a file of these stages.

        A tool calls it before it writes a file of a stage outside of `run`.
        """
        names = {name for name, _, _ in stages}
        files = {file for _, _, paths in stages for file in self._relative(paths)}
        stale = {
            name
            for name, stage in self._stages.items()
            if name in names or files.intersection(stage["files"])
        }
        for name in stale:
            del self._stages[name]
        if stale:
            self._write_state()

    def publish(self, files: Sequence[Path] | None = None) -> None:
        """Gives the data folder the output's name.

        Args:
            files: those to keep, relative to the data folder; None: all.
        """
        if files is not None:
            wanted = {os.path.normpath(file) for file in files}
            for name in list_files(self.data):
                if name not in wanted:
                    (self.data / name).unlink()
            for parent, _, _ in os.walk(self.data, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(parent)
        write_marker(self.data, self._tool, self._kind, stage_key(self._stages))
        sync_tree(self.data)
        os.rename(self.data, self._complete)
        publish_folder(self._complete, self.output, self._kind, self._overwrite)
        self._stages = {}

    def _read_state(self) -> dict[str, dict[str, Any]]:
        """Returns the finished stages whose files are in the data folder."""
        stages = {}
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            stages = json.loads(self._state_path.read_text())
        if self._complete.is_dir():  # a run was killed while it published
            marker = read_marker(self._complete)
            if marker is not None and marker["key"] == stage_key(stages):
                os.rename(self._complete, self.data)
                (self.data / MARKER).unlink()
            else:  # the output that it replaced
                remove_folder(self._complete)
                if self._complete.exists():
                    raise ValueError(
                        f"{self._complete} holds files that were in {self.output} and are not "
                        "part of it; move them away"
                    )
        return stages if self.data.is_dir() else {}

    def _relative(self, files: Sequence[Path]) -> list[str]:
        return [os.path.relpath(file, self.folder) for file in files]

    def _write_state(self) -> None:
        with output_file(self._state_path) as file:
            file.write(json.dumps(self._stages).encode())


def stage_key(*parts: object) -> str:
    """Returns a short hash of JSON values."""
    return hashlib.sha256(json.dumps([_STAGE_VERSION, *parts]).encode()).hexdigest()[:32]


class OwnedFolder:
    """Hidden folder of a tool for one output, which one run at a time holds.

    Args:
        parent: the folder in which it is made.
        output: what the run writes.
        tool: module of the command.
    """

    def __init__(self, parent: Path, output: Path, tool: str):
        self._output = output.resolve()
        digest = hashlib.sha256(f"{tool}\n{self._output}".encode()).hexdigest()[:8]
        self.path = parent / f".{output.name}.{digest}"
        self._owner = {"kind": "staging", "tool": tool, "output": str(self._output)}
        self._lock = FileLock(self.path)

    def acquire(self, keep: bool) -> None:
        """Creates or takes over the folder.

        Args:
            keep: leave what an earlier run left in it.

        Raises:
            ValueError: another run holds it, or something else has its name.
        """
        with write_errors_name(self.path), contextlib.suppress(FileExistsError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir()
        status = self.path.lstat()
        is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if is_own and not self._lock.acquire(blocking=False):
            raise ValueError(
                f"another run is writing {self._output} (it holds {self.path}); let it end"
            )
        if not is_own or not (self._has_marker() or self._is_empty()):
            self._lock.release()
            raise ValueError(
                f"{self.path}: expected the staging folder that an earlier run of "
                f"{self._owner['tool']} left for {self._output}, got something else; move it away"
            )
        if not keep:
            self._empty()
        with output_file(self.path / MARKER) as stream:
            stream.write(json.dumps(self._owner).encode())

    def release(self, remove: bool) -> None:
        """Releases the folder for other runs, and removes it if `remove`."""
        if remove:
            with contextlib.suppress(OSError):
                self._empty()
                (self.path / MARKER).unlink()  # last: what a kill leaves is still known as ours
                self.path.rmdir()
        self._lock.release()

    def _has_marker(self) -> bool:
        path = self.path / MARKER
        try:
            return not path.is_symlink() and json.loads(path.read_bytes()) == self._owner
        except (OSError, ValueError):
            return False

    def _is_empty(self) -> bool:
        """Returns True for a folder with at most a marker that a killed run had not finished."""
        return all(path.name.startswith((MARKER, f".{MARKER}")) for path in self.path.iterdir())

    def _empty(self) -> None:
        for path in self.path.iterdir():
            if path.name == MARKER:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
