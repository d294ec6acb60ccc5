"""Aligned buffers, and files written without the page cache."""

import contextlib
import errno
import fcntl
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

# Direct writing requires it of offsets, sizes and addresses.
ALIGNMENT = 4096

# For a slower disk the page cache, which costs one core-second per 1 to 2 GB, is faster.
DIRECT_BYTES_PER_S = 1e9
_PROBE_BYTES = 64 * 2**20


def padded(size_bytes: int) -> int:
    """Returns the next multiple of ALIGNMENT."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def aligned_buffer(size_bytes: int) -> memoryview:
    """Returns `padded(size_bytes)` bytes at the start of a page, allocated on first use."""
    return memoryview(mmap.mmap(-1, padded(max(1, size_bytes))))


class Disk:
    """Writes files of one checkpoint, directly as long as the disk is fast enough.

    The page cache copies every byte once more, which takes more than a core-second for 2 GiB. It is
    used for slower disks, and for file systems without direct writing.
    """

    def __init__(self) -> None:
        self._direct = hasattr(os, "O_DIRECT")
        self._written, self._spent_s = 0, 0.0

    @contextlib.contextmanager
    def open(self, path: Path, aligned: bool) -> Iterator["File"]:
        """Creates a file.

        Args:
            path: in an existing folder.
            aligned: all but the last write will have a multiple of ALIGNMENT bytes.
        """
        file = File(self, path, aligned and self._direct)
        try:
            yield file
            file.finish()
        finally:
            file.close()

    def is_fast(self, written: int, seconds: float) -> bool:
        """Records that writing took `seconds`; returns whether to continue writing directly."""
        self._written += written
        self._spent_s += seconds
        if self._written >= _PROBE_BYTES and self._written < DIRECT_BYTES_PER_S * self._spent_s:
            self._direct = False
        return self._direct


class File:
    """A file that is written from its beginning; created by `Disk.open`."""

    def __init__(self, disk: Disk, path: Path, direct: bool):
        self._disk, self._size = disk, 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        if direct:
            try:
                self._descriptor = os.open(path, flags | os.O_DIRECT, 0o666)
            except OSError:  # not offered by the file system
                path.unlink(missing_ok=True)
                direct = False
        if not direct:
            self._descriptor = os.open(path, flags, 0o666)
        self._direct = direct

    def write(self, buffer: memoryview, size_bytes: int) -> None:
        """Appends the first `size_bytes` of an aligned buffer; padding after them may be read."""
        if not self._direct:
            self._write_all(buffer[:size_bytes])
        else:
            started = time.perf_counter()
            self._write_all(buffer[: padded(size_bytes)])
            if not self._disk.is_fast(size_bytes, time.perf_counter() - started):
                self._write_indirectly()
        self._size += size_bytes

    def finish(self) -> None:
        """Removes the padding."""
        os.ftruncate(self._descriptor, self._size)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)

    def _write_all(self, data: memoryview) -> None:
        while len(data):
            try:
                data = data[os.write(self._descriptor, data) :]
            except OSError as error:
                if not (self._direct and error.errno == errno.EINVAL):
                    raise
                self._write_indirectly()  # an unknown alignment

    def _write_indirectly(self) -> None:
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
        self._direct = False
