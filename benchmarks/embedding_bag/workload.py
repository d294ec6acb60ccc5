"""Ids of tables, initial tables and output gradients of both sides.

NumPy only: the environment of the PyTorch sides has nothing else.
"""

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np

# The value of a side's loss is that of the first samples, so that computing it takes no time.
LOSS_SAMPLES = 16
LAYOUTS = ("concatenated", "tables")  # one output [batch, tables * dim], or [batch, dim] of each
INITIAL_LIMIT = 0.003  # small compared with what a step moves, which the comparison is to show


def by_table(ids, sizes: SimpleNamespace) -> Iterator:
    """Yields [..., batch, hotness] of each table from ids [..., ids per batch]."""
    start = 0
    for hotness in sizes.hotness:
        stop = start + sizes.batch_size * hotness
        yield ids[..., start:stop].reshape(*ids.shape[:-1], sizes.batch_size, hotness)
        start = stop


def initial_table(sizes: SimpleNamespace, number: int) -> np.ndarray:
    """Returns [rows, dim] float32 of a table."""
    random = np.random.default_rng((2, number))
    numbers = random.random((sizes.num_rows, sizes.dim), np.float32)
    return (numbers - np.float32(0.5)) * np.float32(2 * INITIAL_LIMIT)


def output_gradients(sizes: SimpleNamespace, layout: str) -> list[np.ndarray]:
    """Returns the gradients of the outputs, float32 in a layout of `LAYOUTS`, of every step."""
    shape = (sizes.batch_size, len(sizes.hotness), sizes.dim)
    whole = np.random.default_rng(3).standard_normal(shape, np.float32)
    if layout == "concatenated":
        return [whole.reshape(sizes.batch_size, -1)]
    return [np.ascontiguousarray(whole[:, t]) for t in range(len(sizes.hotness))]
