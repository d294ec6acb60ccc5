"""Variable of a group of shards, in which a rank looks up."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from distributed_embeddings.exchange import bag_gradients
from distributed_embeddings.exchange.ids import Ids
from distributed_embeddings.exchange.lookups import Lookups


@dataclass(frozen=True)
class GroupVariable:
    """A group's variable on this rank, or its layer of a class of its own.

    Attributes:
        holder: The variable [rows, dim], or the layer.
        compiled: Whether the compiled operations may be used.
        check_ids: Whether an id outside its table raises InvalidArgumentError.
        dtype: Of the vectors.
    """

    holder: Any
    compiled: bool
    check_ids: bool
    dtype: tf.DType

    def look_up(
        self, lookups: Lookups, fixed: tf.Tensor | None, ragged: Sequence[Ids]
    ) -> tuple[tf.Tensor | None, list[tf.Tensor]]:
        """Looks up the ids of this group's lookups.

        Args:
            fixed, ragged: See `Lookups.select`.

        Returns:
            ([batch, width] of the pooled lookups, None without any; [n, columns] of each
            uncombined one).
        """
        if isinstance(self.holder, tf.Variable):
            vectors = [
                bag_gradients.look_up(self.holder, bags, self.dtype, self.check_ids, self.compiled)
                for bags in lookups.bags(fixed, ragged)
            ]
        else:
            vectors = _call_layer(self.holder, lookups, fixed, ragged, self.dtype)
        num_pooled = len(vectors) - len(lookups.uncombined)  # which come last
        pooled = tf.concat(vectors[:num_pooled], axis=1) if num_pooled else None
        return pooled, vectors[num_pooled:]


def _call_layer(
    layer, lookups: Lookups, fixed: tf.Tensor | None, ragged: Sequence[Ids], dtype
) -> list[tf.Tensor]:
    """Calls a layer of a custom class with one group's ids.

    Returns:
        One output for each of `lookups.bags(fixed, ragged)`: [batch, width], without combiner
        [ids, columns].
    """
    columns = lookups.ordered[0].shard.columns
    outputs = []
    if lookups.fixed:
        vectors, signatures = [], [lookups.signatures[x.feature] for x in lookups.fixed]
        parts = tf.split(fixed, [s.num_ids for s in signatures], axis=1)
        for signature, part in zip(signatures, parts, strict=True):
            shape = [*signature.inner, *([signature.hotness] if signature.combiner else [])]
            output = layer(tf.reshape(part, [-1, *shape]))
            _check_output(layer, output, (*signature.inner, columns))
            output = tf.reshape(output, [-1, signature.vectors * columns])
            vectors.append(tf.cast(output, dtype))
        outputs.append(tf.concat(vectors, axis=1))
    for ids in ragged:
        output = layer(tf.RaggedTensor.from_row_lengths(ids.values, ids.lengths, validate=False))
        if ids.signature.combiner is None:
            output = output.values
        _check_output(layer, output, (columns,))
        outputs.append(tf.cast(output, dtype))
    return outputs


def _check_output(layer, output, expected: tuple[int, ...]) -> None:
    if tuple(output.shape[1:]) != expected:
        raise ValueError(
            f"{type(layer).__name__} {layer.name}: expected an output of shape "
            f"{['batch', *expected]} (that of the ids, without the last dimension if the layer has "
            f"a combiner, and output_dim), got {output.shape}"
        )
