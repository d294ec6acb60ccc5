"""Writing of one rank's part of a checkpoint, and of its attached files."""

import itertools
import operator
import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from distributed_embeddings.box import Box
from numpy.typing import NDArray

from runtime.checkpoint import files
from runtime.checkpoint.files import Piece
from runtime.checkpoint.weight import BLOCK_BYTES, Weight
from runtime.files.disk import sync


class Writer(threading.Thread):
    """Writes pieces below `staging` in the order in which they are added, and waits for the disk.

    The caller's thread checks and copies blocks and computes checksums; this thread writes them.

    Args:
        memory_bytes: limit of the copies that are not written yet, in addition to one.
        text: returns the error message for an exception.

    Attributes:
        fault: as of `Outcome`.
        pieces: complete pieces by weight.
    """

    def __init__(self, staging: Path, memory_bytes: int, text: Callable[[Exception], str]):
        super().__init__(name="checkpoint-writer", daemon=True)
        self.fault: tuple[str, str] | None = None
        self.pieces: dict[str, list[Piece]] = {}
        self._staging, self._text = staging, text
        # File and content; None: the end. One more block is being written.
        self._blocks: queue.Queue[tuple[str, NDArray[Any]] | None] = queue.Queue(
            max(1, memory_bytes // BLOCK_BYTES - 1)
        )

    def add(self, weight: Weight, box: Box, rows_each: int, blocks: Iterable[NDArray[Any]]) -> bool:
        """Adds a piece of blocks of `rows_each` rows; waits for memory. Returns False after a
        fault."""
        header = files.npy_header(weight.shape, box, weight.dtype)
        file, checksums = files.file_of(weight.name, weight.shape, box), list[str]()
        for values in itertools.chain([np.frombuffer(header, np.uint8)], blocks):
            copied = values.copy()
            if not np.isfinite(copied).all():
                self._fail(("weight", weight.name))
            if self.fault is not None:
                return False
            checksums.append(files.checksum(copied))
            self._blocks.put((file, copied))
        piece = Piece(file, box, len(header), rows_each, tuple(checksums))
        self.pieces.setdefault(weight.name, []).append(piece)
        return True

    def close(self) -> None:
        """Nothing may be added afterwards."""
        self._blocks.put(None)

    def abandon(self) -> None:
        """Stops without a result."""
        self._fail(("error", "the save was given up"))

    def _fail(self, fault: tuple[str, str]) -> None:
        self.fault = self.fault or fault

    def run(self) -> None:
        """Writes until `close`, then waits for the disk."""
        blocks = iter(self._blocks.get, None)
        try:
            written = []
            for name, content in itertools.groupby(blocks, key=operator.itemgetter(0)):
                written.append(self._staging / name)
                written[-1].parent.mkdir(exist_ok=True)
                with open(written[-1], "xb") as stream:
                    for _, values in content:
                        stream.write(values.data)
            if self.fault is not None:
                return
            for file in written:
                sync_file(file)
            for folder in {file.parent for file in written}:
                sync(folder)
        except Exception as error:  # the other ranks would wait forever
            self._fail(("error", self._text(error)))
        finally:
            for _ in blocks:  # after an error: `add` and `close` must not wait
                continue


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
