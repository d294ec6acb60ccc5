"""Pairs and rates of two classes of scores, each in ascending order: what an exact AUC counts."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Rows that are looked up at once: bounds the temporary memory (2 x 8 bytes per row).
_LOOKUP_ROWS = 1 << 20


class SortedScores(NamedTuple):
    """Some rows of one class. A class is a list of these.

    scores: float32 [n], ascending.
    cumulative: None where each score stands for one row; else [n + 1], how many rows (int64), or
        which weight (float64), the scores before each one stand for: [0, ..., total].
    """

    scores: np.ndarray
    cumulative: np.ndarray | None = None

    @property
    def total(self) -> int | float:
        """Rows, or their weight."""
        return len(self.scores) if self.cumulative is None else self.cumulative[-1].item()


def total(rows: Sequence[SortedScores]) -> int | float:
    """Rows of a class, or their weight."""
    return sum(part.total for part in rows)


def mass_below(rows: Sequence[SortedScores], thresholds: np.ndarray, side: str = "left"):
    """Rows (or their weight) whose score is below each threshold; "right": at most the threshold.

    Returns:
        int64 or float64 [thresholds].
    """
    mass = np.zeros(len(thresholds), np.int64)
    for scores, cumulative in rows:
        counts = np.searchsorted(scores, thresholds, side)
        mass = mass + (counts if cumulative is None else cumulative[counts])
    return mass


def doubled_wins(positives: Sequence[SortedScores], negatives: Sequence[SortedScores]):
    """2 x the pairs in which the positive has the higher score + the pairs of equal scores.

    The smaller class is looked up in the larger. Pairs of rows are counted in integers (an int,
    exact whatever its size), pairs with weights in float64.
    """
    swapped = sum(len(p.scores) for p in positives) > sum(len(n.scores) for n in negatives)
    few, many = (negatives, positives) if swapped else (positives, negatives)
    lower = 0  # pairs in which the score of `many` is the lower one count 2, ties 1
    for scores, cumulative in few:
        for start in range(0, len(scores), _LOOKUP_ROWS):
            part = scores[start : start + _LOOKUP_ROWS]
            counts = mass_below(many, part, "left") + mass_below(many, part, "right")
            if cumulative is None:
                lower += counts.sum().item()
                continue
            masses = np.diff(cumulative[start : start + len(part) + 1])
            if masses.dtype == np.int64 and 2 * total(many) * int(masses.sum()) >= 2**63:
                counts = counts.astype(object)
            product = counts @ masses
            lower += product.item() if isinstance(product, np.generic) else product
    return 2 * total(positives) * total(negatives) - lower if swapped else lower


def auc_of(doubled_wins, positive, negative) -> float:
    """Returns the AUC for numbers of won pairs, positives and negatives."""
    return min(max(doubled_wins / (2 * positive * negative), 0.0), 1.0)  # weights may round past


def rates(mass_below: np.ndarray, total) -> np.ndarray:
    """The rate of a class from 0 to 1, at falling thresholds below which it has `mass_below`."""
    rate = 1 - mass_below / max(total, np.finfo(np.float64).tiny)
    return np.concatenate(([0.0], rate, [1.0]))
