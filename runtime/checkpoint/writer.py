"""Writing of one rank's part of a checkpoint, and of its attached files."""

import itertools
import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from distributed_embeddings.box import Box
from numpy.typing import NDArray

from runtime.checkpoint import files
from runtime.checkpoint.disk import ALIGNMENT, Disk, aligned_copy
from runtime.checkpoint.files import Piece
from runtime.checkpoint.weight import BLOCK_BYTES, Weight
from runtime.files.disk import sync


class _Block(NamedTuple):
    """A copied block of a file; fields as of `Disk.write`."""

    file: str
    copied: NDArray[np.uint8]
    size_bytes: int
    is_aligned: bool


class Writer(threading.Thread):
    """Writes pieces below `staging` in the order in which they are added, and waits for the disk.

    The caller's thread checks and copies blocks and computes checksums; this thread writes them.

    Args:
        memory_bytes: limit of the copies that are not written yet; there is at least one.
        text: returns the error message for an exception.
    """

    def __init__(self, staging: Path, memory_bytes: int, text: Callable[[Exception], str]):
        super().__init__(name="checkpoint-writer", daemon=True)
        self.fault: tuple[str, str] | None = None  # as of `Outcome`
        self.pieces: dict[str, list[Piece]] = {}
        self._staging, self._memory_bytes, self._text = staging, memory_bytes, text
        self._weight, self._is_aligned = "", False
        self._piece: Piece | None = None
        self._checksums: list[str] = []
        self._changed = threading.Condition()
        self._blocks: deque[_Block | None] = deque()  # None: the end
        self._held_bytes = 0

    def begin(self, weight: Weight, box: Box, rows_each: int) -> bool:
        """Starts a piece; returns False after a fault."""
        self._end_piece()
        header = files.npy_header(weight.shape, box, weight.dtype)
        file = files.file_of(weight.name, weight.shape, box)
        self._weight, self._checksums = weight.name, []
        row_bytes = box.columns * weight.dtype.itemsize
        # Measuring the disk is not worthwhile for small pieces.
        is_large = box.rows * row_bytes >= BLOCK_BYTES
        self._is_aligned = is_large and rows_each * row_bytes % ALIGNMENT == 0
        self._piece = Piece(file, box, len(header), rows_each, ())
        return self._copy(np.frombuffer(header, np.uint8))

    def add(self, values: NDArray[Any]) -> bool:
        """Adds the piece's next block; waits for memory. Returns False after a fault."""
        if not np.isfinite(values).all():
            self._fail(("weight", self._weight))
            return False
        return self._copy(values)

    def close(self) -> None:
        """Completes the last piece; nothing may be added afterwards."""
        self._end_piece()
        with self._changed:
            self._blocks.append(None)
            self._changed.notify_all()

    def abandon(self) -> None:
        """Stops without a result."""
        self._fail(("error", "the save was given up"))

    def _end_piece(self) -> None:
        if self._piece is not None:
            piece = self._piece._replace(checksums=tuple(self._checksums))
            self.pieces.setdefault(self._weight, []).append(piece)
        self._piece = None

    def _copy(self, values: NDArray[Any]) -> bool:
        """Passes a copy to the thread as soon as there is memory for it."""
        assert self._piece is not None
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self.fault is not None
                    or not self._held_bytes
                    or self._held_bytes + values.nbytes <= self._memory_bytes
                )
            )
            self._held_bytes += values.nbytes
        copied = aligned_copy(values)
        self._checksums.append(files.checksum(copied[: values.nbytes]))
        with self._changed:
            self._blocks.append(_Block(self._piece.file, copied, values.nbytes, self._is_aligned))
            self._changed.notify_all()
            return self.fault is None

    def _next_block(self) -> _Block | None:
        with self._changed:
            self._changed.wait_for(lambda: self._blocks or self.fault is not None)
            return self._blocks.popleft() if self.fault is None else None

    def _fail(self, fault: tuple[str, str]) -> None:
        with self._changed:
            self.fault = self.fault or fault
            self._blocks.clear()
            self._changed.notify_all()

    def run(self) -> None:
        """Writes until `close`, then waits for the disk."""
        try:
            self._write()
            if self.fault is not None:
                return
            written = [self._staging / p.file for pieces in self.pieces.values() for p in pieces]
            for file in written:
                sync_file(file)
            for folder in {file.parent for file in written}:
                sync(folder)
        except Exception as error:  # the other ranks would wait forever
            self._fail(("error", self._text(error)))

    def _write(self) -> None:
        disk, blocks = Disk(), iter(self._next_block, None)
        for (name, is_aligned), group in itertools.groupby(
            blocks, lambda block: (block.file, block.is_aligned)
        ):
            path = self._staging / name
            path.parent.mkdir(exist_ok=True)
            disk.write(path, self._released(group), is_aligned)

    def _released(self, blocks: Iterable[_Block]) -> Iterator[tuple[NDArray[np.uint8], int]]:
        """Yields blocks, and makes room for others when they are written."""
        for block in blocks:
            yield block.copied, block.size_bytes
            with self._changed:
                self._held_bytes -= block.size_bytes
                self._changed.notify_all()


class AttachedFiles:
    """Files that the checkpoints of a training have in addition to weights, written by rank 0.

    Args:
        sources: name in the checkpoint -> its content, or the folder whose files it has.
    """

    def __init__(self, sources: Mapping[str, bytes | Path] | None = None):
        self._sources = sources or {}
        self._latest: tuple[Path, dict[str, str]] | None = None  # checkpoint, its checksums
        self.note = ""  # on a source that is gone, which must not cost the weights

    def write(self, staging: Path) -> dict[str, str]:
        """Writes the files below `staging`; returns path in it -> checksum.

        Files of a folder, which may be gigabytes, are hard links to those of the latest checkpoint,
        else of the source; where the file system has no hard links between these, copies.

        Raises:
            OSError: a file cannot be read or written.
        """
        checksums = self._link_latest(staging) or self._write_sources(staging)
        for name in checksums:
            sync_file(staging / name)
        folders = {folder for name in checksums for folder in (staging / name).parents}
        for folder in folders:
            if folder.is_relative_to(staging):
                sync(folder)
        return checksums

    def published(self, path: Path, checksums: dict[str, str]) -> None:
        """Records the checkpoint to which the next ones link."""
        self._latest = path, checksums

    def _link_latest(self, staging: Path) -> dict[str, str]:
        if self._latest is None:
            return {}
        path, checksums = self._latest
        if not all((path / name).is_file() for name in checksums):
            return {}
        for name in checksums:
            _link(path / name, staging / name)
        return checksums

    def _write_sources(self, staging: Path) -> dict[str, str]:
        checksums = {}
        for name, source in self._sources.items():
            if isinstance(source, bytes):
                with open(staging / name, "wb") as stream:
                    stream.write(source)
                checksums[name] = files.checksum(source)
                continue
            if not source.is_dir():
                self.note = f"{source} is gone: the checkpoint is without it"
            for file in sorted(source.rglob("*")):
                if file.is_file():
                    path = f"{name}/{file.relative_to(source).as_posix()}"
                    _link(file, staging / path)
                    checksums[path] = files.checksum_of(staging / path)
        return checksums


def _link(source: Path, target: Path) -> None:
    """Makes a hard link, or else a copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    source = source.resolve()
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def sync_file(file: Path) -> None:
    """Waits until a file is on the disk, and lets it leave the page cache."""
    with open(file, "rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
