"""Checksums of the files of a version folder: `checksums.json`, which the deployment writes.

The file has a size in bytes and a CRC-32 for each path. A server verifies files when it reads them.
"""

import json
import zlib
from fnmatch import fnmatch
from pathlib import Path

FILE = "checksums.json"
_BLOCK_BYTES = 1 << 20


def write(folder: str | Path) -> None:
    """Writes the checksums of all files of a folder that is complete."""
    folder = Path(folder)
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != FILE)
    entries = {
        str(path.relative_to(folder)): [path.stat().st_size, _checksum(path)] for path in files
    }
    (folder / FILE).write_text(json.dumps(entries, indent=1) + "\n")


def check_sizes(folder: str | Path) -> None:
    """Raises ValueError for a file that is missing or has another size; reads none of them."""
    for path, (size_bytes, _) in _entries(folder).items():
        actual = path.stat().st_size if path.is_file() else "none"
        if actual != size_bytes:
            raise ValueError(
                f"{path}: expected a file of {size_bytes:,} bytes, got {actual}; deploy the "
                "checkpoint again"
            )


def verify(folder: str | Path, pattern: str) -> None:
    """Raises ValueError for a file, by a pattern of paths such as `*.py`, that was changed."""
    for path, (_, checksum) in _entries(folder).items():
        if fnmatch(str(path.relative_to(folder)), pattern) and _checksum(path) != checksum:
            raise ValueError(
                f"{path}: its checksum differs from that of the deployment, the file is damaged; "
                "deploy the checkpoint again"
            )


def _entries(folder: str | Path) -> dict[Path, list[int]]:
    """Returns sizes and checksums by path; none for a deployment of an earlier version."""
    path = Path(folder) / FILE
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text())
        return {Path(folder, name): [int(value) for value in content[name]] for name in content}
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"{path}: expected checksums, got something else ({error}); deploy the checkpoint again"
        ) from None


def _checksum(path: Path) -> int:
    checksum = 0
    try:
        with open(path, "rb") as stream:
            while block := stream.read(_BLOCK_BYTES):
                checksum = zlib.crc32(block, checksum)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    return checksum
