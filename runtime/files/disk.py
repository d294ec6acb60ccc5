"""Writes that are on the disk, errors that name the file, and locks."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


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


def no_follow(path: str, flags: int) -> int:
    """Opener of `open` that refuses a symbolic link, which another user may have made."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def allocate(path: Path, size_bytes: int) -> None:
    """Gives a file its final size, with space on the disk for all of it; content is kept.

    A file that is mapped into memory needs that: a full disk would end the process by SIGBUS.
    """
    with write_errors_name(path), open(path, "ab") as file:
        file.truncate(size_bytes)
        if size_bytes:
            os.posix_fallocate(file.fileno(), 0, size_bytes)


class FileLock:
    """Exclusive advisory lock (flock) on a file or an existing folder.

    The system releases it when the process ends. As a context manager it waits for the lock. A file
    that does not exist is created; a symbolic link is an OSError.
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
            if self.path.is_dir():
                descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            else:
                descriptor = no_follow(os.fspath(self.path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
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
