"""Position of a positive in its candidate list, HR@k and NDCG@k. NumPy only."""

import math

import numpy as np


def ranks_of_positives(items: np.ndarray, labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Counts the other items that score at least as much as the positive: its rank, from 0.

    Items count once, however often a list has them. A tie is against the positive.

    Args:
        items: Integers [lists, length], 0 or more.
        labels: [lists, length], 1 at the positive, 0 elsewhere.
        scores: Floats [lists, length].

    Returns:
        int64 [lists], 0 to length - 1.
    """
    positive = np.argmax(labels, axis=1)[:, None]
    above = scores >= np.take_along_axis(scores, positive, axis=1)
    above &= items != np.take_along_axis(items, positive, axis=1)
    # Items above, equal ones side by side, behind -1 for each of the rest: the positive at least.
    ascending = np.sort(np.where(above, items, -1), axis=1)
    return np.count_nonzero(ascending[:, 1:] != ascending[:, :-1], axis=1)


def hit_rate(counts: np.ndarray, k: int) -> float:
    """Returns HR@k, the share of the positives in the first k places, from counts by place."""
    return int(counts[:k].sum()) / int(counts.sum())


def ndcg(counts: np.ndarray, k: int) -> float:
    """Returns NDCG@k, the mean of ln 2 / ln(rank + 2) below k, else 0, from counts by rank."""
    gains = (int(n) * math.log(2) / math.log(rank + 2) for rank, n in enumerate(counts[:k]))
    return math.fsum(gains) / int(counts.sum())
