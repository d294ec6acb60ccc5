"""Asynchronous saving: weights are copied while training waits, and written in the background."""

import contextlib
import shutil
import threading
import time
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from runtime.checkpoint import files
from runtime.checkpoint.files import Index, Piece, WeightEntry
from runtime.checkpoint.folder import BEST, Folder
from runtime.checkpoint.weight import Weight, matrix_of
from runtime.checkpoint.writer import Writer
from runtime.cluster.distributed import World
from runtime.cluster.heartbeat import StragglerBarrier
from runtime.files.atomic import sync

# Limit of copied data that is not written yet, in addition to one block.
MEMORY_BYTES = 32 * 2**20


class Outcome(NamedTuple):
    """Result of a save; the same on every rank, except for the times.

    Attributes:
        step: of the training.
        path: the checkpoint; None after a fault.
        size_bytes: of its weights.
        wait_s: seconds that this rank's training waited.
        total_s: seconds until it was on the disk.
        fault: None, or ("weight", name of a weight that is not finite), or ("error", text).
        note: a failure after the save itself.
    """

    step: int
    path: Path | None
    size_bytes: int
    wait_s: float
    total_s: float
    fault: tuple[str, str] | None
    note: str = ""


@dataclass
class _PendingSave:
    """A save whose outcome is not known yet."""

    step: int
    staging: Path
    index: Index  # of weights without pieces
    start_s: float
    copied_s: float
    is_best: bool


class Saver:
    """Saves checkpoints of one training, one at a time.

    `save` copies this rank's boxes block by block to a thread that writes them; it returns when the
    last block is copied, and the model may change again. Blocks that wait to be written are limited
    by `memory_bytes`: a larger part takes as long as writing it, a smaller one as long as copying
    it. `advance` or `wait` then publish what all ranks wrote under one name.

    All ranks call `save`, `advance` and `wait` together.

    Args:
        folder: rank 0 must have acquired it.
        world: the ranks; all have access to the folder.
        keep: newest checkpoints to keep.
        memory_bytes: limit of the memory for blocks that are not written yet.
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
        self._pending: _PendingSave | None = None
        # This rank's part of the pending save: writing, then on rank 0 publishing.
        self._writer: Writer | None = None
        self._publisher: _Publisher | None = None
        self._outcomes: deque[Outcome] = deque()

    @property
    def under_way(self) -> bool:
        """True until the outcome of a save is known; the same on every rank."""
        return self._pending is not None

    @property
    def busy(self) -> bool:
        """True while this rank's part of the pending save runs."""
        return any(job is not None and job.is_alive() for job in (self._writer, self._publisher))

    def outcomes(self) -> list[Outcome]:
        """Returns the saves that ended since the last call; the same on every rank."""
        outcomes = list(self._outcomes)
        self._outcomes.clear()
        return outcomes

    def save(
        self,
        step: int,
        weights: Sequence[Weight],
        description: Mapping[str, Any],
        state: Mapping[str, Any],
        best: bool = False,
    ) -> None:
        """Starts a checkpoint after an earlier one has ended; returns when weights may change.

        Args:
            step: of the training; part of the name.
            weights: the same names on every rank.
            description: of the model, as JSON values.
            state: of the training, as JSON values.
            best: the best one so far, which is kept until a better one is saved.
        """
        self.wait()
        start_s = time.monotonic()
        staging, fault = None, None
        if self._world.is_chief:
            try:
                staging = str(self._folder.stage(step))
            except OSError as error:
                fault = self._text(error)
        staging, fault = self._world.gather_objects([staging, fault], "checkpoint.begin")[0]
        entries = {w.name: WeightEntry(tuple(w.shape), w.dtype, ()) for w in weights}
        index = Index(dict(description), dict(state), entries)
        self._pending = _PendingSave(step, Path(staging or "."), index, start_s, start_s, best)
        if fault is not None:
            self._end(("error", fault), None)
            return
        for weight in weights:
            weight.prepare()
        self._writer = writer = Writer(Path(staging), self._memory_bytes, self._text)
        writer.start()
        try:
            with StragglerBarrier(self._world, "checkpoint.copying") as barrier:
                self._copy(weights, writer, barrier)
        except BaseException:
            writer.abandon()
            raise
        writer.close()
        self._pending.copied_s = time.monotonic()

    def _copy(self, weights: Sequence[Weight], writer: Writer, barrier: StragglerBarrier) -> None:
        for weight in weights:
            for box in weight.saved_by(self._world.rank):
                rows_each = files.rows_of_block(box.columns, weight.dtype)
                if not writer.begin(weight, box, rows_each):
                    return
                for block in box.blocks(rows_each):
                    if not writer.add(weight.read(block)):
                        return
                    barrier.keepalive()

    def advance(self) -> None:
        """Continues the pending save after all ranks' parts of its current stage."""
        if (pending := self._pending) is None:
            return
        with StragglerBarrier(self._world, "checkpoint.waiting") as barrier:
            while self.busy:
                barrier.keepalive()
                time.sleep(0.001)
        if self._writer is not None:
            self._after_writing(pending, self._writer)
        else:
            own = self._publisher
            result = [own.path, own.fault, own.note] if own else None
            path, fault, note = self._world.gather_objects(result, "checkpoint.end")[0]
            self._end(fault, path, note)

    def wait(self) -> None:
        """Waits until no save is pending."""
        while self._pending is not None:
            self.advance()

    def _after_writing(self, pending: _PendingSave, writer: Writer) -> None:
        self._writer = None
        pieces = {name: [p.as_json() for p in written] for name, written in writer.pieces.items()}
        parts = self._world.gather_objects([writer.fault, pieces], "checkpoint.written")
        fault = next((fault for fault, _ in parts if fault is not None), None)
        if fault is not None:
            if self._world.is_chief:
                shutil.rmtree(pending.staging, ignore_errors=True)
            # Other ranks may end with an error now, and the launcher then ends rank 0.
            self._world.barrier("checkpoint.removed")
            self._end(fault, None)
        elif self._world.is_chief:
            pieces_by_rank = [written for _, written in parts]
            self._publisher = _Publisher(self._folder, pending, pieces_by_rank, self._keep)
            self._publisher.start()

    def _end(self, fault: Sequence[str] | None, path: str | None, note: str = "") -> None:
        pending = self._pending
        assert pending is not None
        self._pending = self._publisher = None
        self._outcomes.append(
            Outcome(
                pending.step,
                None if path is None else Path(path),
                pending.index.size_bytes,
                pending.copied_s - pending.start_s,
                time.monotonic() - pending.start_s,
                None if fault is None else (fault[0], fault[1]),
                note,
            )
        )

    def _text(self, error: OSError) -> str:
        return _not_saved(self._folder, error)


