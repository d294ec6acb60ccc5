"""Workload of the comparison with TorchRec's DLRM and DLRM_DCN: sizes of the model, and rows.

NumPy only: the environment of TorchRec has nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

NUM_NUMERICAL = 13
# MLPerf's, of Adagrad.
LEARNING_RATE = 0.004
EPSILON = 1e-8


@dataclass(frozen=True)
class Sizes:
    """Sizes of the model and of its batches; by default the layers of MLPerf's DLRM-DCNv2.

    Attributes:
        table_rows: rows of each table.
        hotness: ids per sample of each table.
        num_cross_layers: 0: dot interaction instead of cross layers.
    """

    table_rows: tuple[int, ...]
    hotness: tuple[int, ...]
    batch_size: int
    num_batches: int  # different ones
    dim: int = 128
    bottom_mlp_dims: tuple[int, ...] = (512, 256, 128)
    top_mlp_dims: tuple[int, ...] = (1024, 1024, 512, 256, 1)
    num_cross_layers: int = 3
    cross_rank: int = 512


class Rows(NamedTuple):
    """numerical [n, 13] float32, ids [n, sum of hotness] int32, labels [n, 1] float32."""

    numerical: np.ndarray
    ids: np.ndarray
    labels: np.ndarray


def make_rows(sizes: Sizes, seed: int = 1) -> Rows:
    """Log-uniform ids, floor(exp(u log(rows))), u uniform; labels follow a numerical feature."""
    random = np.random.default_rng(seed)
    num_rows = sizes.num_batches * sizes.batch_size
    numerical = random.standard_normal((num_rows, NUM_NUMERICAL), np.float32)
    limits = np.repeat(sizes.table_rows, sizes.hotness)
    uniform = random.random((num_rows, len(limits)), np.float32)
    ids = np.exp(uniform * np.log(limits).astype(np.float32)).astype(np.int32)
    labels = random.random((num_rows, 1)) < 1 / (1 + np.exp(1 - numerical[:, :1]))
    return Rows(numerical, np.minimum(ids, limits - 1).astype(np.int32), labels.astype(np.float32))


def by_table(ids, sizes: Sizes) -> Iterator:
    """Yields [n, hotness] of each table from ids [n, sum of hotness]."""
    start = 0
    for hotness in sizes.hotness:
        yield ids[:, start : start + hotness]
        start += hotness
