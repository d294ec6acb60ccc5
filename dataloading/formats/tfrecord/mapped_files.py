"""TFRecord files, mapped into memory when they are read."""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np


class MappedFiles(Sequence):
    """The bytes of each file, uint8 `[size]`.

    A map needs a descriptor, of which a process often has 1,024 and a data set can have more
    files. So only those that were read last stay mapped; mapping one again takes microseconds, and
    its bytes are still in the page cache.

    Args:
        paths: the files; they must be there and stay as they are.
        max_mapped: files that stay mapped, 0 or more.

    Raises:
        OSError: a file cannot be read.
    """

    def __init__(self, paths: Sequence[Path], max_mapped: int):
        self._num_files = len(paths)
        states = [_state(path) for path in paths]
        # Safe where several batches are read at the same time. A map that is dropped while it is
        # read is closed after the reading.
        self._mapped = functools.lru_cache(max_mapped)(functools.partial(_map, paths, states))

    def __len__(self) -> int:
        return self._num_files

    def __getitem__(self, number: int) -> np.ndarray:
        """The bytes of a file.

        Raises:
            ValueError: the file is not what it was.
        """
        return self._mapped(number)


def _map(paths: Sequence[Path], states: Sequence[tuple], number: int) -> np.ndarray:
    path, state = paths[number], states[number]
    try:
        same = _state(path) == state
    except FileNotFoundError:
        same = False
    if not same:
        raise ValueError(
            f"{path} was changed or removed while the data set was read; read it again, and write "
            "other data into another folder"
        )
    if state[0] == 0:  # an empty file cannot be mapped
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "r").view(np.ndarray)


def _state(path: Path) -> tuple[int, int, int]:
    """Size in bytes, and what differs where the file was written or replaced."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino
