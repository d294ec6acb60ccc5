"""The losses of sequential recommenders, and their sum."""

from collections.abc import Callable

import tensorflow as tf

from nn.sequence.dien import AuxiliaryOutputs
from nn.train.losses import binary_cross_entropy

# Maps logits and weights [batch, 1] to the auxiliary loss.
AuxiliaryLoss = Callable[[AuxiliaryOutputs, tf.Tensor], tf.Tensor]


def auxiliary_loss(aux: AuxiliaryOutputs, weights: tf.Tensor) -> tf.Tensor:
    """DIEN's auxiliary loss: each interest state should know the item of the next step.

        1/batch sum_i w_i 1/n_i sum_t (-log p(item t + 1) - log(1 - p(negative item t + 1)))

    over the n_i pairs of real steps of sample i; a sample with none adds 0. Averaged over ranks
    this is the loss of the global batch; a mean over all pairs would not be, since ranks differ in
    their number of pairs.

    Args:
        aux: Logits and mask [batch, pairs].
        weights: [batch, 1] float32, 1 on average over the ranks; 0 leaves a sample out.
    """
    losses, num_pairs = _sums_of_pairs(aux)
    return tf.reduce_mean(weights * losses / tf.maximum(num_pairs, 1))


def auxiliary_loss_over_steps(aux: AuxiliaryOutputs, weights: tf.Tensor) -> tf.Tensor:
    """Auxiliary loss as in NVIDIA's recipe: a mean over all steps, padding included.

        1/batch sum_i w_i 1/T sum_t (-log p(item t + 1) - log(1 - p(negative item t + 1)))

    with T pairs per sample, so that short histories count less. The original adds 1e-6 to p, and
    so has no value from a logit of about 14 on; this one has.

    Arguments as of `auxiliary_loss`.
    """
    losses, _ = _sums_of_pairs(aux)
    return tf.reduce_mean(weights * losses) / aux.mask.shape[1]


def _sums_of_pairs(aux: AuxiliaryOutputs) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the loss of each sample, summed over its pairs, and their number, [batch, 1]."""
    losses = tf.nn.softplus(-aux.positive_logits) + tf.nn.softplus(aux.negative_logits)
    real = tf.cast(aux.mask, losses.dtype)
    return (
        tf.reduce_sum(losses * real, axis=1, keepdims=True),
        tf.reduce_sum(real, axis=1, keepdims=True),
    )


def sequence_loss(model, batch, training: bool = True) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Returns the loss of a batch, and its terms by name: those that the model has.

    Args:
        batch: Inputs, labels [batch, 1] and weights [batch, 1] float32.
    """
    outputs = model.forward(batch.inputs, training=training, weights=batch.weights)
    labels, weights = (tf.cast(x, outputs.logits.dtype) for x in (batch.labels, batch.weights))
    parts = {"classification_loss": binary_cross_entropy(labels, outputs.logits, weights)}
    if outputs.aux is not None:
        parts["dien_aux_loss"] = model.variant.auxiliary_loss(outputs.aux, weights)
    if outputs.gsu_logits is not None:
        gsu_loss = binary_cross_entropy(labels, outputs.gsu_logits, weights)
        if model.variant.averages_stages:
            parts["classification_loss"] = 0.5 * (gsu_loss + parts["classification_loss"])
        else:
            parts["gsu_loss"] = gsu_loss
    return tf.add_n(list(parts.values())), parts
