"""Atomic output: files and folders that appear under their name only when they are complete.

    with atomic_file(path) as stream:        # path is unchanged, or new and complete
        stream.write(content)

    with atomic_folder(path) as folder:      # the same for a folder with its files
        (folder / "a.bin").write_bytes(content)

Both write to a hidden neighbour `.<name>.<random>`, wait for the disk (fsync) and rename it. After
an error the neighbour is removed; after a kill it is all that is left.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yields a binary stream whose content takes the name `path` when the block ends without error.

    An existing file stays as it is after an error. A symbolic link stays; the file that it points
    to is replaced. Parent folders are created.
    """
    path = _resolve(path)
    partial = hidden_neighbour(path)
    stream = open(partial, "xb")  # noqa: SIM115 closed before the rename, or below
    try:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
        stream.close()
        os.replace(partial, path)
        sync(path.parent)
    finally:
        with contextlib.suppress(OSError, ValueError):  # a full disk, which was reported before
            stream.close()
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raises the OSError with which `atomic_file` would fail to open; creates parent folders."""
    path = _resolve(path)
    partial = hidden_neighbour(path)
    partial.touch(exist_ok=False)
    partial.unlink()


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


def _resolve(path: str | os.PathLike[str]) -> Path:
    """Follows symbolic links, which a rename would replace, and creates parent folders."""
    path = Path(os.path.realpath(path))
    if not path.parent.exists():  # mkdir reports a parent that is a file as "File exists"
        path.parent.mkdir(parents=True, exist_ok=True)
    return path


def hidden_neighbour(path: Path) -> Path:
    """Returns an unused name in the folder of `path`, so that a rename moves no bytes."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")


def sync(path: Path) -> None:
    """Waits until a file's content, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not offered by the file system
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Waits until a folder and everything below it are on the disk."""
    for path in (*folder.rglob("*"), folder):
        if not path.is_symlink():
            with write_errors_name(path):
                sync(path)


def make_durable_folder(folder: Path) -> None:
    """Creates a folder and its parents and waits until their names are on the disk."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync(path.parent)


@contextlib.contextmanager
def write_errors_name(path: Path) -> Iterator[None]:
    """Turns write errors of Python, NumPy and TensorFlow into OSErrors that name `path`."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        reason = error.strerror or error
    except Exception as error:
        # Recognized by module name: callers without TensorFlow must not import it here.
        if not type(error).__module__.startswith("tensorflow."):
            raise
        reason = str(error).removeprefix(f"{path}; ")
    else:
        return
    raise OSError(
        f"{path} could not be written: {reason}. Is the disk full, or the file too large?"
    )


class FileLock:
    """Exclusive advisory lock (flock) on a file or an existing folder.

    The system releases it when the process ends. As a context manager it waits for the lock. A file
    that does not exist is created.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        return self._descriptor is not None

    def acquire(self, blocking: bool = True) -> bool:
        """Acquires the lock; `blocking` waits until other processes release it.

        Returns:
            False if another process has it and `blocking` is false. True without a lock on a file
            system that has no locks.
        """
        while True:
            flags = os.O_RDONLY if self.path.is_dir() else os.O_RDWR | os.O_CREAT
            descriptor = os.open(self.path, flags | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
                if _is_file(self.path, descriptor):
                    self._descriptor = descriptor
                    return True
                # Its holder removed the file: lock the one that has its name.
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                    return True
                raise
            finally:
                if self._descriptor is None:
                    os.close(descriptor)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def __enter__(self) -> "FileLock":
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def _is_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
