"""Metrics of one's own over the samples of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from distributed_embeddings.collectives import World
from numpy.typing import NDArray


class Metric:
    """Metric of samples with labels 0 and 1; exact on any number of ranks.

    A subclass has `names` and `sums`, and `group_of` if samples belong together.

    Memory: 16 bytes per sample of this rank, and about 60 while `result` sorts those of its groups.

    Attributes:
        names: names of its values, of which higher ones are better.
        notes: remarks on the last result by their kind.
    """

    names: Sequence[str] = ()
    notes: Mapping[str, str] = {}

    def group_of(self, inputs: Any) -> Any:
        """Returns integers, [batch] or [batch, 1], of the inputs of a batch, in the graph: samples
        of equal ones are in one call of `sums`. None: samples have no groups."""
        return None

    def sums(
        self, groups: NDArray[np.int64], labels: NDArray[np.int64], logits: NDArray[np.float32]
    ) -> Mapping[str, tuple[float, float]]:
        """Returns numerator and denominator of each value over samples, in any order.

        Both are sums over groups, or samples: those of the ranks are added before the division.

        Args:
            groups: see `group_of`, [samples]; 0 without groups.
            labels: 0 or 1, [samples].
            logits: [samples].
        """
        raise NotImplementedError

    def start(self, world: World) -> None:
        """Starts an evaluation, of these ranks."""
        self._world = world
        self._rows = [np.empty([0, 2], np.int64)]  # group; bits of the logit, then the label

    def add(self, groups: Any, labels: Any, logits: Any, weights: Any) -> None:
        """Adds a batch of this rank; columns [batch] or [batch, 1], arrays or eager tensors.

        Args:
            groups: integers; None: no groups.
            labels: 0 or 1.
            logits: compared in float32.
            weights: 1, or 0 for padding.
        """
        groups = np.zeros(np.size(labels), np.int64) if groups is None else groups
        columns = (np.asarray(c).reshape(-1) for c in (groups, labels, logits, weights))
        groups, labels, logits, weights = columns
        groups, labels, logits = (c[weights > 0] for c in (groups, labels, logits))
        bits = logits.astype(np.float32).view(np.int32).astype(np.int64)
        self._rows.append(np.stack([groups.astype(np.int64), (bits << 1) | (labels == 1)], axis=1))

    def totals(self) -> dict[str, tuple[float, float]]:
        """Returns `sums` of the samples of all ranks.

        Collective: samples go to the rank that their group selects.
        """
        rows, size = np.concatenate(self._rows), self._world.size
        if size > 1 and type(self).group_of is not Metric.group_of:
            owner = rows[:, 0] % size
            rows = rows[np.argsort(owner, kind="stable")]
            splits = np.bincount(owner, minlength=size).astype(np.int32)
            received, _ = self._world.all_to_all(rows, splits, "metrics.groups")
            rows = np.asarray(received)
        labels = rows[:, 1] & 1
        logits = (rows[:, 1] >> 1).astype(np.int32).view(np.float32)
        own = self.sums(rows[:, 0], labels, logits)
        if not {*self.names} <= {*own}:
            raise ValueError(
                f"{type(self).__name__}.sums: expected the values {', '.join(self.names)} of "
                f"`names`, got {', '.join(own)}"
            )
        texts = {name: [float(value) for value in values] for name, values in own.items()}
        gathered = self._world.gather_objects(texts, "metrics.group_sums")
        return {
            name: tuple(math.fsum(part[name][i] for part in gathered) for i in (0, 1))
            for name in own
        }

    def result(self) -> dict[str, float]:
        """Returns each value over the samples of all ranks, NaN without any; collective."""
        totals = self.totals()
        return {
            name: totals[name][0] / totals[name][1] if totals[name][1] else math.nan
            for name in self.names
        }
