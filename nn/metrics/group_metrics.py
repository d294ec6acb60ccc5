"""Metrics of the order within groups of samples, such as those of one user: GAUC, NDCG, MRR, HR."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed_embeddings.collectives import World

from nn.metrics.metric import Metric

GROUPS = "groups"  # kind of the note


@dataclass(frozen=True)
class Grouping:
    """Groups of samples by the ids of a feature.

    Attributes:
        feature: its name.
        column_of: returns its column, [batch] or [batch, 1], of the inputs of a batch.
        first_id: samples of smaller ids, which stand for missing and unknown values, have no group.
        cutoffs: numbers of first places, the k of NDCG@k.
    """

    feature: str
    column_of: Callable[[Any], Any]
    first_id: int = 0
    cutoffs: Sequence[int] = (5, 10)

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics."""
        at_k = (f"{name}@{k}" for k in self.cutoffs for name in ("ndcg", "mrr", "hr"))
        return ["gauc", *dict.fromkeys(at_k)]


class GroupMetrics(Metric):
    """Metrics of the order within groups; exact on any number of ranks.

    Only groups with both labels count. GAUC = sum of samples x AUC over the groups, divided by
    their samples (Zhu et al., "Optimized Cost per Click in Taobao Display Advertising", 2017); the
    others are means over groups:

        NDCG@k = sum over positives in the first k places of 1 / log2(1 + place), divided by the
                 largest possible sum
        MRR@k  = 1 / (place of the first positive), 0 if it is not in the first k places
        HR@k   = 1 if a positive is in the first k places, else 0

    Places count from 1. Samples of equal scores are in random order, and the metric is its expected
    value (McSherry and Najork, "Computing Information Retrieval Performance Measures Efficiently in
    the Presence of Tied Scores", 2008): a model whose scores are all equal is as good as chance.

    Attributes:
        notes: the number of groups that count, after `result`, by the kind of the note.
    """

    def __init__(self, grouping: Grouping):
        self.names, self._grouping = grouping.metrics, grouping

    def group_of(self, inputs: Any) -> Any:
        return self._grouping.column_of(inputs)

    def start(self, world: World) -> None:
        super().start(world)
        self._num_others = 0

    def add(self, groups: Any, labels: Any, logits: Any, weights: Any) -> None:
        weights = np.asarray(weights).reshape(-1)
        has_group = np.asarray(groups).reshape(-1) >= self._grouping.first_id
        self._num_others += np.count_nonzero((weights > 0) & ~has_group)
        super().add(groups, labels, logits, weights * has_group)

    def sums(self, groups: Any, labels: Any, logits: Any) -> dict[str, tuple[float, float]]:
        num_groups, counted, samples, wins, *sums = _sums(
            groups, labels, logits, self._grouping.cutoffs
        )
        values = [(wins, samples), *((total, counted) for total in sums)]
        counts = {"groups": (num_groups, counted), "others": (self._num_others, 0)}
        return counts | dict(zip(self.names, values, strict=True))

    def totals(self) -> dict[str, tuple[float, float]]:
        totals = super().totals()
        (others, _), (groups, counted) = totals["others"], totals["groups"]
        self._set_notes(int(groups), int(counted), int(others))
        return totals

    def _set_notes(self, groups: int, counted: int, others: int) -> None:
        feature = self._grouping.feature
        text = (
            f"{', '.join(self._grouping.metrics)} are means over the {counted:,} of {groups:,} "
            f"groups of equal '{feature}' that have a positive and a negative row"
        )
        if others:
            text += f"; {others:,} rows of missing or unknown '{feature}' are in no group"
        self.notes = {GROUPS: text}


def _sums(
    groups: np.ndarray, labels: np.ndarray, logits: np.ndarray, cutoffs: Sequence[int]
) -> list[float]:
    """Returns the number of groups, that of groups with both labels, and over these the sums of
    samples, of samples x AUC, and of NDCG@k, MRR@k, HR@k for each cutoff."""
    cutoffs = list(dict.fromkeys(cutoffs))
    if not len(groups):
        return [0.0] * (4 + 3 * len(cutoffs))
    order = np.lexsort((-logits, groups))
    groups, labels, logits = groups[order], labels[order], logits[order]
    new_group = np.diff(groups, prepend=groups[0] - 1) != 0
    # Samples of equal score in one group are one tie; ties are in the order of their scores.
    new_tie = new_group.copy()
    new_tie[1:] |= logits[1:] != logits[:-1]
    starts = np.flatnonzero(new_tie)
    group = np.cumsum(new_group)[starts] - 1
    above = starts - np.flatnonzero(new_group)[group]  # samples of better score in the group
    sizes = np.diff(starts, append=len(labels))
    positives = np.add.reduceat(labels, starts)

    num_groups = group[-1] + 1
    group_sizes = np.bincount(group, sizes, num_groups)
    group_positives = np.bincount(group, positives, num_groups)
    group_negatives = group_sizes - group_positives
    both = (group_positives > 0) & (group_negatives > 0)
    positives_above = np.cumsum(positives) - positives
    positives_above -= (np.cumsum(group_positives) - group_positives).astype(np.int64)[group]
    lost = positives * (above - positives_above + (sizes - positives) / 2)
    lost = np.bincount(group, lost, num_groups)[both]
    aucs = 1 - lost / (group_positives * group_negatives)[both]
    sums = [num_groups, both.sum(), group_sizes[both].sum(), group_sizes[both] @ aucs]

    first = np.flatnonzero(positives)[np.unique(group[positives > 0], return_index=True)[1]]
    first = first[both[group[first]]]
    for k in cutoffs:
        k = min(k, int(group_sizes.max()))
        ndcgs = ndcg(group, above, sizes, positives, k)[both]
        sums += [ndcgs.sum(), *first_positive(above[first], sizes[first], positives[first], k)]
    return sums


def ndcg(
    group: np.ndarray, above: np.ndarray, sizes: np.ndarray, positives: np.ndarray, k: int
) -> np.ndarray:
    """Returns NDCG@k of each group, 0 without positives, given its ties.

    Args:
        group: Number of the tie's group, from 0; int64 [ties], as the others.
        above, sizes, positives, k: See `first_positive`.
    """
    gains = np.append(0, np.cumsum(1 / np.log2(np.arange(2, k + 2))))
    gained = positives / sizes * (gains[np.minimum(above + sizes, k)] - gains[np.minimum(above, k)])
    num_positives = np.bincount(group, positives).astype(np.int64)
    return np.bincount(group, gained) / gains[np.clip(num_positives, 1, k)]


def first_positive(
    above: np.ndarray, sizes: np.ndarray, positives: np.ndarray, k: int
) -> tuple[float, float]:
    """Returns the sums of MRR@k and HR@k, given for each group its first tie with positives.

    Args:
        above: Samples of better score; int64 [groups], as the others.
        sizes: Samples of the tie.
        positives: Those that are positive.
        k: Number of places.
    """
    reciprocal, missed = 0.0, np.ones(len(above))
    for place in range(k):
        left = sizes - (place - above)  # samples of the tie for this place and later ones
        is_in_tie = (place >= above) & (left > 0)
        chance = np.where(is_in_tie, np.minimum(positives / np.maximum(left, 1), 1), 0)
        reciprocal += (missed * chance).sum() / (place + 1)
        missed *= 1 - chance
    return reciprocal, (1 - missed).sum()
