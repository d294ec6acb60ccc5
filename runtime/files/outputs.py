"""Owner of outputs: every file and folder that a tool writes, its staging and its replacement.

    with output_file(path) as stream:                    # a file
        stream.write(content)

    with output_folder(path, TOOL, DATA_SET) as folder:  # a folder (runtime.files.staging)
        (folder / "a.bin").write_bytes(content)

Contract:

- An output has its name only when it is complete. A kill at any moment leaves the previous output
  or the new one under the name, never neither: new content takes a free name by a rename that fails
  if the name is taken, and replaces a folder by an exchange of the two names.
- A folder belongs to this toolkit if it holds `MARKER`, a file of this user that states kind, tool,
  version and files. `overwrite` replaces a folder of the same kind that holds these files alone. A
  folder with other content is refused, and only files that a marker lists are deleted.
- Whether the name is free, or may be replaced, is checked at the start and at the rename.
- New content is written to a hidden neighbour, never under a name that is derived from the user's
  and could be the user's own.
- Symbolic links are replaced or refused, never followed out of a folder. A device or a pipe is
  written to, not replaced.
"""

import contextlib
import ctypes
import errno
import json
import os
import secrets
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from runtime.files.disk import sync, write_errors_name

MARKER = ".output.json"
DATA_SET, SAVED_MODEL, SCORES = "data set", "SavedModel", "scores"

_VERSION = 1
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


# ---- Files ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def output_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yields a binary stream whose content takes the name `path` when the block ends without error.

    An existing file stays as it is after an error. A symbolic link stays; the file that it points
    to is replaced. A device or a pipe is written to. Parent folders are created.

    Raises:
        OSError: the file cannot be written; it names the file. The path is a folder, or a link that
            belongs to another user.
    """
    path = _resolve(path)
    if _is_device(path):
        with write_errors_name(path), open(path, "wb") as device:
            yield device
        return
    partial, stream = _open_partial(path)
    try:
        with write_errors_name(path):
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


def check_writable(path: str | os.PathLike[str], flag: str = "") -> None:
    """Raises the OSError with which `output_file` would fail to open; creates parent folders.

    With the flag that names the path, the error is a ValueError that names both.
    """
    try:
        file = _resolve(path)
        if not _is_device(file):
            partial, stream = _open_partial(file)
            stream.close()
            partial.unlink()
    except OSError as error:
        if not flag:
            raise
        raise ValueError(
            f"{flag}: {path} cannot be written ({error.strerror}): choose another"
        ) from None


# ---- Folders -------------------------------------------------------------------------------------


def check_folder(
    path: Path, kind: str, overwrite: bool | None = None, read: Sequence[Path] = ()
) -> None:
    """Raises ValueError unless a folder of a kind can be written to `path`.

    Args:
        path: new or an empty folder; with `overwrite` also a folder of this kind that the toolkit
            wrote and that holds nothing else.
        kind: of the content, such as `DATA_SET`.
        overwrite: of a tool with the flag `--overwrite`; None: it has none.
        read: files and folders that the tool reads, which must not lie in `path`.
    """
    _check_name(path)
    for source in read:
        if source.resolve().is_relative_to(path.resolve()):
            raise ValueError(
                f"{path}: expected a folder apart from the input, got one that is or holds "
                f"{source}, which is read; choose another output"
            )
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            raise ValueError(f"{path}: {parent} is a file, not a folder: choose another output")
    if not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir())):
        return
    if not path.is_dir():
        raise ValueError(f"{path}: expected a folder, got a file; choose another output")
    if not overwrite:
        flag = "" if overwrite is None else "replace it with --overwrite, "
        raise ValueError(
            f"{path} exists and is not an empty folder; {flag}remove it or choose another output"
        )
    _check_ours(path, kind)


def exchange(first: Path, second: Path) -> None:
    """Exchanges the names of two paths of a file system, atomically where the system can.

    A few network file systems cannot; there two renames take the place of the exchange.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
    if libc.renameat2(*arguments) == 0:
        return
    number = ctypes.get_errno()
    if number not in _UNSUPPORTED:
        raise OSError(number, os.strerror(number), str(first), None, str(second))
    previous = _hidden_neighbour(second)
    second.rename(previous)
    try:
        first.rename(second)
    except OSError:
        previous.rename(second)
        raise
    previous.rename(first)


