"""The folder of a training's checkpoints."""

import contextlib
import itertools
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from runtime.checkpoint.files import INDEX, DamagedCheckpoint, read_index
from runtime.checkpoint.lock import WAIT_S, Lock
from runtime.checkpoint.nvidia.folders import is_original
from runtime.checkpoint.nvidia.neumf import FILE as NEUMF_FILE
from runtime.files.disk import make_durable_folder, sync
from runtime.files.paths import absent
from runtime.files.torch_file import is_torch_file

_NAME = re.compile(r"(\d{5,})-step-(\d+)")
_EARLIER = "earlier-"
_UNFINISHED, _DELETED = ".writing-", ".deleting-"
_LEFT_OVER = re.compile(r"\.(writing|deleting)-(\d{5,}-step-\d+|best)(\.[0-9a-f]+)?")

# The link to the checkpoint that evaluated best.
BEST = "best"


class Saved(NamedTuple):
    """A checkpoint; `number` counts all that were ever saved in its folder."""

    number: int
    step: int
    path: Path


class Folder:
    """Checkpoints `NUMBER-step-STEP` in one folder, and optionally a link `best` to one of them.

    A checkpoint gets its name by a rename when all of it is on the disk, and loses it by a rename
    before any of it is deleted: what has such a name is complete. Other files are left alone. The
    folder need not exist.
    """

    def __init__(self, root: str | os.PathLike[str]):
        self.root = Path(os.path.realpath(root))
        self.lock = Lock(self.root)
        self._abandoned: set[Path] = set()

    def list(self) -> list[Saved]:
        """Returns the checkpoints, oldest first."""
        try:
            names = os.listdir(self.root)
        except (FileNotFoundError, NotADirectoryError):
            return []
        matches = filter(None, map(_NAME.fullmatch, names))
        checkpoints = (Saved(int(m[1]), int(m[2]), self.root / m[0]) for m in matches)
        return sorted(saved for saved in checkpoints if saved.path.is_dir())

    def newest(self) -> Saved | None:
        return max(self.list(), default=None)

    def previous(self, path: Path) -> Path | None:
        """Returns the newest readable one that was saved before another."""
        path, checkpoints = Path(os.path.realpath(path)), self.list()
        number = next((saved.number for saved in checkpoints if saved.path == path), 0)
        for saved in reversed(checkpoints):
            if saved.number < number:
                with contextlib.suppress(ValueError):
                    read_index(saved.path)
                    return saved.path
        return None

    def acquire(self, wait_s: float = WAIT_S) -> None:
        """Locks the folder for writing and removes the remains of killed processes.

        Raises ValueError if it cannot be written, is a checkpoint, or another training has it.
        """
        flag = f"--save_checkpoint_path {self.root}"
        if (self.root / INDEX).exists():
            raise ValueError(
                f"{flag} is itself a checkpoint, not a folder of checkpoints: it is left as it "
                "is; give another folder"
            )
        try:
            make_durable_folder(self.root)
            self.lock.wait(wait_s)
        except OSError as error:
            raise ValueError(f"{flag} cannot be written: {error.strerror}") from None
        for path in list(self.root.iterdir()):
            # A day old: no process can still be writing there.
            is_old = self.lock.is_held or time.time() - path.lstat().st_mtime > 24 * 3600
            if _LEFT_OVER.fullmatch(path.name) and is_old:
                if path.is_symlink():
                    path.unlink(missing_ok=True)
                shutil.rmtree(path, ignore_errors=True)

    def release(self) -> None:
        self.lock.release()

    def stage(self, step: int) -> Path:
        """Creates a temporary folder for a checkpoint.

        Raises:
            OSError: it cannot be created, or another training has locked this folder.
        """
        self.lock.check()
        newest = self.newest()
        number = newest.number + 1 if newest else 1
        # A random name: ranks of a killed training may still write to theirs.
        token = secrets.token_hex(4)
        staging = self.root / f"{_UNFINISHED}{number:05d}-step-{step}.{token}"
        staging.mkdir(parents=True)
        return staging

    def publish(self, staging: Path) -> Path:
        """Gives a complete checkpoint its name; raises OSError as `stage` does."""
        self.lock.check()
        final = self.root / staging.name.removeprefix(_UNFINISHED).partition(".")[0]
        os.rename(staging, final)
        try:
            sync(self.root)
        except OSError:
            os.rename(final, staging)
            raise
        return final

    def link_best(self, path: Path) -> None:
        link = self.root / f"{_UNFINISHED}{BEST}.{secrets.token_hex(4)}"
        os.symlink(path.name, link)
        try:
            os.replace(link, self.root / BEST)
        except OSError:  # something else has that name
            link.unlink()
            raise

    def abandon_newer_than(self, path: Path) -> None:
        """Marks newer checkpoints, which may be damaged, as the first to be deleted."""
        paths = [saved.path for saved in self.list()]
        self._abandoned = set(paths[paths.index(path) + 1 :]) if path in paths else set()

    def set_aside(self) -> Path:
        """Moves all checkpoints, the link to the best one and model.pth to a new folder in it."""
        paths = (self.root / f"{_EARLIER}{number}" for number in itertools.count(1))
        target = next(path for path in paths if not path.exists())
        target.mkdir()
        for name in [*(saved.path.name for saved in self.list()), BEST, NEUMF_FILE]:
            with contextlib.suppress(FileNotFoundError):
                os.rename(self.root / name, target / name)
        return target

    def set_best(self, step: int | None) -> None:
        """Points the link `best` to the checkpoint of this step; removes it without such a one."""
        best = [s for s in self.list() if s.step == step and s.path not in self._abandoned]
        if best:
            self.link_best(best[-1].path)
        else:
            (self.root / BEST).unlink(missing_ok=True)

    def best_of_step(self, step: int) -> Path | None:
        """Returns the checkpoint that the link `best` names if it is of this step, else None."""
        best = Path(os.path.realpath(self.root / BEST))
        return best if any(s.step == step and s.path == best for s in self.list()) else None

    def keep_newest(self, count: int) -> None:
        """Deletes all checkpoints but the newest ones and the best one."""
        best = Path(os.path.realpath(self.root / BEST))
        in_order = sorted(self.list(), key=lambda saved: saved.path not in self._abandoned)
        for saved in in_order[:-count]:
            if saved.path == best:
                continue
            hidden = self.root / f"{_DELETED}{saved.path.name}"
            os.rename(saved.path, hidden)
            shutil.rmtree(hidden, ignore_errors=True)


