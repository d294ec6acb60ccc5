"""Files that are written without the page cache where the disk is fast enough."""

import errno
import fcntl
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Direct writing requires it of offsets, sizes and addresses.
ALIGNMENT = 4096

# For a slower disk the page cache, which costs one core-second per 1 to 2 GB, is faster.
DIRECT_BYTES_PER_S = 1e9
_PROBE_BYTES = 64 * 2**20


def padded(size_bytes: int) -> int:
    """Returns the next multiple of ALIGNMENT."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def aligned_copy(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Returns the bytes of an array at the start of a page, and any bytes up to the next one."""
    memory = np.empty(padded(values.nbytes) + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    copied = memory[start : start + padded(values.nbytes)]
    copied[: values.nbytes] = values.reshape(-1).view(np.uint8)
    return copied


class Disk:
    """Writes files of one checkpoint, directly as long as the disk is fast enough.

    The page cache copies every byte once more, which takes more than a core-second for 2 GiB. It is
    used for slower disks, and for file systems without direct writing.
    """

    def __init__(self) -> None:
        self._direct = True
        self._written, self._spent_s = 0, 0.0

    def write(
        self, path: Path, blocks: Iterable[tuple[NDArray[np.uint8], int]], aligned: bool
    ) -> None:
        """Creates a file in an existing folder.

        Args:
            blocks: each an `aligned_copy` and its number of bytes without padding.
            aligned: all but the last block have a multiple of ALIGNMENT bytes.
        """
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            direct = aligned and self._direct and _set_direct(descriptor, True)
            total = 0
            for copied, size_bytes in blocks:
                start_s = time.perf_counter()
                left = copied[: padded(size_bytes) if direct else size_bytes].data
                while left:
                    try:
                        left = left[os.write(descriptor, left) :]
                    except OSError as error:
                        if not (direct and error.errno == errno.EINVAL):
                            raise
                        direct = _set_direct(descriptor, False)  # an unknown alignment
                total += size_bytes
                if direct and not self._is_fast(size_bytes, time.perf_counter() - start_s):
                    direct = _set_direct(descriptor, False)
            os.ftruncate(descriptor, total)  # without the padding
        finally:
            os.close(descriptor)

    def _is_fast(self, written: int, seconds: float) -> bool:
        """Records that writing took `seconds`; returns whether to continue writing directly."""
        self._written += written
        self._spent_s += seconds
        probed = self._written >= _PROBE_BYTES
        self._direct = not probed or self._written >= DIRECT_BYTES_PER_S * self._spent_s
        return self._direct


def _set_direct(descriptor: int, direct: bool) -> bool:
    """Returns whether the file is written directly from now on."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_DIRECT
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT if direct else flags)
    except OSError:  # not offered by the file system
        return False
    return direct
