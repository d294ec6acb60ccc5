"""The folder of a training's checkpoints: which there are, which is the newest."""

import contextlib
import os
import re
import secrets
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from runtime.checkpoint.files import INDEX, DamagedCheckpoint, read_index
from runtime.checkpoint.lock import WAIT_S, Lock, LockedError
from runtime.files.atomic import make_durable_folder, sync

_NAME = re.compile(r"(\d{5,})-step-(\d+)")
_UNFINISHED, _DELETED = ".writing-", ".deleting-"

# The link to the checkpoint that evaluated best.
BEST = "best"


class Saved(NamedTuple):
    """A checkpoint: the number counts what was ever saved in its folder."""

    number: int
    step: int
    path: Path


class Folder:
    """Checkpoints `NUMBER-step-STEP` in one folder, and perhaps a link `best` to one of them;
    whatever else is in it is left alone.

    One becomes visible under its name by a rename, when all of it is on the disk, and it is hidden
    by a rename before any of it is deleted: what has such a name is whole, as far as it was not
    damaged later.

    Args:
        root: the folder; need not exist.
    """

    def __init__(self, root: str | os.PathLike):
        self.root = Path(os.path.realpath(root))
        self._lock = Lock(self.root)
        self._abandoned: set[Path] = set()

    def list(self) -> list[Saved]:
        """The checkpoints, oldest first."""
        found = []
        try:
            names = os.listdir(self.root)
        except (FileNotFoundError, NotADirectoryError):
            return []
        for name in names:
            matched = _NAME.fullmatch(name)
            if matched and (self.root / name).is_dir():
                found.append(Saved(int(matched[1]), int(matched[2]), self.root / name))
        return sorted(found)

    def newest(self) -> Saved | None:
        """The last one saved."""
        return max(self.list(), default=None)

    def previous(self, path: Path) -> Path | None:
        """The newest readable one that was saved before another."""
        path = Path(os.path.realpath(path))
        numbers = {saved.path: saved.number for saved in self.list()}
        number = numbers.get(path)
        for saved in reversed(self.list()):
            if number is not None and saved.number < number:
                with contextlib.suppress(ValueError):
                    read_index(saved.path)
                    return saved.path
        return None

    def take(self, wait_s: float = WAIT_S) -> None:
        """Makes the folder this process's own to write, and removes what a killed one left over.

        Args:
            wait_s: for the end of another training that writes to it.

        Raises:
            ValueError: it cannot be written, is a checkpoint itself, or another training has it.
        """
        flag = f"--save_checkpoint_path {self.root}"
        if (self.root / INDEX).exists():
            raise ValueError(
                f"{flag} is itself a checkpoint, not a folder of checkpoints: it is left as it "
                "is; give another folder"
            )
        try:
            make_durable_folder(self.root)
            self._lock.acquire(wait_s)
        except OSError as error:
            raise ValueError(f"{flag} cannot be written: {error.strerror}") from None
        except LockedError as error:
            raise ValueError(
                f"{flag} is being written by another training that still runs: {error}. Waited "
                f"{wait_s:.0f} s for it. End it, or give another folder; only if that machine is "
                "down for good, so that nothing of it can write any more and a file server keeps "
                f"its lock, remove {self._lock.path}"
            ) from None
        for name in os.listdir(self.root):
            left_over = name.startswith((_UNFINISHED, _DELETED))
            if left_over and (self._lock.is_held or _is_old(self.root / name)):
                if (self.root / name).is_symlink():
                    (self.root / name).unlink(missing_ok=True)
                shutil.rmtree(self.root / name, ignore_errors=True)

    def release(self) -> None:
        """Lets others write."""
        self._lock.release()

    def write_token(self) -> str | None:
        """Writes a word here by which others know the folder (`sees`); None: it cannot be written,
        which saves will tell."""
        return self._lock.write_token()

    def sees_token(self, word: str) -> bool:
        """Whether this process sees what `mark` wrote; file systems may take seconds."""
        return self._lock.sees_token(word)

    def stage(self, step: int) -> Path:
        """A new folder for a checkpoint that is being written.

        Raises:
            OSError: it cannot be made, or another training has taken this folder.
        """
        self._lock.check()
        newest = self.newest()
        number = newest.number + 1 if newest else 1
        # A name of its own: ranks of a killed training may still write to theirs.
        token = secrets.token_hex(4)
        staging = self.root / f"{_UNFINISHED}{number:05d}-step-{step}.{token}"
        staging.mkdir(parents=True)
        return staging

    def publish(self, staging: Path) -> Path:
        """Gives a whole checkpoint its name; raises OSError as `stage` does."""
        self._lock.check()
        final = self.root / staging.name.removeprefix(_UNFINISHED).partition(".")[0]
        os.rename(staging, final)
        try:
            sync(self.root)
        except OSError:
            os.rename(final, staging)
            raise
        return final

    def link_best(self, path: Path) -> None:
        """Makes the link `best` one to this checkpoint."""
        link = self.root / f"{_UNFINISHED}{BEST}.{secrets.token_hex(4)}"
        os.symlink(path.name, link)
        try:
            os.replace(link, self.root / BEST)
        except OSError:  # something else has that name
            link.unlink()
            raise

    def abandon_newer_than(self, path: Path) -> None:
        """Says that a training goes on from an older checkpoint: newer ones, perhaps damaged, are
        the first to be deleted."""
        numbers = {saved.path: saved.number for saved in self.list()}
        self._abandoned = {p for p, n in numbers.items() if n > numbers.get(path, n)}

    def set_best(self, step: int | None) -> None:
        """Says of which step the best one is of the training that goes on: the link is one to that,
        as far as it is there, and none to another."""
        there = [s for s in self.list() if s.step == step and s.path not in self._abandoned]
        if there:
            self.link_best(there[-1].path)
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


def _is_old(path: Path) -> bool:
    """Whether nobody can be writing there any more."""
    try:
        return time.time() - path.stat().st_mtime > 24 * 3600
    except OSError:
        return False


def best_of(path: str | os.PathLike) -> Path:
    """The best checkpoint of a folder that keeps it, else the path as it is."""
    best = Path(path) / BEST
    return best if best.is_dir() else Path(path)


def resolve(path: str | os.PathLike, flag: str = "--restore_checkpoint_path") -> Path:
    """A checkpoint from its path, or the newest one of a folder of checkpoints.

    Raises:
        ValueError: there is none.
    """
    given = Path(path)
    if not given.is_dir():
        raise ValueError(f"{flag} {path}: there is no such folder")
    if (given / INDEX).exists() or (given / "sparse" / "config.json").exists():
        return given
    newest = Folder(given).newest()
    if newest is None:
        raise ValueError(
            f"{flag} {path} is no checkpoint and holds none: expected {INDEX} in it, or in folders "
            "like 00001-step-100"
        )
    return newest.path


@contextlib.contextmanager
def suggest_previous(path: Path, flag: str):
    """Adds to the error of a damaged checkpoint which one can be used in its place."""
    try:
        yield
    except DamagedCheckpoint as error:
        previous = Folder(Path(path).parent).previous(path)
        way_out = "there is none before it in its folder"
        if previous is not None:
            way_out = f"the one before it is {flag} {previous}"
        raise DamagedCheckpoint(f"{error}; {way_out}") from None
