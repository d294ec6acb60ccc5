"""Raw files of any data set: gzip or plain, with or without a byte order mark."""

from pathlib import Path

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def is_gzip(path: Path) -> bool:
    """True if the file starts as gzip data does, whatever its name is."""
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


def damaged_gzip(source: Path, error: Exception) -> ValueError:
    """Returns the error of gzip data that cannot be unpacked."""
    return ValueError(
        f"{source}: the gzip data is cut off or damaged ({error}); get the file again"
    )