def _not_saved(folder: Folder, error: OSError) -> str:
    reason = error.strerror or error
    return f"--save_checkpoint_path {folder.root}: {reason}; the model was not saved"


class _Publisher(threading.Thread):
    """Completes a checkpoint that all ranks wrote: index, rename, deletion of the oldest.

    Attributes:
        fault, path, note: as in `Outcome`.
    """

    def __init__(
        self,
        folder: Folder,
        pending: _PendingSave,
        pieces_by_rank: Sequence[Mapping[str, Any]],
        keep: int,
    ):
        super().__init__(name="checkpoint-publisher", daemon=True)
        self.fault: tuple[str, str] | None = None
        self.path: str | None = None
        self.note = ""
        self._folder, self._pending, self._keep = folder, pending, keep
        self._pieces_by_rank = pieces_by_rank

    def run(self) -> None:
        """Publishes the checkpoint."""
        staging = self._pending.staging
        try:
            index = self._pending.index._replace(weights=self._entries())
            files.write_index(staging, index)
            for folder in {staging / Path(name).parts[0] for name in index.weights}:
                sync(folder)
            sync(staging)
            path = self._folder.publish(staging)
            self.path = str(path)
        except OSError as error:
            self.fault = ("error", _not_saved(self._folder, error))
        except Exception:
            self.fault = ("error", f"a defect while saving: {traceback.format_exc()}")
        if self.fault is not None:
            shutil.rmtree(staging, ignore_errors=True)
            return
        if self._pending.is_best:
            try:
                self._folder.link_best(path)
            except OSError as error:
                self.note = f"the link {BEST} to it could not be made: {error.strerror or error}"
        with contextlib.suppress(OSError):  # a failed deletion does not affect the new one
            self._folder.keep_newest(self._keep)

    def _entries(self) -> dict[str, WeightEntry]:
        """Returns the entries of all weights with the pieces of all ranks."""
        entries = {}
        for name, entry in self._pending.index.weights.items():
            by_rank = (pieces.get(name, ()) for pieces in self._pieces_by_rank)
            pieces = tuple(Piece.from_json(piece) for written in by_rank for piece in written)
            saved, whole = sum(p.box.size for p in pieces), matrix_of(entry.shape).size
            if saved != whole:
                raise AssertionError(f"{saved} of {whole} elements of {name} were saved")
            entries[name] = entry._replace(pieces=pieces)
        return entries
