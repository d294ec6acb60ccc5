"""GAUC: mean of the AUCs of groups of samples, such as those of one user."""

import math

import numpy as np
from distributed_embeddings.collectives import World


class GroupAuc:
    """Scores with the id of their group; exact on any number of ranks.

    GAUC = sum of samples x AUC over the groups, divided by their samples; groups of one class have
    no AUC and are left out (Zhu et al., "Optimized Cost per Click in Taobao Display Advertising",
    2017). It measures the order of the candidates of one user, which the AUC mixes with the
    differences between users.

    Memory: 16 bytes per sample of this rank, and about 60 while `result` sorts those of its groups.
    """

    def __init__(self, world: World = World()):
        self._world = world
        self._rows = [np.empty([0, 2], np.int64)]  # group; bits of the logit, then the label

    def add(self, groups, labels, logits, weights) -> None:
        """Adds a batch of this rank; columns [batch] or [batch, 1], arrays or eager tensors.

        Args:
            groups: Integer ids.
            labels: 0 or 1.
            logits: Compared in float32.
            weights: 1, or 0 for padding.
        """
        is_sample = np.asarray(weights).reshape(-1) > 0
        groups, labels, logits = (
            np.asarray(column).reshape(-1)[is_sample] for column in (groups, labels, logits)
        )
        bits = logits.astype(np.float32).view(np.int32).astype(np.int64)
        self._rows.append(np.stack([groups.astype(np.int64), (bits << 1) | (labels == 1)], axis=1))

    def result(self) -> float:
        """Returns the GAUC of the samples of all ranks; NaN if no group has both classes.

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
        own = _sums(rows[:, 0], labels, logits)
        total, num_samples = np.sum(self._world.gather_objects(own, "metrics.gauc"), axis=0)
        return float(total / num_samples) if num_samples else math.nan


def _sums(groups: np.ndarray, labels: np.ndarray, logits: np.ndarray) -> tuple[float, int]:
    """Returns the sum of samples x AUC, and of samples, over the groups of both classes."""
    if not len(groups):
        return 0.0, 0
    order = np.lexsort((logits, groups))
    groups, labels, logits = groups[order], labels[order], logits[order]
    new_group = np.diff(groups, prepend=groups[0] - 1) != 0
    # Samples of equal score in one group are one tie.
    new_tie = new_group.copy()
    new_tie[1:] |= logits[1:] != logits[:-1]
    group = np.cumsum(new_group)[new_tie] - 1
    starts = np.flatnonzero(new_tie)
    positives = np.add.reduceat(labels, starts)
    negatives = np.add.reduceat(1 - labels, starts)
    num_groups = group[-1] + 1
    sums = [np.bincount(group, counts, num_groups) for counts in (negatives, positives)]
    below = np.cumsum(negatives) - negatives
    below = below - (np.cumsum(sums[0]) - sums[0])[group]
    wins = np.bincount(group, positives * (below + negatives / 2), num_groups)
    both = (sums[0] > 0) & (sums[1] > 0)
    num_samples = (sums[0] + sums[1])[both]
    aucs = wins[both] / (sums[0] * sums[1])[both]
    return float(num_samples @ aucs), int(num_samples.sum())
