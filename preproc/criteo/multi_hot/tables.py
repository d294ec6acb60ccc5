"""Ids that extend the one id of a feature to several: a table with a row for each id.

The ids are those of `multi_hot.py` of MLPerf's reference (recommendation_v2/torchrec_dlrm): NumPy's
legacy generator with seed 0 draws the tables of the features in their order. A sample with id i has
the ids i, T[i, 0], T[i, 1], ... of table T, so that equal ids are extended equally.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

DISTRIBUTIONS = ("uniform", "pareto")
_PARETO_SHAPE = 0.25
_SEED = 0
# Ids that are drawn at once: 64 MiB of int64 or float64 are in memory.
_DRAWN_IDS = 1 << 23
_INT32_MIN = -(2**31)


def table_file(folder: Path, feature: int) -> Path:
    """Returns the file of a feature's table: int32 [cardinality, hotness - 1] without a header."""
    return folder / f"table_{feature}.bin"


def draw_table(
    path: Path,
    cardinality: int,
    width: int,
    distribution: str,
    state: list | None,
    drawn_ids: int = _DRAWN_IDS,
) -> list:
    """Writes the table of a feature.

    Args:
        cardinality: Number of ids, and of rows.
        width: Ids that are added to each id; 0 writes an empty file and draws nothing.
        distribution: "uniform" over the ids, or "pareto": a Pareto distribution of shape 0.25,
            converted to int32 and then modulo the number of ids.
        state: Generator after the previous feature, JSON values; None: the first feature.
        drawn_ids: Ids that are in memory at a time; without effect on the result.

    Returns:
        The state of the generator after this feature.
    """
    random = np.random.RandomState(_SEED)
    if state is not None:
        random.set_state((state[0], np.array(state[1], np.uint32), *state[2:]))
    with path.open("wb") as file:
        block = max(1, drawn_ids // max(1, width))
        for start in range(0, cardinality if width else 0, block):
            size = min(block, cardinality - start), width
            if distribution == "uniform":
                ids = random.randint(0, cardinality, size=size)
            else:
                values = random.pareto(_PARETO_SHAPE, size=size)
                # Numbers beyond int32 become its minimum, as on x86.
                ids = np.where(values < 2**31, values, _INT32_MIN).astype(np.int64) % cardinality
            file.write(ids.astype(np.int32).tobytes())
        file.flush()
        os.fsync(file.fileno())
    name, keys, *rest = random.get_state()
    return [name, keys.tolist(), *rest]


class Tables:
    """The tables of all features, mapped into memory.

    Args:
        folder: Of the files.
        cardinalities: Of the features.
        hotness: Ids per sample of the features.
    """

    def __init__(self, folder: Path, cardinalities: Any, hotness: Any):
        self._shapes = [(n, h - 1) for n, h in zip(cardinalities, hotness, strict=True)]
        self._folder = folder
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._sorts = [4 * n * width > memory_bytes // 2 for n, width in self._shapes]

    def extend(self, feature: int, ids: np.ndarray) -> np.ndarray:
        """Returns int32 [samples, hotness]: the ids, [samples], and those that extend them."""
        rows, width = self._shapes[feature]
        extended = np.empty([len(ids), 1 + width], np.int32)
        extended[:, 0] = ids
        if width:
            path = table_file(self._folder, feature)
            table = np.memmap(path, np.int32, "r", shape=(rows, width))
            # A table beyond the memory is read in the order of the file.
            order = np.argsort(ids) if self._sorts[feature] else slice(None)
            extended[order, 1:] = table[ids[order]]
        return extended
