"""Ids that extend the one id of a feature to several: a table with a row for each id.

The ids are those of `multi_hot.py` of MLPerf's reference (recommendation_v2/torchrec_dlrm): NumPy's
legacy generator with seed 0 draws the tables of the features in their order. A sample with id i has
the ids i, T[i, 0], T[i, 1], ... of table T, so that equal ids are extended equally.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DISTRIBUTIONS = ("uniform", "pareto")
_PARETO_SHAPE = 0.25
_SEED = 0
# Ids that are drawn at once: 64 MiB of int64 or float64 are in memory.
_DRAWN_IDS = 1 << 23
_INT32_MIN = -(2**31)


@dataclass(frozen=True)
class Extension:
    """Ids that follow the id of a feature, which is taken modulo the cardinality.

    Attributes:
        cardinality: number of ids, and rows of the table.
        width: ids that are added to each id; 0: none.
        distribution: "uniform" over the ids, or "pareto": a Pareto distribution of shape 0.25,
            converted to int32 and then modulo the number of ids.
        state: of the generator before this table, see `state_of`.
    """

    cardinality: int
    width: int
    distribution: str
    state: str | None

    @functools.cached_property
    def _table(self) -> NDArray[np.int32]:
        blocks = draw(generator(self.state), self.cardinality, self.width, self.distribution)
        return np.concatenate([np.empty([0, self.width], np.int32), *blocks])

    def extend(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns ids [n] and those that extend them, [n, 1 + width]."""
        ids = ids[:, None] % self.cardinality
        return np.concatenate([ids, self._table[ids[:, 0]]], axis=1) if self.width else ids


def draw(
    random: np.random.RandomState,
    cardinality: int,
    width: int,
    distribution: str,
    drawn_ids: int = _DRAWN_IDS,
) -> Iterator[NDArray[np.int32]]:
    """Yields the rows of a table in blocks.

    Args:
        cardinality, width, distribution: see `Extension`.
        drawn_ids: ids that are in memory at a time; without effect on the result.
    """
    block = max(1, drawn_ids // max(1, width))
    for start in range(0, cardinality if width else 0, block):
        size = min(block, cardinality - start), width
        if distribution == "uniform":
            ids = random.randint(0, cardinality, size=size)
        else:
            values = random.pareto(_PARETO_SHAPE, size=size)
            # Numbers beyond int32 become its minimum, as on x86.
            ids = np.where(values < 2**31, values, _INT32_MIN).astype(np.int64) % cardinality
        yield ids.astype(np.int32)


def generator(state: str | None) -> np.random.RandomState:
    """Returns the generator in a state; None: before the first table."""
    random = np.random.RandomState(_SEED)
    if state is not None:
        *keys, position = np.frombuffer(bytes.fromhex(state), "<u4")
        random.set_state(("MT19937", np.array(keys, np.uint32), int(position)))
    return random


def state_of(random: np.random.RandomState) -> str:
    """Returns the state of the generator as text."""
    _, keys, position, *_ = random.get_state()
    return np.append(keys, position).astype("<u4").tobytes().hex()
