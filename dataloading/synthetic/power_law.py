"""Ids with a power law: P(id = k) is proportional to (k + 1)^-alpha for 0 <= k < cardinality."""

import numpy as np

# Ids below this have their exact probability in a table. From here on (k + 1)^-alpha is taken as
# its integral over [k + 0.5, k + 1.5], which differs by less than alpha * 1e-10 of itself, so that
# a table of any cardinality costs at most 1 MiB.
_HEAD_IDS = 65_536
# Cells of equal probability that point into the table; nearly all hold a single id, which saves
# the binary search.
_CELLS = 16_384


class PowerLaw:
    """Draws ids of one feature.

    Args:
        alpha: the exponent, 0 or more; 0 draws all ids equally often.
    """

    def __init__(self, cardinality: int, alpha: float):
        self.cardinality = cardinality
        self.alpha = alpha
        head = np.arange(1, min(cardinality, _HEAD_IDS) + 1, dtype=np.float64) ** -alpha
        tail, low, high = 0.0, _HEAD_IDS + 0.5, cardinality + 0.5
        if cardinality > _HEAD_IDS and abs(alpha - 1) < 1e-9:
            tail = float(np.log(high / low))
        elif cardinality > _HEAD_IDS:
            tail = float((high ** (1 - alpha) - low ** (1 - alpha)) / (1 - alpha))
        self.head_probabilities = head / (head.sum() + tail)
        self._cumulative = np.cumsum(self.head_probabilities)
        if not tail:
            self._cumulative[-1] = 1.0
        edges = np.arange(_CELLS + 1) / _CELLS
        ids = np.searchsorted(self._cumulative, edges, side="right").astype(np.int32)
        self._first_id = ids[:-1]
        self._shared_cell = ids[:-1] != ids[1:]

    def draw(self, generator: np.random.Generator, shape) -> np.ndarray:
        if self.alpha == 0:
            return generator.integers(0, self.cardinality, shape)
        uniform = generator.random(shape)
        cell = (uniform * _CELLS).astype(np.int32)
        ids = self._first_id[cell].astype(np.int64)
        search = np.nonzero(self._shared_cell[cell])
        ids[search] = np.searchsorted(self._cumulative, uniform[search], side="right")
        if self.cardinality > len(self._cumulative):
            in_tail = np.nonzero(ids >= len(self._cumulative))
            below, power = self._cumulative[-1], 1 - self.alpha
            part = (uniform[in_tail] - below) / (1 - below)
            low, high = _HEAD_IDS + 0.5, self.cardinality + 0.5
            if abs(power) < 1e-9:
                rank = low * (high / low) ** part
            else:
                rank = (low**power + part * (high**power - low**power)) ** (1 / power)
            drawn = np.rint(rank).astype(np.int64) - 1
            ids[in_tail] = np.clip(drawn, _HEAD_IDS, self.cardinality - 1)
        return ids
