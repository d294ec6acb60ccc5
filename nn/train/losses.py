"""Losses of the recipes."""

import tensorflow as tf


def binary_cross_entropy(labels: tf.Tensor, logits: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Mean log loss of the rows, weighted: a plain mean over the batch, whatever the weights are.

        1/batch sum_i w_i (max(z_i, 0) - z_i y_i + log(1 + exp(-|z_i|)))

    The loaders' weights (`dataloading/pipeline/batch.py`) are made for it: averaged over the
    ranks, this and
    its gradients are those of the mean over all real rows of the global batch.

    Args:
      labels: [batch, 1] float32, 0 or 1.
      logits: [batch, 1] float32.
      weights: [batch, 1] float32, 1 on average over the ranks; 0 leaves a row out.

    Returns:
      float32 scalar.
    """
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(weights * losses)
