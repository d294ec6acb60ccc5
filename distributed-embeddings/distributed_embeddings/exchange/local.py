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
        # A CPU looks each feature up alone, rather than to split the vectors of a group and to
        # concatenate their gradients. A GPU starts fewer kernels.
        self._lookups = self._groups
        if not tf.config.get_visible_devices("GPU"):
            self._lookups = [(variables[x.group], Lookups([x], signatures)) for x in lookups]
        order = [x.feature for _, group in self._groups for x in group.pooled]
        self._is_in_order = order == list(range(len(signatures)))

    def concatenated(self, ids: Mapping[int, Ids], name: str) -> tf.Tensor | None:
        """Returns the vectors [batch, width]; None if they are not in the features' order."""
        if not self._is_in_order:
            return None
        results = [variable.look_up(x, *x.select(ids)) for variable, x in self._groups]
        return tf.concat([pooled for pooled, _ in results], axis=1)

    def __call__(self, ids: Mapping[int, Ids], name: str) -> dict[int, tf.Tensor]:
        """Returns the vectors of this rank's samples by feature."""
        outputs: dict[int, tf.Tensor] = {}
        for variable, x in self._lookups:
            pooled, uncombined = variable.look_up(x, *x.select(ids))
            outputs |= zip([r.feature for r in x.uncombined], uncombined, strict=True)
            if pooled is not None:
                outputs |= {r.feature: part for r, part in x.split(pooled)}
        return outputs
