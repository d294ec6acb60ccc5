"""Mean and standard deviation of numerical features, block by block."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of a feature; a deviation of 0 does not divide."""

    mean: float
    standard_deviation: float


class BlockStatistics(NamedTuple):
    """Number, mean and sum of squared deviations from it of values, less a first value."""

    count: int
    mean: float
    squares: float

    @classmethod
    def from_values(cls, present: np.ndarray, first: float) -> "BlockStatistics":
        """Returns the statistics of float64 values, of which there must be one and no NaN."""
        present = present - first
        mean = _sum(present) / present.size
        return cls(present.size, mean, _sum(np.square(present - mean)))


def _sum(values: np.ndarray) -> float:
    """Returns the sum of float64 values, in pairs of pairs.

    `np.sum` adds in another order in other versions of NumPy and on other processors, and engines
    run in environments of their own.
    """
    while values.size > 1:
        half = values.size // 2
        last = values[2 * half :]
        values = values[:half] + values[half : 2 * half]
        if last.size:  # of an odd number
            values[-1] += last[0]
    return float(values[0])


class RunningStatistics:
    """Mean and population standard deviation of a stream of values; NaN is a missing value.

    The deviations from the first value are accumulated with the update of Chan et al., "Updating
    Formulae and a Pairwise Algorithm for Computing Sample Variances", so a small deviation around
    a large mean is exact, and that of a constant is 0.
    """

    def __init__(self):
        self.count = 0
        self._first = self._mean = self._squares = 0.0

    def add(self, values: np.ndarray) -> None:
        """Accumulates float64 values."""
        present = values[~np.isnan(values)]
        if not present.size:
            return
        if not self.count:
            self._first = float(present[0])
        self._merge(BlockStatistics.from_values(present, self._first))

    def add_blocks(self, blocks: Iterable[BlockStatistics], first: float) -> None:
        """Accumulates blocks of values, in order, less the first value of all."""
        self._first = first
        for block in blocks:
            self._merge(block)

    def _merge(self, block: BlockStatistics) -> None:
        count, change = self.count + block.count, block.mean - self._mean
        self._squares += block.squares
        self._squares += change * change * self.count * block.count / count
        self._mean += change * block.count / count
        self.count = count

    @property
    def scale(self) -> Scale:
        """Mean and standard deviation of the values; there must be one."""
        return Scale(self._first + self._mean, math.sqrt(self._squares / self.count))
