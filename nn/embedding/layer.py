"""Embedding tables: ids in, rows out."""

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from nn.embedding.weights import TableWeight, fill_uniform
from nn.keras import keras
from runtime.device import derive_seed


@dataclass(frozen=True)
class TableConfig:
    """One embedding table: `rows` x `dim`, float32."""

    name: str
    rows: int
    dim: int


class EmbeddingCollection(keras.layers.Layer):
    """A table for each categorical feature; tables of one width share one variable.

    Table t of a group starts at row `offset_t` of the group's variable, so that a batch costs one
    gather and one sparse update for each width and not for each table. Several ids of a row are
    summed (multi-hot). Initial values are uniform in +-sqrt(1 / rows) of the table
    (Naumov et al., 2019).

    Args:
      tables: the tables, one a feature, in the order of the features.
      seed: seed of the initial values; a table's values depend on it and on the table's name alone,
        not on how tables are grouped.
      zeros: start with zeros instead.
      trainable: whether the tables get gradients.
      dtype: Keras dtype policy; the tables are float32, the output has the compute dtype.
    """

    def __init__(
        self,
        tables: Sequence[TableConfig],
        *,
        seed: int = 0,
        zeros: bool = False,
        trainable: bool = True,
        name: str = "embedding",
        dtype: str = "float32",
    ):
        super().__init__(name=name, dtype=dtype, trainable=trainable)
        self.tables = tuple(tables)
        self.groups: list[list[int]] = []  # feature numbers of each group, by falling width
        self.group_variables: list[tf.Variable] = []
        self._offsets: list[list[int]] = []
        for dim in sorted({table.dim for table in self.tables}, reverse=True):
            self._add_group([f for f, table in enumerate(self.tables) if table.dim == dim], dim)
        if not zeros:
            for weight in self.table_weights():
                fill_uniform(weight, derive_seed(seed, weight.name))

    def _add_group(self, features: list[int], dim: int) -> None:
        offsets, rows = [], 0
        for f in features:
            offsets.append(rows)
            rows += self.tables[f].rows
        variable = self.add_weight(
            name=f"tables_of_width_{dim}",
            shape=[rows, dim],
            dtype=tf.float32,
            initializer="zeros",
            trainable=self.trainable,
            experimental_autocast=False,  # never a float16 copy of a whole table
        )
        self.groups.append(features)
        self.group_variables.append(variable)
        self._offsets.append(offsets)

    def table_weights(self) -> list[TableWeight]:
        """The tables as whole tables, in the order of the features, wherever their rows live."""
        weights: list[TableWeight | None] = [None] * len(self.tables)
        for g, features in enumerate(self.groups):
            for f, offset in zip(features, self._offsets[g], strict=True):
                table = self.tables[f]
                weights[f] = TableWeight(
                    table.name, (table.rows, table.dim), self.group_variables[g], offset
                )
        return weights

    def call(self, ids: Sequence[tf.Tensor]) -> tf.Tensor:
        """Looks rows up.

        Args:
          ids: one integer tensor a feature, [batch, hotness of the feature]; ids are in
            [0, rows of the table). The loader checks that: on a GPU a gather would not.

        Returns:
          [batch, sum of the tables' dims] in the compute dtype, features in their order.
        """
        if len(ids) != len(self.tables):
            raise ValueError(f"{len(self.tables)} tables, but ids of {len(ids)} features")
        outputs: list[tf.Tensor | None] = [None] * len(self.tables)
        for g, features in enumerate(self.groups):
            rows = self._look_up_group(g, [ids[f] for f in features])
            if len(self.groups) == 1:
                return rows
            dim = self.tables[features[0]].dim
            for f, output in zip(features, tf.split(rows, len(features), axis=1), strict=True):
                outputs[f] = tf.ensure_shape(output, [None, dim])
        return tf.concat(outputs, axis=1)

    def _look_up_group(self, g: int, ids: list[tf.Tensor]) -> tf.Tensor:
        """[batch, number of the group's features * dim]."""
        variable = self.group_variables[g]
        num_rows, dim = variable.shape
        id_dtype = tf.int32 if num_rows < 2**31 else tf.int64
        hotness = [feature.shape[1] for feature in ids]
        offsets = [
            offset
            for offset, count in zip(self._offsets[g], hotness, strict=True)
            for _ in range(count)
        ]
        all_ids = tf.concat([tf.cast(feature, id_dtype) for feature in ids], axis=1)
        rows = tf.gather(variable, all_ids + tf.constant(offsets, id_dtype))
        rows = tf.cast(rows, self.compute_dtype)
        if len(set(hotness)) == 1:
            if hotness[0] > 1:
                rows = tf.reshape(rows, [-1, len(ids), hotness[0], dim])
                rows = tf.reduce_sum(rows, axis=2)
        else:
            pieces = tf.split(rows, hotness, axis=1)
            rows = tf.stack([tf.reduce_sum(piece, axis=1) for piece in pieces], axis=1)
        return tf.reshape(rows, [-1, len(ids) * dim])
