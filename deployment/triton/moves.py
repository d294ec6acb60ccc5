"""Models take their names in a repository together, or give them back, also after a kill.

The hidden folder of a deployment, beside its repository:

    claim.json       says which repository; locked as long as the deployment runs
    NAME/            each new model, until it has its name
    replaced/NAME/   each model that was taken away for them
    moves.json       who moves; there from before the first rename until all models have their
                     names, or are back
"""

import contextlib
import fcntl
import glob
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from runtime.files.atomic import write_errors_name

_CLAIM, _MOVES, _REPLACED = "claim.json", "moves.json", "replaced"


@contextlib.contextmanager
def claimed(folder: Path, repository: Path) -> Iterator[None]:
    """Says whose the folder is; the lock goes with this process, however it ends.

    Behind the block the folder is removed, unless it has models that could not be moved back.
    """
    try:
        with open(folder / _CLAIM, "x") as claim:
            fcntl.flock(claim, fcntl.LOCK_EX)
            claim.write(json.dumps({"repository": repository.name}))
            claim.flush()
            yield
    finally:
        _remove(folder)


def clear_up(repository: Path, say: Callable[[str], None]) -> None:
    """Removes what killed deployments left beside a repository; what they took away comes back.

    Args:
      repository: its folder; need not exist.
      say: gets a sentence for each of them.

    Raises:
      OSError: models could not be brought back; it says where they are.
    """
    for folder in sorted(repository.parent.glob(f".{glob.escape(repository.name)}.*")):
        with contextlib.ExitStack() as opened:
            try:
                claim = opened.enter_context(open(folder / _CLAIM, "r+"))
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
                of = json.load(claim)
            except (OSError, ValueError):
                continue  # is at work, or none of ours
            if of != {"repository": repository.name}:
                continue  # of one whose name is longer
            back = move_back(folder, repository)
            _remove(folder)
            moved = f"; {' '.join(back)} is what was there before" if back else ""
            say(f"{repository}: a deployment was killed, {folder} is removed{moved}")


def move(folder: Path, repository: Path, models: Sequence[str], replaced: Sequence[str]) -> None:
    """Takes away what is replaced and brings in the models, or leaves all as it was.

    Raises:
      OSError: a rename failed; what was there before is there again, or the message says where.
    """
    (folder / _REPLACED).mkdir()
    with write_errors_name(folder / _MOVES):
        (folder / _MOVES).write_text(json.dumps({"models": models, "replaced": replaced}))
    _sync_all(folder)
    try:
        for source, target in _moves(folder, repository, models, replaced):
            source.rename(target)
        _sync(repository)
        _sync(repository.parent)
        (folder / _MOVES).unlink()
    except BaseException as error:
        move_back(folder, repository)
        if not isinstance(error, OSError):
            raise
        raise OSError(
            f"{repository}: the models could not take their names ({error}); what was there before "
            "is there again"
        ) from error


def move_back(folder: Path, repository: Path) -> list[str]:
    """Undoes the renames of a deployment that has not done all of them.

    Returns:
      Names of the models that are back in the repository.

    Raises:
      OSError: some are not; it says where they are. Nothing is lost.
    """
    try:
        named = json.loads((folder / _MOVES).read_text())
    except (FileNotFoundError, ValueError):
        return []  # all are done, or none was begun
    back, failed = [], None
    for source, target in reversed(_moves(folder, repository, **named)):
        if os.path.lexists(source) or not os.path.lexists(target):
            continue  # it was not its turn yet
        try:
            target.rename(source)
        except OSError as error:
            failed = error
        else:
            back += [source.name] * (source.parent == repository)
    if left := sorted(os.listdir(folder / _REPLACED)):
        raise OSError(
            f"{repository}: a deployment took away {' '.join(left)} and could not bring it back "
            f"({failed or 'something else has the name'}): it is in {folder / _REPLACED}; deploy "
            "again, or move it by hand"
        )
    _sync(repository)
    (folder / _MOVES).unlink()
    return back


def _moves(
    folder: Path, repository: Path, models: Sequence[str], replaced: Sequence[str]
) -> list[tuple[Path, Path]]:
    """(source, target) of each rename, in their order."""
    away = [(repository / name, folder / _REPLACED / name) for name in replaced]
    return away + [(folder / name, repository / name) for name in models]


def _remove(folder: Path) -> None:
    """Removes a deployment's folder, unless the models that it took away are there still."""
    if not (folder / _MOVES).exists():
        shutil.rmtree(folder, ignore_errors=True)


def _sync_all(folder: Path) -> None:
    """Waits until all below a folder is on the disk: a name must not stay without its content."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with write_errors_name(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
