"""DLRM dot interaction."""

import numpy as np
import tensorflow as tf
from distributed_embeddings.keras import keras

from nn.layers.fused_op import DotImplementation, custom_op

# The width of the result is padded to a multiple of this, so that the matrix products of the next
# layer keep to the tile sizes of tensor cores and vector units.
WIDTH_MULTIPLE = 8


def _pair_of_gram_entry(num_features: int) -> np.ndarray:
    """Returns the pair of each entry of the flat Gram matrix; for the diagonal the pair count."""
    rows, columns = np.tril_indices(num_features, k=-1)
    pairs = np.full((num_features, num_features), len(rows), np.int32)
    pairs[rows, columns] = pairs[columns, rows] = np.arange(len(rows))
    return pairs.reshape(-1)


@tf.custom_gradient
def pairwise_dots(features: tf.Tensor):
    """Computes the dot products of all pairs of features of a sample.

    They are the strictly lower triangle of X X^T, with the gradient dX = (G + G^T) X where G holds
    the pairs' gradients. TensorFlow's own gradient would scatter single numbers; here whole runs of
    memory are copied: G + G^T is gathered from the transposed gradient, where a pair is a row.

    Returns:
        [batch, num_features * (num_features - 1) / 2], row by row: (1,0), (2,0), (2,1), (3,0), ...
    """
    num_features = features.shape[1]
    gram = tf.matmul(features, features, transpose_b=True)
    pairs = tf.concat([gram[:, i, :i] for i in range(num_features)], axis=1)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        by_pair = tf.pad(tf.transpose(upstream), [[0, 1], [0, 0]])
        symmetric = tf.transpose(tf.gather(by_pair, _pair_of_gram_entry(num_features)))
        symmetric = tf.reshape(symmetric, [-1, num_features, num_features])
        return tf.matmul(symmetric, features)

    return pairs, gradient


def gathered_pairs(features: tf.Tensor) -> tf.Tensor:
    """Computes `pairwise_dots` in three operations, where it has a slice per feature.

    onnxruntime and OpenVINO take microseconds for each output of an operation, which is most of a
    small batch's time. In TensorFlow this is the slower way.
    """
    num_features = features.shape[1]
    gram = tf.matmul(features, features, transpose_b=True)
    rows, columns = np.tril_indices(num_features, k=-1)
    entries = (rows * num_features + columns).astype(np.int32)
    return tf.gather(tf.reshape(gram, [-1, num_features**2]), entries, axis=1)


class DotInteraction(keras.layers.Layer):
    """Dot products of all pairs of features, next to the bottom MLP's output.

        y = [bottom, x_1 . x_0, x_2 . x_0, x_2 . x_1, ..., 0, ...]

    Zeros pad the width to a multiple of 8.

    Args:
        implementation: The fused op ("dot_custom"), plain TensorFlow ("dot_tensorflow"), or
            "dot_gather" for models that are exported: fewer operations, but a slower gradient.

    Raises:
        ValueError: The implementation is unknown. In a call: a feature tensor has the wrong rank or
            width.
        ImportError: The fused op is not available.

    Example:
        embeddings, bottom = tf.random.normal([32, 26, 16]), tf.random.normal([32, 16])
        output = DotInteraction()(embeddings, bottom)
        output.shape  # (32, 368): 16 + 27 * 26 / 2 = 367, padded to a multiple of 8

    Reference: Naumov et al., "Deep Learning Recommendation Model for Personalization and
    Recommendation Systems", 2019.
    """

    def __init__(
        self,
        implementation: str = DotImplementation.TENSORFLOW,
        *,
        name: str = "dot",
        dtype: str = "float32",
    ):
        super().__init__(name=name, dtype=dtype)
        self.implementation = DotImplementation(implementation)
        fused = self.implementation is DotImplementation.FUSED
        self.operation = custom_op().dot_based_interact if fused else None

    def call(self, embeddings: tf.Tensor, bottom: tf.Tensor | None) -> tf.Tensor:
        """Combines the features of a sample.

        Args:
            embeddings: [batch, num_tables, dim].
            bottom: [batch, dim], the bottom MLP's output; None in a model without numerical
                features.

        Returns:
            [batch, width], width = dim + num_features (num_features - 1) / 2 rounded up to a
            multiple of 8, num_features = num_tables + 1; without `bottom` the first summand and the
            extra feature are missing.
        """
        if self.operation is not None:
            layout = "pairs" if bottom is None else "separate"
            return self.operation(embeddings, bottom, layout=layout)
        features = embeddings
        if bottom is not None:
            features = tf.concat([bottom[:, tf.newaxis, :], embeddings], axis=1)
        is_gathered = self.implementation is DotImplementation.GATHER
        columns = [gathered_pairs(features) if is_gathered else pairwise_dots(features)]
        if bottom is not None:
            columns.insert(0, bottom)
        padding = -sum(part.shape[1] for part in columns) % WIDTH_MULTIPLE
        if padding and is_gathered:  # copies once more, without operations for the batch size
            return tf.pad(tf.concat(columns, axis=1), [[0, 0], [0, padding]])
        if padding:
            columns.append(tf.zeros([tf.shape(embeddings)[0], padding], embeddings.dtype))
        return tf.concat(columns, axis=1)
