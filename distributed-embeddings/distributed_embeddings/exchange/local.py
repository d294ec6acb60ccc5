"""Lookup by a rank alone: in replicated tables, and on one process in all whole ones."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from distributed_embeddings.exchange.group_variable import GroupVariable
from distributed_embeddings.exchange.ids import Ids, Signature
from distributed_embeddings.exchange.lookups import Lookups, by_group
from distributed_embeddings.planner import Lookup


class Local:
    """Part of a lookup: ids of this rank's samples, in its own variables.

    Args:
        lookups: Of this rank.
        variables: Of this rank's groups.
        signatures: Of the ids of all features.
    """

    def __init__(
        self,
        lookups: Sequence[Lookup],
        variables: Sequence[GroupVariable],
        signatures: Mapping[int, Signature],
    ):
        self._groups = [
            (variables[group[0].group], Lookups(group, signatures)) for group in by_group(lookups)
        ]
        order = [r.feature for _, lookups in self._groups for r in lookups.pooled]
        self._is_in_order = order == list(range(len(signatures)))

    def concatenated(self, ids: Mapping[int, Ids], name: str) -> tf.Tensor | None:
        """Returns the vectors [batch, width]; None if they are not in the features' order."""
        if not self._is_in_order:
            return None
        return tf.concat([pooled for pooled, _ in self._look_up(ids)], axis=1)

    def __call__(self, ids: Mapping[int, Ids], name: str) -> dict[int, tf.Tensor]:
        """Returns the vectors of this rank's samples by feature."""
        outputs: dict[int, tf.Tensor] = {}
        results = self._look_up(ids)
        for (_, lookups), (pooled, uncombined) in zip(self._groups, results, strict=True):
            features = [r.feature for r in lookups.uncombined]
            outputs |= zip(features, uncombined, strict=True)
            if pooled is not None:
                outputs |= {r.feature: part for r, part in lookups.split(pooled)}
        return outputs

    def _look_up(self, ids: Mapping[int, Ids]):
        return [
            variable.look_up(lookups, *lookups.select(ids)) for variable, lookups in self._groups
        ]
