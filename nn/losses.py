"""Losses of the recipes."""

import tensorflow as tf


def binary_cross_entropy(labels: tf.Tensor, logits: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Mean log loss of the rows, weighted.

        sum_i w_i (max(z_i, 0) - z_i y_i + log(1 + exp(-|z_i|))) / sum_i w_i

    Args:
      labels: [batch, 1] float32, 0 or 1.
      logits: [batch, 1] float32.
      weights: [batch, 1] float32; 0 leaves a row out.

    Returns:
      float32 scalar; 0 if no row counts.
    """
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.math.divide_no_nan(tf.reduce_sum(weights * losses), tf.reduce_sum(weights))
