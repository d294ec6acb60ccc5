"""Ensemble of MLPs that share their hidden layers."""

import math
from collections.abc import Sequence

import tensorflow as tf
from distributed_embeddings.keras import keras
from distributed_embeddings.seeds import derive_seed

from nn.layers.dropout import DropoutPlace
from nn.layers.fully_connected import MLP


class MemberMLP(keras.layers.Layer):
    """Logits of the members of an ensemble with shared hidden layers.

        logit_k = MLP(x * r_k) . w_k + b_k

    r_k starts as a vector of random signs and is trained, and each member has its own output layer
    (w_k, b_k). Time grows with the number of members, memory of weights hardly.

    Args:
        dims: Sizes of the layers; the last one is 1.
        dropout: (rate, seed) of the hidden units in training; None: no dropout.

    Example:
        MemberMLP((32, 1), 8, seed=1, name="mlp")(tf.ones([64, 16])).shape  # (64, 8)

    Reference: Gorishniy et al., "TabM: Advancing Tabular Deep Learning with Parameter-Efficient
        Ensembling", 2025, the variant TabM-mini.
    """

    def __init__(
        self,
        dims: Sequence[int],
        num_members: int,
        *,
        seed: int,
        name: str,
        dropout: tuple[float, int] | None = None,
        dtype: str = "float32",
    ):
        super().__init__(name=name, dtype=dtype)
        self.num_members, self.seed = num_members, derive_seed(seed, name)
        self.hidden = MLP(dims[:-1], seed=self.seed, name="hidden", dropout=dropout, dtype=dtype)
        self.last_width = dims[-2] if len(dims) > 1 else 0

    def build(self, input_shape):
        width = int(input_shape[-1])
        last_width = self.last_width or width
        signs_seed = [derive_seed(self.seed, "signs"), 0]

        def draw_signs(shape, dtype=None, **_):
            drawn = tf.random.stateless_uniform(shape, signs_seed, 0, 2, tf.int32)
            return tf.cast(2 * drawn - 1, dtype)

        self.signs = self.add_weight(
            name="signs",
            shape=[self.num_members, width],
            initializer=draw_signs,
            experimental_autocast=False,
        )
        normal = keras.initializers.RandomNormal(
            stddev=math.sqrt(2 / (last_width + 1)), seed=derive_seed(self.seed, "kernel")
        )
        shape = [self.num_members, last_width]
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=normal)
        self.bias = self.add_weight(
            name="bias",
            shape=[self.num_members],
            initializer="zeros",
            experimental_autocast=False,
        )
        super().build(input_shape)

    def call(self, x: tf.Tensor, place: DropoutPlace | None = None) -> tf.Tensor:
        """Maps [batch, n] to logits [batch, num_members] in the dtype of the weights.

        `place` is that of `Dropout`; without one nothing is dropped.
        """
        # In the dtype of the weights, as the gradient of `signs` is a sum over the batch. The rows
        # of a member follow each other: in bfloat16 OpenVINO 2026.4 mixes up members of a sample.
        signs = tf.convert_to_tensor(self.signs)[:, tf.newaxis]
        signed = tf.cast(tf.cast(x, self.variable_dtype) * signs, x.dtype)
        hidden = self.hidden(tf.reshape(signed, [-1, signed.shape[-1]]), place, self.num_members)
        hidden = tf.reshape(hidden, [self.num_members, -1, hidden.shape[-1]])
        logits = tf.matmul(hidden, tf.convert_to_tensor(self.kernel)[:, :, tf.newaxis])[:, :, 0]
        logits = tf.cast(tf.transpose(logits), self.variable_dtype)
        return logits + tf.convert_to_tensor(self.bias)


def mean_member(logits: tf.Tensor) -> tf.Tensor:
    """Returns the logit of the mean probability of members, [batch, members] to [batch, 1].

    log(mean_k sigmoid(z_k)) - log(mean_k sigmoid(-z_k))
    """
    if logits.shape[1] == 1:
        return logits
    log_positive, log_negative = (
        tf.reduce_logsumexp(-tf.nn.softplus(sign * logits), axis=1, keepdims=True)
        for sign in (-1, 1)
    )
    return log_positive - log_negative
