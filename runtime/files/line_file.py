"""File of lines that a run appends to, such as its log."""

import itertools
import os
import sys
from pathlib import Path

from runtime.files.disk import no_follow


class LineFile:
    """File to which lines are appended; each reaches the operating system when it is written.

    If a line cannot be written, as on a full disk, one warning names the file, and lines are
    missing until there is space again. A symbolic link is not followed.

    Args:
        path: the file; its folder is created.
        append: continue the file of an earlier run, which is renamed otherwise (`set_aside`).
        separator: written after a line that a full disk or a lost machine has cut.

    Attributes:
        earlier: name that the file of an earlier run has now; None without one.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, append: bool, separator: bytes = b"\n"):
        self.path, self._separator, self._has_warned = path, separator, False
        path.parent.mkdir(parents=True, exist_ok=True)
        self.earlier = None if append else set_aside(path)
        self._file = open(path, "ab", buffering=0, opener=no_follow)  # noqa: SIM115
        self._is_cut = path.is_file() and not _ends_with_newline(path)

    def write(self, line: str) -> None:
        """Appends a line, which ends with a newline character."""
        content = (self._separator if self._is_cut else b"") + line.encode()
        num_written = 0
        try:
            while num_written < len(content):
                num_written += self._file.write(content[num_written:]) or 0
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                print(
                    f"warning: {self.path} could not be written: {error.strerror}. Is the disk "
                    "full? The run continues; lines are missing in this file",
                    file=sys.stderr,
                    flush=True,
                )
        if num_written:
            self._is_cut = content[num_written - 1 : num_written] != b"\n"

    def close(self) -> None:
        """Closes the file; may be called twice."""
        self._file.close()


def set_aside(path: Path) -> Path | None:
    """Renames the file of an earlier run, `log.json` to `log-1.json`, the next one to `log-2.json`.

    Returns:
        The new name; None without a file, or for an empty one or a device.
    """
    if path.is_symlink() or not path.is_file() or not path.stat().st_size:
        return None
    names = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(1))
    earlier = next(name for name in names if not os.path.lexists(name))
    path.rename(earlier)
    return earlier


def _ends_with_newline(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 1))
        return file.read() in (b"", b"\n")
