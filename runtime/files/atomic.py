"""Folders that appear under their name only when they are complete (replaced by `outputs`)."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from runtime.files.disk import sync, sync_tree


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike[str], overwrite: bool = False) -> Iterator[Path]:
    """Yields a new folder that takes the name `path` when the block ends without error.

    `path` is new, or an empty folder; with `overwrite` also a folder with content, which is removed
    after the rename. Parent folders are created.

    Raises:
        ValueError: no folder can take this name (`check_folder_name`), or it has content.
        OSError: the folder cannot be written or renamed; `path` is unchanged.
    """
    path = Path(path)
    check_folder_name(path)
    if not overwrite and path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise ValueError(
            f"{path} exists and is not an empty folder; remove it or choose another folder"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = hidden_neighbour(path)
    partial.mkdir()
    try:
        yield partial
        sync_tree(partial)
        replace_folder(path, partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def check_folder_name(path: Path) -> None:
    """Raises ValueError if no folder can be renamed to `path`."""
    if path.is_symlink():
        reason = "is a symbolic link"
    elif os.path.ismount(path):
        reason = "is a mount point"
    elif path.name in ("", "..") or Path.cwd().is_relative_to(path.resolve()):
        reason = "is or contains the current folder"
    else:
        return
    raise ValueError(f"{path} {reason}, which cannot be replaced; name a folder in it")


def replace_folder(path: Path, complete: Path) -> None:
    """Renames `complete`, on the same file system, to `path` and removes what had that name."""
    previous = None
    if path.exists():
        previous = hidden_neighbour(path)
        path.rename(previous)  # until the next rename there is nothing under the name
    try:
        complete.rename(path)
    except OSError as error:
        if previous is None:
            raise
        previous.rename(path)
        raise OSError(
            f"{path}: the new folder could not take this name ({error}); the previous one was "
            "restored"
        ) from error
    sync(path.parent)
    if previous is not None:
        shutil.rmtree(previous)


def hidden_neighbour(path: Path) -> Path:
    """Returns an unused name in the folder of `path`, so that a rename moves no bytes."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")
