"""Writing of one rank's part of a checkpoint."""

import os
import threading
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.checkpoint import files
from runtime.checkpoint.disk import ALIGNMENT, Disk, aligned_buffer, padded
from runtime.checkpoint.files import Piece
from runtime.checkpoint.weight import BLOCK_BYTES, Box, Weight
from runtime.files.atomic import sync


class Writer(threading.Thread):
    """Writes pieces below `staging` in the order in which they are added, and waits for the disk.

    The caller's thread copies blocks into aligned buffers, checks them and computes checksums; this
    thread writes them.

    Args:
        staging: temporary folder of the checkpoint.
        memory_bytes: limit of all buffers together; there is at least one.
        text: returns the error message for an OSError.

    Attributes:
        fault: None, ("weight", name of a weight that is not finite) or ("error", text).
        pieces: the written pieces by weight.
    """

    def __init__(self, staging: Path, memory_bytes: int, text: Callable[[OSError], str]):
        super().__init__(name="checkpoint-writer", daemon=True)
        self.fault: tuple[str, str] | None = None
        self.pieces: dict[str, list[Piece]] = {}
        self._staging, self._memory_bytes, self._text = staging, memory_bytes, text
        self._disk = Disk()
        self._buffers_bytes = 0
        self._free: list[memoryview] = []
        self._waiting: deque[Any] = deque()
        self._changed = threading.Condition()
        self._piece: tuple[str, Piece, list[str]] | None = None

    def begin(self, weight: Weight, box: Box, rows_each: int) -> bool:
        """Starts a piece; returns False after a fault."""
        self._end_piece()
        header = files.npy_header(weight.shape, box, weight.dtype)
        file = files.file_of(weight.name, weight.shape, box)
        piece = Piece(file, box, len(header), rows_each, ())
        self._piece = (weight.name, piece, [])
        row_bytes = box.columns * weight.dtype.itemsize
        # Measuring the disk is not worthwhile for small pieces.
        direct = rows_each * row_bytes % ALIGNMENT == 0 and box.rows * row_bytes >= BLOCK_BYTES
        return self._put((file, direct)) and self._copy(np.frombuffer(header, np.uint8))

    def add(self, values: NDArray[Any]) -> bool:
        """Adds the piece's next block; waits for a free buffer. Returns False after a fault."""
        if not np.isfinite(values).all():
            self._fail(("weight", self._current()[0]))
            return False
        return self._copy(values.reshape(-1).view(np.uint8))

    def close(self) -> None:
        """Completes the last piece; nothing may be added afterwards."""
        self._end_piece()
        self._put(None)

    def abandon(self) -> None:
        """Stops without a result."""
        self._fail(("error", "the save was given up"))

    def _current(self) -> tuple[str, Piece, list[str]]:
        assert self._piece is not None
        return self._piece

    def _end_piece(self) -> None:
        if self._piece is not None:
            name, piece, checksums = self._piece
            self.pieces.setdefault(name, []).append(piece._replace(checksums=tuple(checksums)))
        self._piece = None

    def _copy(self, data: NDArray[Any]) -> bool:
        """Passes bytes to the thread in a free buffer."""
        buffer = self._buffer_for(data.nbytes)
        if buffer is None:
            return False
        copied = np.frombuffer(buffer, np.uint8, data.nbytes)
        copied[:] = data
        self._current()[2].append(files.checksum(copied))
        return self._put((buffer, data.nbytes))

    def _buffer_for(self, size_bytes: int) -> memoryview | None:
        buffer_bytes = padded(max(size_bytes, BLOCK_BYTES))
        with self._changed:
            while self.fault is None:
                for i, buffer in enumerate(self._free):
                    if len(buffer) >= size_bytes:
                        return self._free.pop(i)
                room = self._buffers_bytes + buffer_bytes <= self._memory_bytes
                if room or not self._buffers_bytes:
                    self._buffers_bytes += buffer_bytes
                    return aligned_buffer(buffer_bytes)
                if self._free:  # too small
                    self._buffers_bytes -= len(self._free.pop())
                    continue
                self._changed.wait()
        return None

    def _put(self, item: Any) -> bool:
        with self._changed:
            if self.fault is None:
                self._waiting.append(item)
            self._changed.notify_all()
            return self.fault is None

    def _take(self) -> Any:
        with self._changed:
            while not self._waiting and self.fault is None:
                self._changed.wait()
            return self._waiting.popleft() if self.fault is None else None

    def _give_back(self, buffer: memoryview) -> None:
        with self._changed:
            self._free.append(buffer)
            self._changed.notify_all()

    def run(self) -> None:
        """Writes until `close`, then waits for the disk."""
        try:
            self._write()
            if self.fault is not None:
                return
            written = [self._staging / p.file for pieces in self.pieces.values() for p in pieces]
            self._free.clear()
            for file in written:
                _sync_file(file)
            for folder in {file.parent for file in written}:
                sync(folder)
        except OSError as error:
            self._fail(("error", self._text(error)))
        except Exception:  # the other ranks would wait forever
            self._fail(("error", f"a defect while saving: {traceback.format_exc()}"))

    def _fail(self, fault: tuple[str, str]) -> None:
        with self._changed:
            self.fault = self.fault or fault
            self._waiting.clear()
            self._changed.notify_all()

    def _write(self) -> None:
        item = self._take()
        while item is not None:
            name, direct = item
            path = self._staging / name
            path.parent.mkdir(exist_ok=True)
            with self._disk.open(path, direct) as file:
                while (item := self._take()) is not None and isinstance(item[0], memoryview):
                    buffer, size_bytes = item
                    file.write(buffer, size_bytes)
                    self._give_back(buffer)


def _sync_file(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        if hasattr(os, "posix_fadvise"):  # the file need not stay in the page cache
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
