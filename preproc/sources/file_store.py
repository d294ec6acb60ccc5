"""Access to raw files while their columns are recognized; the rows are read by an engine."""

import os
from pathlib import Path

import pyarrow as pa

from preproc.sources.contents import START_BYTES, check_text, cut_file, is_text, not_parquet
from runtime.files.paths import absent

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # first bytes
# Read of each file to recognize its columns, before decompression.
_START_BYTES = 1 << 20


class FileStore:
    """Raw files of this machine; subclasses have other file systems."""

    def is_folder(self, path: str) -> bool:
        """Returns whether the path is a folder; raises ValueError where nothing has the path."""
        if not os.path.exists(path):
            raise ValueError(absent(path))
        return os.path.isdir(path)

    def files(self, folder: str) -> list[str]:
        """Returns the paths of all files in a folder and its subfolders."""
        return [
            str(Path(parent) / name)
            for parent, _, names in os.walk(folder, followlinks=True)
            for name in names
        ]

    def start(self, path: str, num_bytes: int) -> bytes:
        """Returns the first bytes of a file as it is stored."""
        try:
            with open(path, "rb") as file:
                return file.read(num_bytes)
        except FileNotFoundError:
            raise ValueError(absent(path)) from None

    def schema(self, path: str) -> pa.Schema:
        """Returns the schema of a Parquet file."""
        import pyarrow.parquet as pq

        try:
            return pq.read_schema(path)
        except (pa.ArrowException, OSError) as error:
            raise not_parquet(path, self.start(path, START_BYTES), error) from None


def text_start(store: FileStore, path: str) -> bytes:
    """Returns the decompressed start of a text file; the last line may not be whole.

    Raises:
        ValueError: the file is cut, or not of the type that the end of its name states.
    """
    start = store.start(path, _START_BYTES)
    if path.endswith((".gz", ".zst")) and start:
        if is_text(start):
            raise ValueError(
                f"{path}: expected compressed text, got plain text: rename it to "
                f"{os.path.splitext(path)[0]}"
            )
        is_whole = len(start) < _START_BYTES
        start = _unpacked(path, start, is_whole)
    check_text(path, start)
    return start


def _unpacked(path: str, start: bytes, is_whole: bool) -> bytes:
    """Returns the start of a file decompressed; is_whole: `start` is all of the file."""
    kind, content = "zstd" if path.endswith(".zst") else "gzip", b""
    try:
        with pa.CompressedInputStream(pa.BufferReader(start), kind) as stream:
            while piece := stream.read(1 << 16):
                content += piece
    except OSError as error:
        if is_whole or not content:
            if not start.startswith((_GZIP, _ZSTD)):
                check_text(path, start)
            raise cut_file(path, error) from None
    return content
