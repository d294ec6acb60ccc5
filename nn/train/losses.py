"""Losses of the recipes."""

import tensorflow as tf


def binary_cross_entropy(labels: tf.Tensor, logits: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Returns the weighted log loss, divided by the batch size and not by the sum of weights.

        1/batch sum_i w_i (max(z_i, 0) - z_i y_i + log(1 + exp(-|z_i|)))

    With the weights of the loaders (`dataloading/pipeline/batch.py`), the average over ranks is the
    mean over all samples of the global batch, and so are its gradients.

    Args:
        labels: [batch, 1] float32, 0 or 1.
        logits: [batch, 1] float32.
        weights: [batch, 1] float32, 1 on average over the ranks; 0 leaves a sample out.
    """
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(weights * losses)


def click_loss(model, batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Returns the log loss of a batch, which has no terms."""
    logits = model(batch.inputs, training=True, weights=batch.weights)
    return binary_cross_entropy(batch.labels, logits, batch.weights), {}
