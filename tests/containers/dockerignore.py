"""Files of the context that go into an image, by the rules of .dockerignore.

A pattern is matched against a path and against each folder above it; `*` stays within a folder,
`**` is any number of folders, and of several patterns that match, the last decides (`!` takes
back).
"""

import functools
import os
import re
from pathlib import Path, PurePosixPath


@functools.cache
def _expression(pattern: str) -> re.Pattern:
    parts = []
    for part in PurePosixPath(pattern.strip("/")).parts:
        if part == "**":
            parts.append("(?:[^/]+/)*")
        else:
            piece = re.escape(part).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
            parts.append(piece + "/")
    return re.compile("".join(parts).removesuffix("/"))


class Ignored:
    """The rules of a .dockerignore file's text."""

    def __init__(self, text: str):
        lines = [line.strip() for line in text.splitlines()]
        self.patterns = [line for line in lines if line and not line.startswith("#")]

    def __call__(self, path: str) -> bool:
        """Returns whether a path, relative to the context, stays out."""
        parts = PurePosixPath(path).parts
        paths = ["/".join(parts[: n + 1]) for n in range(len(parts))]
        ignored = False
        for pattern in self.patterns:
            expression = _expression(pattern.removeprefix("!"))
            if any(expression.fullmatch(path) for path in paths):
                ignored = not pattern.startswith("!")
        return ignored


def context(root: Path) -> list[str]:
    """All files and links below `root` that go into an image, relative to it, sorted."""
    ignored = Ignored((root / ".dockerignore").read_text())
    paths = []
    for folder, folders, files in os.walk(root):
        below = PurePosixPath(os.path.relpath(folder, root))
        # No pattern takes back what lies in an ignored folder (a test sees to it): none is entered.
        folders[:] = [name for name in folders if not ignored(str(below / name))]
        links = [name for name in folders if Path(folder, name).is_symlink()]
        paths += [str(below / name) for name in files + links if not ignored(str(below / name))]
    return sorted(paths)