def read_marker(folder: Path) -> dict[str, Any] | None:
    """Returns the marker of a folder that this toolkit wrote for this user; None for others."""
    path = folder / MARKER
    try:
        if not stat.S_ISREG(path.lstat().st_mode) or path.lstat().st_uid != os.geteuid():
            return None
        marker = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    is_ours = isinstance(marker, dict) and marker.get("version") == _VERSION
    return marker if is_ours and isinstance(marker.get("files"), list) else None


def write_marker(
    folder: Path, tool: str, kind: str, key: str = "", later: Sequence[str] = ()
) -> None:
    """Marks a complete folder as an output of a tool: its files, and those that users add later."""
    files = sorted({*list_files(folder), *later, MARKER})
    marker = {"kind": kind, "tool": tool, "version": _VERSION, "key": key, "files": files}
    with write_errors_name(folder / MARKER):
        (folder / MARKER).write_text(json.dumps(marker, indent=1))


def remove_folder(folder: Path) -> None:
    """Removes the files that the marker of a folder lists, and folders that are then empty."""
    listed = set((read_marker(folder) or {"files": []})["files"])
    for name in sorted(list_files(folder), key=MARKER.__eq__):  # the marker last
        if _is_listed(name, listed):
            (folder / name).unlink()
    for parent, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(parent)


def publish_folder(complete: Path, path: Path, kind: str, overwrite: bool | None) -> None:
    """Gives a complete folder, which has a marker, the name `path`; removes what it replaces.

    Raises:
        ValueError: what has taken the name since the start may not be replaced; it stays.
    """
    try:
        os.rename(complete, path)  # onto nothing or an empty folder; fails otherwise
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
        check_folder(path, kind, overwrite)
        exchange(complete, path)
        try:
            _check_ours(complete, kind)  # what had the name at the moment of the exchange
        except ValueError:
            exchange(complete, path)
            raise
        sync(path.parent)
        remove_folder(complete)
    sync(path.parent)


# ---- Details -------------------------------------------------------------------------------------


def _check_name(path: Path) -> None:
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


def _check_ours(folder: Path, kind: str) -> None:
    """Raises ValueError unless the toolkit wrote all that a folder holds, and it is of a kind."""
    marker = read_marker(folder)
    if marker is None or marker.get("kind") != kind:
        got = f"one without {MARKER} (another program's, or an earlier version's)"
        if marker is not None:
            got = f"a {marker['kind']}"
        raise ValueError(
            f"{folder}: expected a {kind} to replace that this toolkit wrote for this user, got "
            f"{got}; it stays: move it away, remove it or choose another output"
        )
    listed = set(marker["files"])
    for name in list_files(folder):
        if not _is_listed(name, listed):
            raise ValueError(
                f"{folder} holds {name}, which is not part of the {kind}, so it is not replaced; "
                "move that away or choose another output"
            )


def _is_listed(name: str, listed: Collection[str]) -> bool:
    """Returns whether a marker lists a file, or the Python file that it is compiled from."""
    path = Path(name)
    source = path.parent.parent / f"{path.name.partition('.')[0]}.py"
    is_compiled = path.parent.name == "__pycache__" and path.suffix == ".pyc"
    return name in listed or (is_compiled and str(source) in listed)


def list_files(folder: Path) -> Iterator[str]:
    """Yields the relative paths of files and links below a folder; links are not followed."""
    for parent, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        for name in sorted((*files, *links)):
            yield os.path.relpath(os.path.join(parent, name), folder)


def _resolve(path: str | os.PathLike[str]) -> Path:
    """Follows symbolic links, which a rename would replace, and creates parent folders."""
    if os.path.islink(path) and os.lstat(path).st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EPERM, "A symbolic link of another user", str(path))
    path = Path(os.path.realpath(path))
    if not path.parent.exists():  # mkdir reports a parent that is a file as "File exists"
        path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return path


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _open_partial(path: Path) -> tuple[Path, BinaryIO]:
    """Creates a hidden neighbour of a file; an error names the file."""
    partial = _hidden_neighbour(path)
    try:
        return partial, open(partial, "xb")
    except OSError as error:
        error.filename = str(path)
        raise


def _hidden_neighbour(path: Path) -> Path:
    """Returns an unused name in the folder of `path`, so that a rename moves no bytes."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")
