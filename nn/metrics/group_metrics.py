"""Metrics of the order within groups of samples, such as those of one user: GAUC, NDCG, MRR, HR."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed_embeddings.collectives import World

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


class GroupMetrics:
    """Scores with the id of their group; exact on any number of ranks.

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

    Memory: 16 bytes per sample of this rank, and about 60 while `result` sorts those of its groups.

    Attributes:
        notes: the number of groups that count, after `result`, by the kind of the note.
    """

    def __init__(self, grouping: Grouping, world: World = World()):
        self.notes: dict[str, str] = {}
        self._grouping, self._world = grouping, world
        self._rows = [np.empty([0, 2], np.int64)]  # group; bits of the logit, then the label
        self._num_others = 0

    def add(self, groups, labels, logits, weights) -> None:
        """Adds a batch of this rank; columns [batch] or [batch, 1], arrays or eager tensors.

        Args:
            groups: Integer ids.
            labels: 0 or 1.
            logits: Compared in float32.
            weights: 1, or 0 for padding.
        """
        columns = (np.asarray(c).reshape(-1) for c in (groups, labels, logits, weights))
        groups, labels, logits, weights = columns
        has_group = groups >= self._grouping.first_id
        self._num_others += np.count_nonzero((weights > 0) & ~has_group)
        groups, labels, logits = (c[(weights > 0) & has_group] for c in (groups, labels, logits))
        bits = logits.astype(np.float32).view(np.int32).astype(np.int64)
        self._rows.append(np.stack([groups.astype(np.int64), (bits << 1) | (labels == 1)], axis=1))

    def result(self) -> dict[str, float]:
        """Returns the metrics of the samples of all ranks; NaN if no group has both labels.

        Collective: samples go to the rank that their group's id selects.
        """
        rows = np.concatenate(self._rows)
        size = self._world.size
        if size > 1:
            owner = rows[:, 0] % size
            rows = rows[np.argsort(owner, kind="stable")]
            splits = np.bincount(owner, minlength=size).astype(np.int32)
            received, _ = self._world.all_to_all(rows, splits, "metrics.groups")
            rows = np.asarray(received)
        labels = rows[:, 1] & 1
        logits = (rows[:, 1] >> 1).astype(np.int32).view(np.float32)
        own = [self._num_others, *_sums(rows[:, 0], labels, logits, self._grouping.cutoffs)]
        gathered = self._world.gather_objects([float(value) for value in own], "metrics.group_sums")
        others, groups, counted, samples, wins, *sums = np.sum(gathered, axis=0)
        self._set_notes(int(groups), int(counted), int(others))
        if not counted:
            return dict.fromkeys(self._grouping.metrics, math.nan)
        values = [wins / samples, *(total / counted for total in sums)]
        return dict(zip(self._grouping.metrics, map(float, values), strict=True))

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
        gains = np.append(0, np.cumsum(1 / np.log2(np.arange(2, k + 2))))
        gained = gains[np.minimum(above + sizes, k)] - gains[np.minimum(above, k)]
        gained = np.bincount(group, positives / sizes * gained, num_groups)[both]
        ndcg = gained / gains[np.minimum(group_positives[both].astype(np.int64), k)]
        sums += [ndcg.sum(), *_first_positive(above[first], sizes[first], positives[first], k)]
    return sums


def _first_positive(
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
