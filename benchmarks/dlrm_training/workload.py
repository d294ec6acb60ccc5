"""Workload of the DLRM benchmark: sizes and rows.

NumPy only: the environment of the PyTorch side has nothing else.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

LEARNING_RATE = 0.1
NUM_NUMERICAL = 13
ID_ALPHA = 1.1  # ids follow P(id=k) ~ (k+1)^-alpha
# 26 tables with 400,000 rows in all, as skewed as the columns of real click logs.
TABLE_ROWS = (140_000, 90_000, 60_000, 40_000, 25_000, 15_000, 10_000, 6_000, 4_000, 3_000, 2_000)
TABLE_ROWS += (1_500, 1_000, 700, 500, 400, 250, 200, 150, 100, 70, 50, 40, 20, 12, 8)


@dataclass(frozen=True)
class DLRMSizes:
    """Sizes of the model and of its batches."""

    batch_size: int = 8192
    num_batches: int = 16  # different ones; an epoch of the benchmark
    table_rows: tuple[int, ...] = TABLE_ROWS
    embedding_dim: int = 128
    bottom_mlp_dims: tuple[int, ...] = (512, 256, 128)
    top_mlp_dims: tuple[int, ...] = (1024, 1024, 512, 256, 1)

    @property
    def num_features(self) -> int:
        """Number of vectors whose dot products are taken: tables and the bottom MLP's output."""
        return len(self.table_rows) + 1


class DLRMRows(NamedTuple):
    """numerical [n, 13] float32, ids [n, 26] int64, labels [n, 1] float32."""

    numerical: np.ndarray
    ids: np.ndarray
    labels: np.ndarray


def make_rows(folder: Path, num_rows: int, table_rows: tuple[int, ...]) -> None:
    """Generates split binaries in a new folder, in a process that leaves no threads behind."""
    command = [sys.executable, "-m", "dataloading.synthetic", "--output", str(folder)]
    command += ["--rows", str(num_rows), "--validation_rows", "1", "--test_rows", "1"]
    command += ["--cardinalities", ",".join(map(str, table_rows)), "--alpha", str(ID_ALPHA)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
