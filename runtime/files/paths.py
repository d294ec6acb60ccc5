"""Messages about paths that do not exist, or that the process may not use."""

import contextlib
import difflib
import os
import re

_PATTERN = re.compile(r"[*?\[]")
_MOST_NAMES = 5


def absent(path: str | os.PathLike[str], kind: str = "") -> str:
    """Returns the message about a path that does not exist, with names of its folder.

    Args:
        kind: what it should be, `file` or `folder`; empty: a file if its name has a dot, else
            either.
    """
    path = os.fspath(path)
    missing = path.rstrip("/") or path
    while (folder := os.path.dirname(missing)) and not os.path.lexists(folder):
        missing = folder
    if os.path.islink(missing):
        target = os.readlink(missing)
        return (
            f"{path}: {missing} is a symbolic link to {target}, which does not exist: restore "
            f"{target}, or name the file itself"
        )
    folder, name = os.path.split(missing)
    if folder and not os.path.isdir(folder):
        return f"{path}: {folder} is a file, not a folder: give {folder} alone"
    names, is_file = _names(folder), missing == path
    if is_file and _PATTERN.search(name):
        return f"{path}: no file has a name of this pattern; {_content(folder, names)}"
    kind = kind or ("file" if "." in name else "file or folder")
    problem = f"the {kind} does not exist" if is_file else f"the folder {missing} does not exist"
    if close := difflib.get_close_matches(name, names, n=1, cutoff=0.6):
        similar = os.path.join(folder, *close)
        whole = similar + path[len(missing) :]
        similar = whole if os.path.lexists(whole) else similar
        return f"{path}: {problem}; did you mean '{similar}'?"
    return f"{path}: {problem}; {_content(folder, names)}"


def error_text(error: BaseException) -> str:
    """Returns the message of an error; of a lack of permission, the file or folder that lacks it,
    and what helps."""
    if not isinstance(error, PermissionError) or not isinstance(error.filename, str):
        return str(error)
    path = os.path.abspath(error.filename)
    while (folder := os.path.dirname(path)) != path and not os.path.lexists(path):
        path = folder
    while folder != os.path.dirname(folder):
        if not os.access(folder, os.X_OK, effective_ids=True):
            path = folder
        folder = os.path.dirname(folder)
    return (
        f"{path}: user {os.geteuid()} has no permission to read or write it: change its owner or "
        "mode (chown, chmod), or give another path"
    )


def _names(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(name for name in os.listdir(folder or ".") if not name.startswith("."))
    return []


def _content(folder: str, names: list[str]) -> str:
    where = folder if os.path.isabs(folder) else os.path.join(os.getcwd(), folder).rstrip("/")
    more = f", ... ({len(names)} in all)" if len(names) > _MOST_NAMES else ""
    return f"{where} has {', '.join(names[:_MOST_NAMES]) or 'no files'}{more}"
