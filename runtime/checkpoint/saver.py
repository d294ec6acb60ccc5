"""Saving: copied out while training waits, written behind it, named when all ranks are done."""

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

from runtime.checkpoint import files
from runtime.checkpoint.files import Index, Piece, WeightEntry
from runtime.checkpoint.folder import BEST, Folder
from runtime.checkpoint.weight import NonFiniteWeight, Weight, matrix_of
from runtime.checkpoint.writer import Writer
from runtime.cluster.distributed import CollectiveError, World
from runtime.cluster.heartbeat import StragglerBarrier
from runtime.files.atomic import sync

# What was copied out and is not written yet, at most; beside it there is one block.
MEMORY_BYTES = 32 * 2**20


class Outcome(NamedTuple):
    """What became of a save; the same on every rank but for the times.

    Attributes:
        step: of the training.
        path: the checkpoint; None after a fault.
        size_bytes: of its weights.
        wait_s: how long this rank's training waited.
        total_s: from its beginning until it was on the disk.
        fault: None, or ("weight", name of a weight that is not finite), or ("error", text).
        note: what went wrong beside the save itself.
    """

    step: int
    path: Path | None
    size_bytes: int
    wait_s: float
    total_s: float
    fault: tuple[str, str] | None
    note: str = ""

    def raise_fault(self) -> None:
        """Raises NonFiniteWeight or CollectiveError, if it failed."""
        if self.fault is not None:
            kind, text = self.fault
            raise NonFiniteWeight(text) if kind == "weight" else CollectiveError(text)


class _Begun(NamedTuple):
    """A save that is under way."""

    step: int
    staging: Path
    index: Index  # of weights without pieces
    started: float
    copied: float
    best: bool


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
        self._begun: _Begun | None = None
        # This rank's part of what is under way: writing, then on rank 0 publishing.
        self._writer: Writer | None = None
        self._publisher: _Publisher | None = None
        self._outcomes: deque[Outcome] = deque()

    @property
    def under_way(self) -> bool:
        """Whether a save has begun and its outcome is not known; the same on every rank."""
        return self._begun is not None

    @property
    def busy(self) -> bool:
        """Whether this rank's part of what is under way still runs."""
        return any(job is not None and job.is_alive() for job in (self._writer, self._publisher))

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
        best: bool = False,
    ) -> None:
        """Begins a checkpoint, when an earlier one is done; returns when weights may change.

        Args:
            step: of the training; part of the name.
            weights: what to save, the same names on every rank.
            description: JSON-able, what the model is.
            state: JSON-able, where the training is.
            best: it is the best one so far: kept, whatever is saved later, until there is a better.
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
        index = Index(
            dict(description),
            dict(state),
            {w.name: WeightEntry(tuple(w.shape), w.dtype, ()) for w in weights},
        )
        self._begun = _Begun(step, Path(staging or "."), index, started, started, best)
        if fault is not None:
            self._end(("error", fault), None)
            return
        for weight in weights:
            weight.prepare()
        self._writer = Writer(Path(staging), self._memory_bytes, self._text)
        self._writer.start()
        try:
            with StragglerBarrier(self._world, "checkpoint.copying") as meeting:
                self._copy_out(weights, meeting)
        except BaseException:
            self._writer.abandon()
            raise
        self._writer.close()
        self._begun = self._begun._replace(copied=time.monotonic())

    def _copy_out(self, weights: Sequence[Weight], meeting: StragglerBarrier) -> None:
        for weight in weights:
            for box in weight.saved_by(self._world.rank):
                rows_each = files.rows_of_block(box.columns, weight.dtype)
                if not self._writer.begin(weight, box, rows_each):
                    return
                for block in box.blocks(rows_each):
                    if not self._writer.add(weight.read(block)):
                        return
                    meeting.keepalive()

    def advance(self) -> None:
        """Goes on with what is under way, waiting for all ranks' parts of it."""
        if self._begun is None:
            return
        with StragglerBarrier(self._world, "checkpoint.waiting") as meeting:
            while self.busy:
                meeting.keepalive()
                time.sleep(0.001)
        if self._writer is not None:
            self._after_writing()
        else:
            own = self._publisher
            told = [own.path, own.fault, own.note] if own else None
            path, fault, note = self._world.gather_objects(told, "checkpoint.end")[0]
            self._end(fault, path, note)

    def wait(self) -> None:
        """Waits until nothing is under way."""
        while self._begun is not None:
            self.advance()

    def _after_writing(self) -> None:
        writer, self._writer = self._writer, None
        made = {name: [p.as_json() for p in pieces] for name, pieces in writer.made.items()}
        parts = self._world.gather_objects([writer.fault, made], "checkpoint.written")
        fault = next((fault for fault, _ in parts if fault is not None), None)
        if fault is not None:
            if self._world.is_chief:
                shutil.rmtree(self._begun.staging, ignore_errors=True)
            # Others may end with an error now, and the launcher then ends rank 0.
            self._world.barrier("checkpoint.removed")
            self._end(fault, None)
        elif self._world.is_chief:
            begun = self._begun
            self._publisher = _Publisher(
                self._folder,
                begun.staging,
                begun.index,
                [m for _, m in parts],
                self._keep,
                begun.best,
            )
            self._publisher.start()

    def _end(self, fault: Sequence[str] | None, path: str | None, note: str = "") -> None:
        begun = self._begun
        self._begun = self._publisher = None
        self._outcomes.append(
            Outcome(
                begun.step,
                None if path is None else Path(path),
                begun.index.size_bytes,
                begun.copied - begun.started,
                time.monotonic() - begun.started,
                None if fault is None else (fault[0], fault[1]),
                note,
            )
        )

    def _text(self, error: OSError) -> str:
        return not_saved(self._folder, error)


