"""The dot interaction in plain TensorFlow: the specification of the op."""

import numpy as np
import tensorflow as tf

# Rows of the output are filled with zeros to a multiple of this many numbers.
WIDTH_MULTIPLE = 8


def dot_based_interact(
    input: tf.Tensor, bottom_mlp_output: tf.Tensor | None, layout: str = "joined"
) -> tf.Tensor:
    """DLRM's dot interaction (Naumov et al., 2019, section 2.1.3).

    Args:
      input: [batch, features, dim] float32, float16 or bfloat16. With layout "joined" its row 0 is
        the bottom MLP's output.
      bottom_mlp_output: [batch, dim] or [batch, 1, dim], same dtype; None with layout "pairs".
      layout: "joined"; "separate": `bottom_mlp_output` is one more feature, before those of
        `input`; "pairs": no bottom MLP.

    Returns:
      [batch, width], same dtype: the bottom MLP's output (none with "pairs"), the dot products of
      the strictly lower triangle row by row, (1, 0), (2, 0), (2, 1), ..., and zeros to a multiple
      of 8 columns.

    Raises:
      ValueError: the number of features is not known.
    """
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
