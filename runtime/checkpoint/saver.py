"""Writing checkpoints: copied out while training waits, written and made durable behind it."""

import contextlib
import os
import shutil
import threading
import time
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from runtime.checkpoint import files
from runtime.checkpoint.disk import ALIGNMENT, Disk, aligned_buffer, padded
from runtime.checkpoint.files import Index, Piece, WeightEntry
from runtime.checkpoint.folder import Folder
from runtime.checkpoint.weight import BLOCK_BYTES, Box, NonFiniteWeight, Weight, matrix_of
from runtime.distributed import AgreedError, World

# What was copied out and is not written yet, at most; beside it there is one block.
MEMORY_BYTES = 128 * 2**20


class Outcome(NamedTuple):
    """What became of a save; the same on every rank but for the times.

    Attributes:
      step: of the training.
      path: the checkpoint; None after a fault.
      size_bytes: of its weights.
      wait_s: how long this rank's training waited.
      total_s: from its beginning until it was on the disk.
      fault: None, or ("weight", name of a weight that is not finite), or ("error", text).
    """

    step: int
    path: Path | None
    size_bytes: int
    wait_s: float
    total_s: float
    fault: tuple[str, str] | None

    def raise_fault(self) -> None:
        """Raises NonFiniteWeight or AgreedError, if it failed."""
        if self.fault is not None:
            kind, text = self.fault
            raise NonFiniteWeight(text) if kind == "weight" else AgreedError(text)


class _Begun(NamedTuple):
    """A save that is under way."""

    step: int
    staging: Path
    weights: Sequence[Weight]
    description: Mapping[str, Any]
    state: Mapping[str, Any]
    started: float
    copied: float


class Saver:
    """Saves checkpoints of one training, one at a time.

    `save` copies this rank's boxes out, block by block, to a thread that writes them; it returns
    when the last block is in the thread's hands, and the model may change again. What waits there
    is bounded by `memory_bytes`: a larger share keeps `save` as long as writing it takes (to a fast
    disk, or to the page cache), a smaller one as long as copying it. `advance` or `wait` then bring
    what all ranks wrote under one name.

    All ranks call `save`, `advance` and `wait` together.

    Args:
      folder: where to; rank 0 must have taken it.
      world: the ranks; all see the folder.
      keep: newest checkpoints to keep.
      memory_bytes: bound of the memory for blocks that are not written yet.
    """

    def __init__(
        self,
        folder: Folder,
        world: World = World(),
        keep: int = 2,
        memory_bytes: int = MEMORY_BYTES,
    ):
        self._folder, self._world, self._keep = folder, world, keep
        self._memory_bytes = memory_bytes
        self._job: _Writing | _Publishing | None = None
        self._begun: _Begun | None = None
        self._outcomes: deque[Outcome] = deque()

    @property
    def under_way(self) -> bool:
        """Whether a save has begun and its outcome is not known; the same on every rank."""
        return self._job is not None

    @property
    def busy(self) -> bool:
        """Whether this rank's part of what is under way still runs."""
        return self._job is not None and self._job.is_alive()

    def outcomes(self) -> list[Outcome]:
        """Of the saves that ended since the last call; the same on every rank."""
        found = list(self._outcomes)
        self._outcomes.clear()
        return found

    def save(
        self,
        step: int,
        weights: Sequence[Weight],
        description: Mapping[str, Any],
        state: Mapping[str, Any],
    ) -> None:
        """Begins a checkpoint, when an earlier one is done; returns when weights may change.

        Args:
          step: of the training; part of the name.
          weights: what to save, the same names on every rank.
          description: JSON-able, what the model is.
          state: JSON-able, where the training is.
        """
        self.wait()
        started = time.monotonic()
        staging, fault = None, None
        if self._world.is_chief:
            try:
                staging = str(self._folder.stage(step))
            except OSError as error:
                fault = self._text(error)
        staging, fault = self._world.gather_objects([staging, fault], "checkpoint.begin")[0]
        self._begun = _Begun(
            step, Path(staging or "."), weights, description, state, started, started
        )
        if fault is not None:
            self._end(("error", fault), 0, None)
            return
        for weight in weights:
            weight.prepare()
        job = _Writing(Path(staging), self._memory_bytes, self._text)
        self._job = job
        job.start()
        try:
            self._copy_out(job, weights)
        except BaseException:
            job.abandon()
            raise
        job.close()
        self._begun = self._begun._replace(copied=time.monotonic())

    def _copy_out(self, job: "_Writing", weights: Sequence[Weight]) -> None:
        for weight in weights:
            for box in weight.saved_by(self._world.rank):
                rows_each = files.rows_of_block(box.columns, weight.dtype)
                if not job.begin(weight, box, rows_each):
                    return
                for block in box.blocks(rows_each):
                    if not job.add(weight.read(block)):
                        return

    def advance(self) -> None:
        """Goes on with what is under way, waiting for all ranks' parts of it."""
        job = self._job
        if job is None:
            return
        job.join()
        if isinstance(job, _Writing):
            self._after_writing(job)
        else:
            path, fault = self._world.gather_objects([job.path, job.fault], "checkpoint.end")[0]
            self._end(fault, job.size_bytes, path)

    def wait(self) -> None:
        """Waits until nothing is under way."""
        while self._job is not None:
            self.advance()

    def _after_writing(self, job: "_Writing") -> None:
        own = [job.fault, {name: [p.as_json() for p in made] for name, made in job.made.items()}]
        parts = self._world.gather_objects(own, "checkpoint.written")
        fault = next((fault for fault, _ in parts if fault is not None), None)
        begun = self._begun
        if fault is not None:
            if self._world.is_chief:
                shutil.rmtree(begun.staging, ignore_errors=True)
            self._world.barrier("checkpoint.removed")
            self._end(tuple(fault), 0, None)
            return
        entries = {
            weight.name: WeightEntry(
                tuple(weight.shape),
                weight.dtype,
                tuple(
                    Piece.from_json(piece)
                    for _, made in parts
                    for piece in made.get(weight.name, ())
                ),
            )
            for weight in begun.weights
        }
        for name, entry in entries.items():
            saved, whole = sum(p.box.size for p in entry.pieces), matrix_of(entry.shape).size
            if saved != whole:
                raise AssertionError(f"{saved} of {whole} elements of {name} were saved")
        index = Index(dict(begun.description), dict(begun.state), entries)
        chief = self._world.is_chief
        self._job = _Publishing(self._folder, begun.staging, index, self._keep, self._text, chief)
        self._job.start()

    def _end(self, fault, size_bytes: int, path) -> None:
        begun = self._begun
        self._job = self._begun = None
        fault = None if fault is None else (fault[0], fault[1])
        path = None if path is None else Path(path)
        self._outcomes.append(
            Outcome(
                begun.step,
                path,
                size_bytes,
                begun.copied - begun.started,
                time.monotonic() - begun.started,
                fault,
            )
        )

    def _text(self, error: OSError) -> str:
        return (
            f"--save_checkpoint_path {self._folder.root}: {error.strerror or error}; the model "
            "was not saved"
        )


class _Writing(threading.Thread):
    """Writes this rank's pieces below `staging`, in the order in which they come.

    The caller's thread copies blocks into aligned buffers, checks them and takes checksums; this
    one gives them to the disk.

    Attributes:
      fault: None, or what went wrong, as in `Outcome`.
      made: of each weight the pieces that were written.
    """

    def __init__(self, staging: Path, memory_bytes: int, text):
        super().__init__(name="checkpoint-writer", daemon=True)
        self.fault: tuple[str, str] | None = None
        self.made: dict[str, list[Piece]] = {}
        self._staging, self._memory_bytes, self._text = staging, memory_bytes, text
        self._disk = Disk()
        self._buffers_bytes = 0
        self._free: list[memoryview] = []
        self._waiting: deque = deque()
        self._changed = threading.Condition()
        self._piece: tuple[str, Piece, list[str]] | None = None

    def begin(self, weight: Weight, box: Box, rows_each: int) -> bool:
        """Starts a piece; False after a fault."""
        self._end_piece()
        header = files.npy_header(weight.shape, box, weight.dtype)
        file = files.file_of(weight.name, weight.shape, box)
        piece = Piece(file, box, len(header), rows_each, ())
        self._piece = (weight.name, piece, [])
        block_bytes = rows_each * box.columns * weight.dtype.itemsize
        aligned = block_bytes % ALIGNMENT == 0 or rows_each >= box.rows
        return self._put((file, aligned)) and self._copy(np.frombuffer(header, np.uint8))

    def add(self, values: np.ndarray) -> bool:
        """The next block of the piece; waits while too much is waiting. False after a fault."""
        if not np.isfinite(values).all():
            self._fail(("weight", self._piece[0]))
            return False
        return self._copy(values.reshape(-1).view(np.uint8))

    def close(self) -> None:
        """Nothing more will come."""
        self._end_piece()
        self._put(None)

    def abandon(self) -> None:
        """Ends without a result."""
        self._fail(("error", "the save was given up"))

    def _end_piece(self) -> None:
        if self._piece is not None:
            name, piece, checksums = self._piece
            self.made.setdefault(name, []).append(piece._replace(checksums=tuple(checksums)))
        self._piece = None

    def _copy(self, data: np.ndarray) -> bool:
        """Hands bytes on, in a buffer that is free."""
        buffer = self._buffer_for(data.nbytes)
        if buffer is None:
            return False
        copied = np.frombuffer(buffer, np.uint8, data.nbytes)
        copied[:] = data
        self._piece[2].append(files.checksum(copied))
        return self._put((buffer, data.nbytes))

    def _buffer_for(self, size_bytes: int) -> memoryview | None:
        wanted = padded(max(size_bytes, BLOCK_BYTES))
        with self._changed:
            while self.fault is None:
                for place, buffer in enumerate(self._free):
                    if len(buffer) >= size_bytes:
                        return self._free.pop(place)
                room = self._buffers_bytes + wanted <= self._memory_bytes
                if room or not self._buffers_bytes:
                    self._buffers_bytes += wanted
                    return aligned_buffer(wanted)
                if self._free:  # too small
                    self._buffers_bytes -= len(self._free.pop())
                    continue
                self._changed.wait()
        return None

    def _put(self, item) -> bool:
        with self._changed:
            if self.fault is None:
                self._waiting.append(item)
            self._changed.notify_all()
            return self.fault is None

    def _take(self):
        with self._changed:
            while not self._waiting and self.fault is None:
                self._changed.wait()
            return self._waiting.popleft() if self.fault is None else None

    def _give_back(self, buffer: memoryview) -> None:
        with self._changed:
            self._free.append(buffer)
            self._changed.notify_all()

    def run(self):
        """Writes until `close`, then waits for the disk."""
        try:
            self._write()
            if self.fault is not None:
                return
            written = [self._staging / piece.file for made in self.made.values() for piece in made]
            self._free.clear()
            for file in written:
                _sync_file(file)
            for folder in {file.parent for file in written}:
                files.sync_folder(folder)
        except OSError as error:
            self._fail(("error", self._text(error)))
        except Exception:  # the other ranks would wait for ever
            self._fail(("error", f"a defect while saving: {traceback.format_exc()}"))

    def _fail(self, fault: tuple[str, str]) -> None:
        with self._changed:
            self.fault = self.fault or fault
            self._waiting.clear()
            self._changed.notify_all()

    def _write(self) -> None:
        item = self._take()
        while item is not None:
            name, aligned = item
            path = self._staging / name
            path.parent.mkdir(exist_ok=True)
            with self._disk.open(path, aligned) as file:
                while (item := self._take()) is not None and isinstance(item[0], memoryview):
                    buffer, size_bytes = item
                    file.write(buffer, size_bytes)
                    self._give_back(buffer)