def not_saved(folder: Folder, error: OSError) -> str:
    """What to say of a save that the system refused."""
    why = error.strerror or error
    return f"--save_checkpoint_path {folder.root}: {why}; the model was not saved"


class _Publisher(threading.Thread):
    """Makes a checkpoint of what all ranks wrote: index, name, and an end to the oldest.

    Attributes:
        fault, path: as in `Outcome`.
    """

    def __init__(
        self,
        folder: Folder,
        staging: Path,
        index: Index,
        parts: Sequence,
        keep: int,
        best: bool,
    ):
        super().__init__(name="checkpoint-publisher", daemon=True)
        self.fault: tuple[str, str] | None = None
        self.path: str | None = None
        self.note = ""
        self._folder, self._staging, self._index = folder, staging, index
        self._parts, self._keep, self._best = parts, keep, best

    def run(self):
        """Once."""
        try:
            index = self._index._replace(weights=self._entries())
            files.write_index(self._staging, index)
            for folder in {self._staging / Path(name).parts[0] for name in index.weights}:
                sync(folder)
            sync(self._staging)
            self.path = str(self._folder.publish(self._staging))
        except OSError as error:
            self.fault = ("error", not_saved(self._folder, error))
        except Exception:
            self.fault = ("error", f"a defect while saving: {traceback.format_exc()}")
        if self.fault is not None:
            shutil.rmtree(self._staging, ignore_errors=True)
            return
        if self._best:
            try:
                self._folder.link_best(Path(self.path))
            except OSError as error:
                self.note = f"the link {BEST} to it could not be made: {error.strerror or error}"
        with contextlib.suppress(OSError):  # an old one that stays is no fault of the new one
            self._folder.keep_newest(self._keep)

    def _entries(self) -> dict[str, WeightEntry]:
        """What all ranks wrote, by weight."""
        pieces: dict[str, list[Piece]] = {name: [] for name in self._index.weights}
        for part in self._parts:
            for name, made in part.items():
                pieces[name] += map(Piece.from_json, made)
        entries = {}
        for name, entry in self._index.weights.items():
            saved, whole = sum(p.box.size for p in pieces[name]), matrix_of(entry.shape).size
            if saved != whole:
                raise AssertionError(f"{saved} of {whole} elements of {name} were saved")
            entries[name] = entry._replace(pieces=tuple(pieces[name]))
        return entries


def save(
    path: str | os.PathLike,
    weights: Sequence[Weight],
    description: Mapping[str, Any],
    world: World = World(),
    step: int = 0,
) -> Path:
    """Saves one checkpoint in a folder of checkpoints, and waits for it; all ranks together.

    Raises:
        CollectiveError: it cannot be written.
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
