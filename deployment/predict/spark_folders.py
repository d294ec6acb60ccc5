"""Input and output of a scoring on any file system that Spark knows; no PySpark here."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import urlsplit

# Files and folders of Spark's committers; all others are not ours to replace.
_PART_FILE = re.compile(r"part-.*|_SUCCESS|\..*\.crc")
_PART_FOLDER = re.compile(r"_temporary.*")
_PATTERN_CHARACTERS = "*?[]{}\\"


class Entry(NamedTuple):
    """File or folder in an output."""

    name: str
    is_folder: bool


class SparkPath:
    """Path of `--input` or `--output`, on its file system.

    Args:
        spark: the session.
        path: as on the command line, with or without a scheme.
    """

    def __init__(self, spark: Any, path: str):
        context = spark.sparkContext
        java_path = context._jvm.org.apache.hadoop.fs.Path(path)
        self._files = java_path.getFileSystem(context._jsc.hadoopConfiguration())
        self._path = self._files.makeQualified(java_path)
        self.text = path

    def exists(self) -> bool:
        return self._files.exists(self._path)

    def pattern(self) -> str:
        """Returns the pattern that Spark reads: of a path that exists, that path alone."""
        return escaped(self.text) if self.exists() else self.text

    def addresses(self) -> list[str]:
        """Returns the addresses (URIs) that the path stands for: several for a pattern."""
        if self.exists():
            return [self._path.toString()]
        statuses = self._files.globStatus(self._path)
        return [status.getPath().toString() for status in statuses or ()]

    def address(self) -> str:
        return self._path.toString()

    def is_file(self) -> bool:
        return self.exists() and self._files.getFileStatus(self._path).isFile()

    def entries(self) -> list[Entry]:
        """Returns what a folder holds; nothing if it does not exist."""
        if not self.exists():
            return []
        statuses = self._files.listStatus(self._path)
        return [Entry(status.getPath().getName(), status.isDirectory()) for status in statuses]

    def data_files(self) -> Iterator[Any]:
        """Yields the files with data as Hadoop's paths."""
        statuses = [self._files.getFileStatus(self._path)] if self.exists() else []
        for status in statuses or self._files.globStatus(self._path) or ():
            files = self._files.listFiles(status.getPath(), True)
            while files.hasNext():
                path = files.next().getPath()
                if not path.getName().startswith(("_", ".")):
                    yield path

    def remove_if_empty(self) -> None:
        if self.exists() and not self.entries():
            self._files.delete(self._path, False)


def escaped(path: str) -> str:
    """Returns a path in which Spark takes no character for one of a pattern."""
    return "".join("\\" + c if c in _PATTERN_CHARACTERS else c for c in path)


def check_apart(output: str, inputs: Sequence[str]) -> None:
    """Raises ValueError if an output (URI) is, holds or lies in one of the inputs (URIs)."""
    for address in inputs:
        ours, theirs = _parts(output), _parts(address)
        if ours[0] != theirs[0]:
            continue
        if ours[1].is_relative_to(theirs[1]) or theirs[1].is_relative_to(ours[1]):
            raise ValueError(
                f"--output {output}: expected a folder apart from --input, got one that is, holds "
                f"or lies in {address}, which is read; choose a folder next to it"
            )


def _parts(address: str) -> tuple[tuple[str, str], PurePosixPath]:
    """Returns file system and path of a URI; links of the local file system are followed."""
    # Not `urlsplit` of the whole: Hadoop writes `?` and `#` of a path as they are.
    scheme, _, rest = address.partition(":")
    authority, path = "", rest
    if rest.startswith("//"):
        authority = urlsplit(f"//{rest[2:].partition('/')[0]}").netloc
        path = "/" + rest[2:].partition("/")[2]
    if scheme == "file":
        path = os.path.realpath(path)
    return (scheme, authority), PurePosixPath(path)


def check_replaceable(
    output: str, is_file: bool, entries: Sequence[Entry], overwrite: bool
) -> None:
    """Raises ValueError unless a scoring may write to a path: a new or empty folder, or, with
    `overwrite`, an earlier output."""
    if is_file:
        raise ValueError(
            f"--output {output}: expected a folder, got a file, which --overwrite does not "
            "replace; choose another path"
        )
    if entries and not overwrite:
        raise ValueError(
            f"--output {output}: expected a path that does not exist, got a folder with files; "
            "replace it with --overwrite, or choose another path"
        )
    for name, is_folder in entries:
        if not (_PART_FOLDER if is_folder else _PART_FILE).fullmatch(name):
            raise ValueError(
                f"--output {output}: expected an earlier output of Spark, with part files alone, "
                f"got a folder that holds {name}, which --overwrite does not replace; choose "
                "another path"
            )
