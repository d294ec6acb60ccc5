"""Concatenated one-hot embedding tables of one width."""

import numpy as np
import tensorflow as tf

from distributed_embeddings.keras import keras
from distributed_embeddings.optimizers.fused_steps import TableMark, mark_table


@keras.utils.register_keras_serializable(package="distributed_embeddings")
class ConcatOneHotEmbedding(keras.layers.Layer):
    """Tables of one width in one variable, looked up with one id each.

    Feature f's table is the rows offsets[f] to offsets[f + 1] - 1 of `params`.

    Args:
        feature_sizes: rows of each feature's table.
        **kwargs: of `keras.layers.Layer`; `dtype` is float32 by default.

    Attributes:
        params: [sum of feature_sizes, embedding_width], Keras' default initial values.
        offsets: int32 (int64 from 2^31 rows on) [number of features + 1].
    """

    def __init__(self, feature_sizes, embedding_width, **kwargs):
        sizes = [int(size) for size in feature_sizes]
        if not sizes or min(sizes) <= 0 or embedding_width <= 0:
            raise ValueError(
                "feature_sizes and embedding_width must be positive, got "
                f"{sizes} and {embedding_width}"
            )
        super().__init__(**{"dtype": "float32", "autocast": False, **kwargs})
        self.feature_sizes = sizes
        self.embedding_width = embedding_width
        bounds = np.cumsum([0, *sizes])
        self.params = self.add_weight(
            name="params", shape=[bounds[-1], embedding_width], experimental_autocast=False
        )
        mark_table(self.params, TableMark(compiled=True))
        self.offsets = tf.constant(bounds, tf.int32 if bounds[-1] < 2**31 else tf.int64)

    def call(self, inputs):
        """Returns one row per feature, [batch, number of features, embedding_width].

        Args:
            inputs: integer [batch, number of features]; ids of feature f in [0, feature_sizes[f]),
                which is not checked: one beyond reads a neighbouring table's row.
        """
        if inputs.shape.rank != 2 or inputs.shape[1] != len(self.feature_sizes):
            raise ValueError(
                f"{self.name}: ids must be [batch, {len(self.feature_sizes)}], one column a "
                f"feature; got {inputs.shape}"
            )
        dtype = tf.int64 if tf.int64 in (inputs.dtype, self.offsets.dtype) else tf.int32
        rows = tf.cast(inputs, dtype) + tf.cast(self.offsets[:-1], dtype)
        return tf.cast(tf.gather(self.params, rows), self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "feature_sizes": self.feature_sizes,
            "embedding_width": self.embedding_width,
        }
