"""The loss of neural collaborative filtering."""

import tensorflow as tf

from nn.train.losses import binary_cross_entropy


def ncf_loss(model, batch, training: bool = True) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Returns the mean log loss of a batch, which has no terms.

    Args:
        model: an `NCFModel`.
        batch: inputs, labels [batch, 1] and weights [batch, 1] float32.
        training: drop units out, as a training step does.
    """
    logits = model.forward(batch.inputs, training=training)
    labels, weights = (tf.cast(x, logits.dtype) for x in (batch.labels, batch.weights))
    return binary_cross_entropy(labels, logits, weights), {}
