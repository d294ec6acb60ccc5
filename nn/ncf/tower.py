"""The MLP of neural collaborative filtering, whose first layer works on distinct vectors."""

import math
from collections.abc import Sequence
from itertools import pairwise

import tensorflow as tf
from distributed_embeddings.exchange.gradients import expand
from distributed_embeddings.keras import keras
from distributed_embeddings.seeds import derive_seed

from nn.layers.fully_connected import sum_over_batch
from nn.ncf.relu_dropout import ReluDropout

# Rows whose share of a kernel's gradient is one matrix product. oneDNN takes up to twice as long
# for one product over 131,072 rows as for 16 of 8,192.
_BLOCK_ROWS = 8192


def product_over_batch(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Returns x^T y of [batch, m] and [batch, n], by blocks that are summed in float32."""
    num_blocks = tf.shape(x)[0] // _BLOCK_ROWS
    whole = num_blocks * _BLOCK_ROWS
    of_blocks = tf.matmul(
        *(tf.reshape(z[:whole], [num_blocks, _BLOCK_ROWS, z.shape[1]]) for z in (x, y)),
        transpose_a=True,
    )
    rest = tf.matmul(x[whole:], y[whole:], transpose_a=True)
    dtype = tf.float64 if x.dtype == tf.float64 else tf.float32
    total = tf.reduce_sum(tf.cast(of_blocks, dtype), axis=0) + tf.cast(rest, dtype)
    return tf.cast(total, x.dtype)


@tf.custom_gradient
def _affine(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor):
    """Returns x W + b."""

    def gradient(dy):
        return (
            tf.matmul(dy, kernel, transpose_b=True),
            product_over_batch(x, dy),
            sum_over_batch(dy),
        )

    return tf.nn.bias_add(tf.matmul(x, kernel), bias), gradient


def uniform(limit: float, seed: int, *names: str) -> keras.initializers.Initializer:
    """Returns U(-limit, limit) for the weight of these names."""
    return keras.initializers.RandomUniform(-limit, limit, derive_seed(seed, *names))


class Tower(keras.layers.Layer):
    """Affine, ReLU and dropout for each hidden layer, on a user's and an item's vector.

        x_0 = [user, item];  x_i = dropout(relu(x_{i-1} W_i + b_i))

    The first layer is linear in the two vectors: user W_u + item W_i + b_1, with the halves W_u and
    W_i of W_1. Each product is computed once per distinct user and item of a batch.

    Kernels start Glorot uniform, biases uniform in +-sqrt(1 / width of the input).

    Args:
        widths: Widths of the input and of the hidden layers, at least one.
        dropout: Share of hidden units that a training step leaves out, in [0, 1).
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        seed: int,
        name: str,
        dropout: float = 0.0,
        dropout_seed: int = 0,
        dtype: str = "float32",
    ):
        super().__init__(name=name, dtype=dtype)
        self.widths = tuple(widths)
        self.seed = derive_seed(seed, name)
        self.dropouts = None
        if dropout:
            self.dropouts = [
                ReluDropout(dropout, seed=derive_seed(dropout_seed, name), name=f"dense_{i}")
                for i in range(len(self.widths) - 1)
            ]

    def build(self, input_shape):
        self.kernels, self.biases = [], []
        for i, (fan_in, fan_out) in enumerate(pairwise(self.widths)):
            name = f"dense_{i}"
            glorot = uniform(math.sqrt(6 / (fan_in + fan_out)), self.seed, name, "kernel")
            of_bias = uniform(math.sqrt(1 / fan_in), self.seed, name, "bias")
            kernel = self.add_weight(f"{name}/kernel", [fan_in, fan_out], initializer=glorot)
            self.kernels.append(kernel)
            self.biases.append(self.add_weight(f"{name}/bias", [fan_out], initializer=of_bias))
        super().build(input_shape)

    def call(self, users, items, user_of_row, item_of_row, step=None) -> tf.Tensor:
        """Returns the units of the last layer, [batch, widths[-1]] in the compute dtype.

        Args:
            users, items: Vectors of distinct users and items, [n, widths[0] / 2].
            user_of_row, item_of_row: int32 [batch], number of each sample's user and item.
            step: Training step, for dropout; None without dropout.
        """
        users, items = self.first_layer(users, items)
        x = self._activate([expand(users, user_of_row), expand(items, item_of_row)], 0, step)
        return self.other_layers(x, step)

    def first_layer(self, users: tf.Tensor, items: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the two terms of the first layer before its ReLU, [n, widths[1]] each."""
        of_users, of_items = tf.split(tf.convert_to_tensor(self.kernels[0]), 2)
        bias = tf.convert_to_tensor(self.biases[0])
        return _affine(users, of_users, bias), tf.matmul(items, of_items)

    def other_layers(self, x: tf.Tensor, step: tf.Tensor | None = None) -> tf.Tensor:
        """Maps the units of the first layer, [batch, widths[1]], to those of the last one."""
        for i in range(1, len(self.kernels)):
            kernel, bias = map(tf.convert_to_tensor, (self.kernels[i], self.biases[i]))
            x = self._activate([_affine(x, kernel, bias)], i, step)
        return x

    def _activate(self, terms: list[tf.Tensor], layer: int, step) -> tf.Tensor:
        if step is None or self.dropouts is None:
            return tf.nn.relu(tf.add_n(terms))
        return self.dropouts[layer](terms, step)