def best_of(path: str | os.PathLike[str]) -> Path:
    """Returns the best checkpoint of a folder with a link to it, else the path."""
    best = Path(path) / BEST
    return best if best.is_dir() else Path(path)


def resolve(path: str | os.PathLike[str], flag: str = "--restore_checkpoint_path") -> Path:
    """Returns a checkpoint from its path, or the newest one of a folder; ValueError without one.

    A checkpoint is also a file of PyTorch's weights, NCF's `model.pth`.
    """
    folder = Path(path)
    if is_torch_file(folder):
        return folder
    if folder.is_file():
        raise ValueError(
            f"{flag} {path}: expected a folder of checkpoints, or a file that torch.save wrote, "
            "got another file"
        )
    if not folder.is_dir():
        raise ValueError(f"{flag} {absent(path, 'folder')}")
    if is_checkpoint(folder):
        return folder
    newest = Folder(folder).newest()
    if newest is None:
        raise ValueError(
            f"{flag} {path} neither is nor contains a checkpoint: expected {INDEX} in it, or in "
            "folders like 00001-step-100"
        )
    return newest.path


def is_checkpoint(folder: Path) -> bool:
    """Returns whether a folder is a checkpoint, ours or in the layout of NVIDIA's recipe."""
    return (folder / INDEX).exists() or is_original(folder)


@contextlib.contextmanager
def suggest_previous(path: Path, flag: str) -> Iterator[None]:
    """Adds the checkpoint before it to the error of a damaged checkpoint."""
    try:
        yield
    except DamagedCheckpoint as error:
        previous = Folder(Path(path).parent).previous(path)
        suggestion = "there is no earlier one in its folder"
        if previous is not None:
            suggestion = f"the one before it is {flag} {previous}"
        raise DamagedCheckpoint(f"{error}; {suggestion}") from None
