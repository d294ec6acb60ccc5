"""Workload of the DLRM benchmark: sizes, rows, matrix products.

NumPy only: the environment of the PyTorch side has nothing else.
"""

import itertools
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

BATCH_SIZE = 8192
NUM_BATCHES = 16  # different ones; an epoch of the benchmark
NUM_NUMERICAL = 13
EMBEDDING_DIM = 128
BOTTOM_MLP_DIMS = (512, 256, 128)
TOP_MLP_DIMS = (1024, 1024, 512, 256, 1)
LEARNING_RATE = 0.1
ID_ALPHA = 1.1  # ids follow P(id=k) ~ (k+1)^-alpha
PRECISIONS = ("float32", "bfloat16")

# 26 tables with 400,000 rows in all, as skewed as the columns of real click logs.
TABLE_ROWS = (140_000, 90_000, 60_000, 40_000, 25_000, 15_000, 10_000, 6_000, 4_000, 3_000, 2_000)
TABLE_ROWS += (1_500, 1_000, 700, 500, 400, 250, 200, 150, 100, 70, 50, 40, 20, 12, 8)

NUM_FEATURES = len(TABLE_ROWS) + 1  # the tables and the bottom MLP's output
INTERACTION_WIDTH = EMBEDDING_DIM + NUM_FEATURES * (NUM_FEATURES - 1) // 2
PADDED_WIDTH = -(-INTERACTION_WIDTH // 8) * 8  # of the top MLP's input


class DLRMRows(NamedTuple):
    """numerical [n, 13] float32, ids [n, 26] int64, labels [n, 1] float32."""

    numerical: np.ndarray
    ids: np.ndarray
    labels: np.ndarray


class Product(NamedTuple):
    """One matrix product of the training step: shapes of its factors, of which one is transposed.

    `skipped`: plain backpropagation has it, our step does without.
    """

    a: tuple[int, ...]
    b: tuple[int, ...]
    transpose_a: bool = False
    transpose_b: bool = False
    skipped: bool = False

    @property
    def gflop(self) -> float:
        """Multiplications and additions, 1e9."""
        return 2 * math.prod(self.a) * self.b[-2 if self.transpose_b else -1] / 1e9


def products() -> list[Product]:
    """All products of a step, 121 GFLOP: three per layer and three for the interaction."""
    bottom, top = (NUM_NUMERICAL, *BOTTOM_MLP_DIMS), (PADDED_WIDTH, *TOP_MLP_DIMS)
    result = []
    for fan_in, fan_out in (*itertools.pairwise(bottom), *itertools.pairwise(top)):
        inputs, outputs, kernel = (BATCH_SIZE, fan_in), (BATCH_SIZE, fan_out), (fan_in, fan_out)
        is_first = fan_in == NUM_NUMERICAL  # the gradient of numerical features is not needed
        result.append(Product(inputs, kernel))
        result.append(Product(outputs, kernel, transpose_b=True, skipped=is_first))
        result.append(Product(inputs, outputs, transpose_a=True))
    features = (BATCH_SIZE, NUM_FEATURES, EMBEDDING_DIM)
    pairs = (BATCH_SIZE, NUM_FEATURES, NUM_FEATURES)
    result += [Product(features, features, transpose_b=True), Product(pairs, features)]
    # G X and G^T X of plain backpropagation are one product with the symmetric G + G^T.
    return [*result, Product(pairs, features, skipped=True)]


def describe(table_rows: Sequence[int]) -> str:
    """Words on the model, for the head of a page."""
    return (
        f"{NUM_NUMERICAL} numerical features, {len(table_rows)} tables with {sum(table_rows):,} "
        f"rows of {EMBEDDING_DIM}, bottom {BOTTOM_MLP_DIMS}, top {TOP_MLP_DIMS}"
    )


def make_rows(folder: Path, num_rows: int, table_rows: Sequence[int]) -> None:
    """Generates split binaries in a new folder, in a process that leaves no threads behind."""
    command = [sys.executable, "-m", "dataloading.synthetic", "--output", str(folder)]
    command += ["--rows", str(num_rows), "--validation_rows", "1", "--test_rows", "1"]
    command += ["--alpha", str(ID_ALPHA), "--cardinalities", ",".join(map(str, table_rows))]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
