"""What raw files of any data set have in common: gzip or plain, with a byte order mark or not."""

from pathlib import Path

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def is_gzip(path: Path) -> bool:
    """True if the file starts as gzip data does, whatever its name is."""
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


def damaged_gzip(source: Path, error: Exception) -> ValueError:
    """What to say of gzip data that cannot be unpacked."""
    return ValueError(
        f"{source}: the gzip data is cut off or damaged ({error}); get the file again"
    )
