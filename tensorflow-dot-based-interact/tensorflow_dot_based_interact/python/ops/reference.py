"""The dot interaction in plain TensorFlow: the specification of the op."""

import numpy as np
import tensorflow as tf

# Rows of the output are filled with zeros to a multiple of this many numbers.
WIDTH_MULTIPLE = 8


def dot_based_interact(
    input: tf.Tensor, bottom_mlp_output: tf.Tensor | None, layout: str = "joined"
) -> tf.Tensor:
    """Computes DLRM's dot interaction; arguments and result are those of the op."""
    features = input
    parts = [tf.zeros([tf.shape(input)[0], 0], input.dtype)]
    if layout != "pairs":
        parts = [tf.reshape(bottom_mlp_output, [tf.shape(input)[0], tf.shape(input)[2]])]
    if layout == "separate":
        features = tf.concat([parts[0][:, tf.newaxis, :], input], axis=1)
    num_features = features.shape[1]
    if num_features is None:
        raise ValueError(f"input must have a known number of features, got {input.shape}")
    if num_features > 1:
        rows, columns = np.tril_indices(num_features, k=-1)
        gram = tf.matmul(features, features, transpose_b=True)
        flat = tf.reshape(gram, [-1, num_features**2])
        parts.append(tf.gather(flat, rows * num_features + columns, axis=1))
    joined = tf.concat(parts, axis=1)
    padding = -tf.shape(joined)[1] % WIDTH_MULTIPLE
    return tf.pad(joined, [[0, 0], [0, padding]])
