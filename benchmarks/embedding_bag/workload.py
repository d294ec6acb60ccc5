"""Workload of the embedding bag benchmark: sizes, ids, initial tables and output gradient.

NumPy only: the environment of the PyTorch sides has nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

LEARNING_RATE = 0.01
EPSILON = 1e-8  # of row-wise Adagrad, whose sums start at 0
INITIAL_LIMIT = 0.003  # small compared with what a step moves, which the comparison is to show
# The value of a side's loss is that of the first samples, so that computing it takes no time.
LOSS_SAMPLES = 16
OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad")
LAYOUTS = ("concatenated", "tables")  # one output [batch, tables * dim], or [batch, dim] of each


@dataclass(frozen=True)
class BagSizes:
    """Sizes of tables and batches; `hotness` is that of each table.

    `dtype` is that of outputs and their gradients; tables are float32.
    """

    dim: int
    hotness: tuple[int, ...]
    batch_size: int
    num_rows: int = 100_000  # of each table
    num_batches: int = 2  # different ones; the third step shows the update of the first
    dtype: str = "float32"

    @property
    def num_tables(self) -> int:
        return len(self.hotness)

    @property
    def ids_per_batch(self) -> int:
        return self.batch_size * sum(self.hotness)


class BagRows(NamedTuple):
    """ids [num_batches, ids per batch] int32: by table, then by sample."""

    ids: np.ndarray


def make_rows(sizes: BagSizes, seed: int = 1) -> BagRows:
    """Log-uniform ids: floor(exp(u log(rows))), u uniform in [0, 1)."""
    shape = (sizes.num_batches, sizes.ids_per_batch)
    uniform = np.random.default_rng(seed).random(shape, np.float32)
    ids = np.exp(uniform * np.float32(np.log(sizes.num_rows))).astype(np.int32)
    return BagRows(np.minimum(ids, sizes.num_rows - 1))


def by_table(ids, sizes: BagSizes) -> Iterator:
    """Yields [..., batch, hotness] of each table from ids [..., ids per batch]."""
    start = 0
    for hotness in sizes.hotness:
        stop = start + sizes.batch_size * hotness
        yield ids[..., start:stop].reshape(*ids.shape[:-1], sizes.batch_size, hotness)
        start = stop


def initial_table(sizes: BagSizes, number: int) -> np.ndarray:
    """Returns [rows, dim] float32 of a table."""
    random = np.random.default_rng((2, number))
    numbers = random.random((sizes.num_rows, sizes.dim), np.float32)
    return (numbers - np.float32(0.5)) * np.float32(2 * INITIAL_LIMIT)


def output_gradients(sizes: BagSizes, layout: str) -> list[np.ndarray]:
    """Returns the gradients of the outputs, float32 in a layout of `LAYOUTS`, of every step."""
    shape = (sizes.batch_size, sizes.num_tables, sizes.dim)
    whole = np.random.default_rng(3).standard_normal(shape, np.float32)
    if layout == "concatenated":
        return [whole.reshape(sizes.batch_size, -1)]
    return [np.ascontiguousarray(whole[:, t]) for t in range(sizes.num_tables)]
