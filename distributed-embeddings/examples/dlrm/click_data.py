"""Clicks with numerical features and one id per categorical feature."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

NUM_NUMERICAL = 13


class ClickData(NamedTuple):
    """Samples in memory, or mapped from files.

    Attributes:
        labels: bool [n].
        numerical: float16 [n, 13].
        categorical: Of each feature its ids, integers [n].
    """

    labels: np.ndarray
    numerical: np.ndarray
    categorical: Sequence[np.ndarray]


def read_table_sizes(folder: Path) -> list[int]:
    """Returns the rows of each table: those of model_size.json and one more."""
    sizes = json.loads((folder / "model_size.json").read_text())
    return [size + 1 for size in sizes.values()]


def id_dtype(rows: int) -> np.dtype:
    """Returns the dtype of the ids of a table: the smallest that holds its number of rows."""
    return np.dtype(
        next(dtype for dtype in (np.int8, np.int16, np.int32) if rows < np.iinfo(dtype).max)
    )


def read_split(folder: Path, table_sizes: Sequence[int]) -> ClickData:
    """Maps label.bin, numerical.bin and cat_0.bin, cat_1.bin, ... of a split.

    Raises:
        ValueError: The files have different numbers of samples.
    """
    numerical = np.memmap(folder / "numerical.bin", np.float16, "r").reshape(-1, NUM_NUMERICAL)
    categorical = [
        np.memmap(folder / f"cat_{i}.bin", id_dtype(rows), "r")
        for i, rows in enumerate(table_sizes)
    ]
    data = ClickData(np.memmap(folder / "label.bin", np.bool_, "r"), numerical, categorical)
    counts = {len(data.labels), len(numerical), *map(len, categorical)}
    if len(counts) > 1:
        raise ValueError(
            f"{folder}: expected files with equally many samples, got {sorted(counts)}: check that "
            "model_size.json belongs to them: it determines the size of an id in the files"
        )
    return data


def generate(num_samples: int, table_sizes: Sequence[int], seed: int) -> ClickData:
    """Draws samples whose click probability depends on two ids and a numerical feature."""
    rng = np.random.default_rng(seed)
    numerical = rng.random([num_samples, NUM_NUMERICAL]).astype(np.float16)
    categorical = [rng.integers(0, rows, num_samples) for rows in table_sizes]
    logits = 2.0 * numerical[:, 0] - 1
    for ids in categorical[:2]:
        logits = logits + np.where(ids % 2, 1.5, -1.5)
    labels = rng.random(num_samples) < 1 / (1 + np.exp(-logits))
    return ClickData(labels, numerical, categorical)
