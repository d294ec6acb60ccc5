"""Raw files of any data set: gzip or plain, with or without a byte order mark."""

import contextlib
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def is_gzip(path: Path) -> bool:
    """True if the file starts as gzip data does, whatever its name is."""
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


@contextlib.contextmanager
def gzip_errors(source: Path) -> Iterator[None]:
    """Raises ValueError in place of errors of gzip data that cannot be unpacked."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{source}: the gzip data is cut off or damaged ({error}); get the file again"
        ) from error


def open_unpacked(path: Path) -> BinaryIO:
    """Opens a file to read its content, unpacked where it is gzip data."""
    return gzip.open(path) if is_gzip(path) else open(path, "rb")
