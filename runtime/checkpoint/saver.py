"""Asynchronous saving: weights are copied while training waits, and written in the background."""

import contextlib
import shutil
import threading
import time
import traceback
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from distributed_embeddings.box import Box
from distributed_embeddings.collectives import World
from numpy.typing import NDArray

from runtime.checkpoint import files
from runtime.checkpoint.files import Index, Piece, WeightEntry
from runtime.checkpoint.folder import BEST, Folder
from runtime.checkpoint.part_writer import AttachedFiles, Writer
from runtime.checkpoint.weight import Weight, matrix_of
from runtime.cluster.heartbeat import StragglerBarrier
from runtime.files.disk import sync


class Outcome(NamedTuple):
    """Result of a save; the same on every rank, except for the times."""

    step: int
    path: Path | None  # None after a fault
    size_bytes: int
    wait_s: float  # of this rank's training
    total_s: float  # until it was on the disk
    fault: tuple[str, str] | None  # ("weight", name of one that is not finite), ("error", text)
    note: str = ""  # on a failure after the save itself


class Saver:
    """Saves checkpoints of one training, one at a time.

    `save` copies this rank's boxes block by block to a thread that writes them; it returns when the
    last block is copied, and the model may change again. Blocks that wait to be written are limited
    by `memory_bytes`: a larger part takes as long as writing it, a smaller one as long as copying
    it. `advance` or `wait` then publish what all ranks wrote under one name.

    All ranks call `save`, `advance` and `wait` together.

    Args:
        folder: rank 0 must have acquired it; all ranks have access to it.
        keep: newest checkpoints to keep.
        memory_bytes: limit of the blocks that are not written yet, in addition to one.
        attached: what all checkpoints have in addition to weights, see `AttachedFiles`.
    """

    def __init__(
        self,
        folder: Folder,
        world: World = World(),
        keep: int = 2,
        memory_bytes: int = 32 * 2**20,
        attached: Mapping[str, bytes | Path] | None = None,
    ):
        self._folder, self._world, self._keep = folder, world, keep
        self._memory_bytes, self._attached = memory_bytes, AttachedFiles(attached)
        self._stages: Generator[None, None, Outcome] | None = None  # of the pending save
        self._thread: threading.Thread | None = None  # works until the next stage
        self._outcomes: list[Outcome] = []

    @property
    def under_way(self) -> bool:
        """True until the outcome of a save is known; the same on every rank."""
        return self._stages is not None

    @property
    def busy(self) -> bool:
        """True while this rank's part of the pending save runs."""
        return self._thread is not None and self._thread.is_alive()

    def outcomes(self) -> list[Outcome]:
        """Returns the saves that ended since the last call; the same on every rank."""
        outcomes, self._outcomes = self._outcomes, []
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
            description, state: of model and training, as JSON values.
            best: the best one so far, which is kept until a better one is saved.
        """
        self.wait()
        entries = {w.name: WeightEntry(tuple(w.shape), w.dtype, ()) for w in weights}
        index = Index(dict(description), dict(state), entries, {})
        self._stages = self._save(step, weights, index, best)
        self._continue(self._stages)

    def advance(self) -> None:
        """Continues the pending save after all ranks' parts of its current stage."""
        if self._stages is None:
            return
        with StragglerBarrier(self._world, "checkpoint.waiting") as barrier:
            while self.busy:
                barrier.keepalive()
                time.sleep(0.001)
        self._continue(self._stages)

    def wait(self) -> None:
        """Waits until no save is pending."""
        while self._stages is not None:
            self.advance()

    def _continue(self, stages: Generator[None, None, Outcome]) -> None:
        self._stages = None  # in case of an error
        try:
            next(stages)
            self._stages = stages
        except StopIteration as end:
            self._outcomes.append(end.value)

    def _save(
        self, step: int, weights: Sequence[Weight], index: Index, is_best: bool
    ) -> Generator[None, None, Outcome]:
        start_s = copied_s = time.monotonic()

        def outcome(path: str | None, fault: Sequence[str] | None, note: str = "") -> Outcome:
            return Outcome(
                step,
                None if path is None else Path(path),
                index.size_bytes,
                copied_s - start_s,
                time.monotonic() - start_s,
                None if fault is None else (fault[0], fault[1]),
                note,
            )

        staging, error = self._world.gather_objects(self._stage(step), "checkpoint.begin")[0]
        if error is not None:
            return outcome(None, ("error", error))
        self._thread = writer = Writer(Path(staging), self._memory_bytes, self._text)
        self._copy(weights, writer)
        copied_s = time.monotonic()
        yield
        pieces = {name: [p.as_json() for p in written] for name, written in writer.pieces.items()}
        parts = self._world.gather_objects([writer.fault, pieces], "checkpoint.written")
        fault = next((fault for fault, _ in parts if fault is not None), None)
        if fault is not None:
            if self._world.is_chief:
                shutil.rmtree(staging, ignore_errors=True)
            # Other ranks may end with an error now, and the launcher then ends rank 0.
            self._world.barrier("checkpoint.removed")
            return outcome(None, fault)
        result: list[Any] = []
        if self._world.is_chief:
            self._thread = threading.Thread(
                target=lambda: result.extend(
                    self._publish(Path(staging), index, [pieces for _, pieces in parts], is_best)
                ),
                name="checkpoint-publisher",
                daemon=True,
            )
            self._thread.start()
        yield
        return outcome(*self._world.gather_objects(result, "checkpoint.end")[0])

    def _stage(self, step: int) -> tuple[str | None, str | None]:
        """Returns the temporary folder, or an error message, on rank 0."""
        if not self._world.is_chief:
            return None, None
        try:
            return str(self._folder.stage(step)), None
        except OSError as error:
            return None, self._text(error)

    def _copy(self, weights: Sequence[Weight], writer: Writer) -> None:
        writer.start()
        try:
            with StragglerBarrier(self._world, "checkpoint.copying") as barrier:
                for weight in weights:
                    for box in weight.saved_by(self._world.rank):
                        rows_each = files.rows_of_block(box.columns, weight.dtype)
                        blocks = _read_blocks(weight, box, rows_each, barrier)
                        if not writer.add(weight, box, rows_each, blocks):
                            return
        except BaseException:
            writer.abandon()
            raise
        finally:
            writer.close()

    def _publish(
        self,
        staging: Path,
        index: Index,
        pieces_by_rank: Sequence[Mapping[str, Any]],
        is_best: bool,
    ) -> tuple[str | None, tuple[str, str] | None, str]:
        """Completes what all ranks wrote; returns path, fault and note of the `Outcome`."""
        try:
            weights, attached = _merge(index, pieces_by_rank), self._attached.write(staging)
            files.write_index(staging, index._replace(weights=weights, files=attached))
            for folder in {staging / Path(name).parts[0] for name in index.weights}:
                sync(folder)
            sync(staging)
            path = self._folder.publish(staging)
            self._attached.published(path, attached)
        except Exception as error:
            shutil.rmtree(staging, ignore_errors=True)
            return None, ("error", self._text(error)), ""
        note = self._attached.note
        if is_best:
            try:
                self._folder.link_best(path)
            except OSError as error:
                note = f"the link {BEST} to it could not be made: {error.strerror or error}"
        with contextlib.suppress(OSError):  # a failed deletion does not affect the new one
            self._folder.keep_newest(self._keep)
        return str(path), None, note

    def _text(self, error: Exception) -> str:
        if not isinstance(error, OSError):
            return f"a defect while saving: {traceback.format_exc()}"
        reason = error.strerror or error
        return f"--save_checkpoint_path {self._folder.root}: {reason}; the model was not saved"


def _read_blocks(
    weight: Weight, box: Box, rows_each: int, barrier: StragglerBarrier
) -> Iterator[NDArray[Any]]:
    for block in box.blocks(rows_each):
        yield weight.read(block)
        barrier.keepalive()


def _merge(index: Index, pieces_by_rank: Sequence[Mapping[str, Any]]) -> dict[str, WeightEntry]:
    entries = {}
    for name, entry in index.weights.items():
        by_rank = (pieces.get(name, ()) for pieces in pieces_by_rank)
        pieces = tuple(Piece.from_json(piece) for written in by_rank for piece in written)
        saved, whole = sum(p.box.size for p in pieces), matrix_of(entry.shape).size
        if saved != whole:
            raise AssertionError(f"{saved} of {whole} elements of {name} were saved")
        entries[name] = entry._replace(pieces=pieces)
    return entries
