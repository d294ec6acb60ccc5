"""Calibration of click probabilities: predicted against observed rates, in constant memory."""

from typing import NamedTuple

import numpy as np
from distributed_embeddings.collectives import World

# Bins of the predicted probability, of equal width: 240 kB, whatever the number of samples.
NUM_BINS = 10_000


class Reliability(NamedTuple):
    """Groups of samples of similar prediction, in ascending order; each float64 [groups].

    predicted: mean prediction of each group.
    observed: share of positives of each group.
    mass: samples of each group.
    """

    predicted: np.ndarray
    observed: np.ndarray
    mass: np.ndarray


class Calibration:
    """Sums over bins of the predicted probability.

    Attributes:
        sums: float64 [3, NUM_BINS]: negatives, positives, and the sum of the probabilities of both.
    """

    def __init__(self, sums: np.ndarray | None = None):
        self.sums = np.zeros([3, NUM_BINS]) if sums is None else sums

    def add(self, positives: np.ndarray, probabilities: np.ndarray) -> None:
        """Adds samples: bool [samples], and float64 [samples] in [0, 1]."""
        bins = np.minimum((probabilities * NUM_BINS).astype(np.int64), NUM_BINS - 1)
        classes = np.bincount(bins + NUM_BINS * positives, minlength=2 * NUM_BINS)
        self.sums[:2] += classes.reshape(2, NUM_BINS)
        self.sums[2] += np.bincount(bins, probabilities, NUM_BINS)

    def over(self, world: World) -> "Calibration":
        """Returns the sums of all ranks, on every rank; all ranks call it."""
        (sums,) = world.all_reduce([self.sums], "sum", "metrics.calibration")
        return Calibration(np.asarray(sums))

    def reliability(self, num_groups: int = 20) -> Reliability:
        """Joins neighbouring bins to at most `num_groups` groups of about equal mass."""
        mass = self.sums[0] + self.sums[1]
        used = mass > 0
        mass, sums = mass[used], self.sums[:, used]
        middle = np.cumsum(mass) - mass / 2
        group = (num_groups * middle / mass.sum()).astype(np.int64)
        joined = [np.bincount(group, values, num_groups) for values in (mass, sums[2], sums[1])]
        mass, predicted, observed = (values[joined[0] > 0] for values in joined)
        return Reliability(predicted / mass, observed / mass, mass)

    def histogram(self, num_bars: int = 50) -> tuple[float, np.ndarray]:
        """Returns (largest shown probability, share of its class in each bar, [2, num_bars]).

        The range ends where at most 0.1 % of the samples are above, at 1, 0.5, 0.2, 0.1, ...; the
        last bar holds those, too.
        """
        mass = self.sums[0] + self.sums[1]
        above = mass[::-1].cumsum()[::-1] / mass.sum()
        end = NUM_BINS
        for shown in (5000, 2000, 1000, 500, 200, 100):
            if above[shown] > 1e-3:
                break
            end = shown
        bars = np.minimum(np.arange(NUM_BINS) * num_bars // end, num_bars - 1)
        counts = [np.bincount(bars, weights, num_bars) for weights in self.sums[:2]]
        return end / NUM_BINS, np.stack([c / max(c.sum(), 1e-300) for c in counts])