class _Publishing(threading.Thread):
    """Makes a checkpoint of what all ranks wrote: index, name, and an end to the oldest.

    Attributes:
      fault, path: as in `Outcome`.
      size_bytes: of the weights.
    """

    def __init__(self, folder: Folder, staging: Path, index: Index, keep: int, text, chief: bool):
        super().__init__(name="checkpoint-publisher", daemon=True)
        self.fault: tuple[str, str] | None = None
        self.path: str | None = None
        self.size_bytes = index.size_bytes
        self._folder, self._staging, self._index = folder, staging, index
        self._keep, self._text, self._chief = keep, text, chief

    def run(self):
        """On rank 0; nothing elsewhere."""
        if not self._chief:
            return
        try:
            files.write_index(self._staging, self._index)
            for folder in {self._staging / Path(name).parts[0] for name in self._index.weights}:
                files.sync_folder(folder)
            files.sync_folder(self._staging)
            self.path = str(self._folder.publish(self._staging))
        except OSError as error:
            self.fault = ("error", self._text(error))
            shutil.rmtree(self._staging, ignore_errors=True)
        except Exception:
            self.fault = ("error", f"a defect while saving: {traceback.format_exc()}")
            shutil.rmtree(self._staging, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):  # an old one that stays is no fault of the new one
                self._folder.keep_newest(self._keep)


def _sync_file(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        if hasattr(os, "posix_fadvise"):  # what is on the disk need not stay in the page cache
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def save(
    path: str | os.PathLike,
    weights: Sequence[Weight],
    description: Mapping[str, Any],
    world: World = World(),
    step: int = 0,
) -> Path:
    """Saves one checkpoint in a folder of checkpoints, and waits for it; all ranks together.

    Raises:
      AgreedError: it cannot be written.
      NonFiniteWeight: a weight holds NaN or infinity.
    """
    folder = Folder(path)
    fault = None
    if world.is_chief:
        try:
            folder.take()
        except ValueError as error:
            fault = str(error)
    world.agree(fault)
    try:
        saver = Saver(folder, world)
        saver.save(step, weights, description, {})
        saver.wait()
    finally:
        folder.release()
    (outcome,) = saver.outcomes()
    outcome.raise_fault()
    return outcome.path
