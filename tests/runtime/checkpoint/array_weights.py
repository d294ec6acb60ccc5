"""Weights that are numpy arrays, held in parts by the ranks of a world of threads."""

import os
from pathlib import Path

import numpy as np
from distributed_embeddings.collectives import CollectiveError, World
from embedding_testing.fake_world import FakeWorld, run_threads

from runtime.checkpoint import Box, Folder, NonFiniteWeight, matrix_of, restore
from runtime.checkpoint.reader import verify
from runtime.checkpoint.saver import Outcome, Saver


class ArrayWeight:
    """A `runtime.checkpoint.Weight`; each rank saves its boxes of `cuts`, else rank 0 all."""

    def __init__(self, name: str, values: np.ndarray, cuts=None, rank: int = 0):
        self.name, self.values = name, values
        self.shape, self.dtype = values.shape, values.dtype
        self._cuts = [[matrix_of(values.shape)]] if cuts is None else cuts
        self._rank = rank

    @property
    def matrix(self) -> np.ndarray:
        """The array as rows and columns, of the same memory."""
        whole = matrix_of(self.shape)
        return self.values.reshape(whole.rows, whole.columns)

    def saved_by(self, rank: int) -> list[Box]:
        """Boxes without elements are not saved."""
        boxes = self._cuts[rank] if rank < len(self._cuts) else []
        return [box for box in boxes if box.size]

    def local_boxes(self) -> list[Box]:
        """Returns the boxes that this rank saves."""
        return self.saved_by(self._rank)

    def read(self, box: Box) -> np.ndarray:
        """A copy."""
        return self.matrix[box.row : box.row_end, box.column : box.column_end].copy()

    def write(self, row: int, values: np.ndarray, column: int = 0) -> None:
        """Sets the values, which must be this rank's."""
        rows, columns = values.shape
        passed = Box(row, row + rows, column, column + columns)
        assert any(box.overlap(passed) == passed for box in self.local_boxes()), (self.name, passed)
        self.matrix[row : row + rows, column : column + columns] = values


class SavingWorld(FakeWorld):
    """A rank of a world of threads with all that saving needs."""

    agree = World.agree

    def barrier(self, name="barrier"):
        """All ranks come here."""
        self.gather_objects(None, name)


def on_ranks(size: int, function) -> list:
    """Runs `function(world)` on `size` ranks; returns their values or raised ValueErrors."""
    return run_threads(size, lambda w: function(SavingWorld(w.rank, w.size, w._exchange)))


def save_on_ranks(
    root: Path, size: int, weights_of, step: int = 1, keep: int = 9, state=None
) -> Path:
    """Saves a checkpoint of `weights_of(rank)` and returns its path."""

    def save(world) -> list[Outcome]:
        folder = Folder(root)
        if world.is_chief:
            folder.acquire()
        saver = Saver(folder, world, keep)
        saver.save(step, weights_of(world.rank), {"recipe": "test"}, state or {})
        saver.wait()
        folder.release()
        return saver.outcomes()

    ended = on_ranks(size, save)
    for outcomes in ended:
        assert [(o.step, o.fault) for o in outcomes] == [(step, None)], ended
    return ended[0][0].path


def save(path, weights, description, world: World = World(), step: int = 0) -> Path:
    """Saves one checkpoint in a folder of checkpoints and waits for it; all ranks together."""
    folder = Folder(path)
    if world.is_chief:
        folder.acquire()
    try:
        saver = Saver(folder, world)
        saver.save(step, weights, description, {})
        saver.wait()
    finally:
        folder.release()
    (outcome,) = saver.outcomes()
    if outcome.fault is not None:
        kind, text = outcome.fault
        raise NonFiniteWeight(text) if kind == "weight" else CollectiveError(text)
    return outcome.path


def like(weights: list[ArrayWeight]) -> list[ArrayWeight]:
    """Weights of the same names and shapes, all of them on one rank, filled with something else."""
    return [ArrayWeight(w.name, np.full(w.shape, 77, w.dtype)) for w in weights]


def check_whole(root: Path, weights_of) -> list[int]:
    """Every checkpoint of a folder is whole, with `weights_of(step)`; returns the steps."""
    saved = Folder(root).list()
    for _, step, path in saved:
        assert {fault for _, fault in verify(path)} == {None}, path
        weights = weights_of(step)
        restored = [ArrayWeight(w.name, np.zeros_like(w.values)) for w in weights]
        restore(path, restored)
        for got, expected in zip(restored, weights, strict=True):
            np.testing.assert_array_equal(got.values, expected.values)
    return [step for _, step, _ in saved]


def left_over(root: Path) -> list[str]:
    """Names in a folder other than those of checkpoints."""
    known = {saved.path.name for saved in Folder(root).list()} | {".lock"}
    return sorted(set(os.listdir(root)) - known)
