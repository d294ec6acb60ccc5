"""Clicks with numerical features and one id per categorical feature."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np


class ClickData(NamedTuple):
    """Samples in memory, or mapped from files.

    Attributes:
        labels: bool [n].
        numerical: float16 [n, numerical features].
        categorical: Of each feature its ids, integers [n].
    """

    labels: np.ndarray
    numerical: np.ndarray
    categorical: Sequence[np.ndarray]

    def batches(self, batch_size: int) -> Iterator["ClickData"]:
        """Yields full batches."""
        for start in range(0, len(self.labels) - batch_size + 1, batch_size):
            batch = slice(start, start + batch_size)
            ids = [feature[batch] for feature in self.categorical]
            yield ClickData(self.labels[batch], self.numerical[batch], ids)


def read_table_sizes(folder: Path) -> list[int]:
    """Returns the rows of each table: those of model_size.json and one more."""
    sizes = json.loads((folder / "model_size.json").read_text())
    return [size + 1 for size in sizes.values()]


def id_dtype(rows: int) -> np.dtype:
    """Returns the dtype of the ids of a table: the smallest that holds its number of rows."""
    return np.dtype(
        next(dtype for dtype in (np.int8, np.int16, np.int32) if rows < np.iinfo(dtype).max)
    )


def read_split(folder: Path, table_sizes: Sequence[int], num_numerical: int) -> ClickData:
    """Maps label.bin, numerical.bin and cat_0.bin, cat_1.bin, ... of a split.

    Raises:
        ValueError: The files have different numbers of samples.
    """
    numerical = np.memmap(folder / "numerical.bin", np.float16, "r").reshape(-1, num_numerical)
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


def generate(
    num_batches: int, batch_size: int, table_sizes: Sequence[int], num_numerical: int, seed: int
) -> Iterator[ClickData]:
    """Draws batches, one at a time, in which two ids and a numerical feature decide on clicks."""
    for number in range(num_batches):
        rng = np.random.default_rng([seed, number])
        numerical = rng.random([batch_size, num_numerical], np.float32).astype(np.float16)
        categorical = [rng.integers(0, rows, batch_size, np.int32) for rows in table_sizes]
        logits = 2.0 * numerical[:, 0] - 1
        for ids in categorical[:2]:
            logits = logits + np.where(ids % 2, 1.5, -1.5)
        labels = rng.random(batch_size) < 1 / (1 + np.exp(-logits))
        yield ClickData(labels, numerical, categorical)
