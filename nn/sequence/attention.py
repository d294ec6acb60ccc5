"""Attention of a target over a history: scores, weights and weighted sums."""

import math
from collections.abc import Callable

import tensorflow as tf
from distributed_embeddings.keras import keras
from distributed_embeddings.precision import precise
from distributed_embeddings.seeds import derive_seed

from nn.layers.fully_connected import sum_over_batch
from nn.sequence.mlp import INITIAL_SLOPE

ACTIVATION_UNIT_DIM = 36  # DIN (Zhou et al., 2018), figure 2

NUM_HEADS = 4


def masked_softmax(scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Softmax over the last axis among the places where `mask` (broadcast) is True; 0 elsewhere."""
    # Not minus infinity, of which two have no difference: a history may be all padding.
    weights = tf.nn.softmax(tf.where(mask, scores, scores.dtype.min))
    any_place = tf.reduce_any(mask, axis=-1, keepdims=True)
    return weights * tf.cast(any_place, weights.dtype)


def attend(
    queries: tf.Tensor, keys: tf.Tensor, choose: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """Attends to the chosen keys: sum_j softmax_j(<query, key_j>) key_j for each query.

    Keys are their own values. The gradient is written out, so that the two parts of the keys' (as
    keys and as values) are one matrix product: to add up gradients of the largest tensor of a model
    took longer than the products.

    Args:
        queries: [batch, queries, dim].
        keys: [batch, n, dim].
        choose: Function of the scores [batch, queries, n], at least float32, that returns the keys
            that count for each query, bool [batch, queries or 1, n].

    Returns:
        [batch, queries, dim] in the dtype of keys; 0 for a query without a key.
    """

    @tf.custom_gradient
    def run(queries, keys):
        scores = precise(tf.matmul(queries, keys, transpose_b=True))
        weights = masked_softmax(scores, choose(scores))
        factors = tf.cast(weights, keys.dtype)

        def gradient(d_found):
            d_weights = precise(tf.matmul(d_found, keys, transpose_b=True))
            mean = tf.reduce_sum(weights * d_weights, axis=2, keepdims=True)
            d_scores = tf.cast(weights * (d_weights - mean), keys.dtype)
            d_keys = tf.matmul(
                tf.concat([d_scores, factors], axis=1),
                tf.concat([queries, d_found], axis=1),
                transpose_a=True,
            )
            return tf.matmul(d_scores, keys), d_keys

        return tf.matmul(factors, keys), gradient

    return run(queries, keys)


class DotAttention(keras.layers.Layer):
    """A history as a target sees it: softmax(<target, key_j> / sqrt(dim)) weighs key_j.

    It has no weights: `seed` is not read.
    """

    def __init__(self, *, seed: int = 0, name: str = "attention", dtype: str = "float32"):
        super().__init__(name=name, dtype=dtype)

    def call(self, target: tf.Tensor, keys: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Maps [batch, dim], [batch, n, dim], bool [batch, n] to [batch, dim]; 0 without a key."""
        query = target[:, tf.newaxis, :] / math.sqrt(keys.shape[-1])
        interest = attend(query, keys, lambda _: mask[:, tf.newaxis, :])
        return tf.squeeze(interest, axis=1)


@tf.custom_gradient
def _kernels_by_sample(shared: tf.Tensor, target: tf.Tensor, of_product: tf.Tensor):
    """Returns shared + diag(target_i) of_product for each sample i, [batch, dim, units].

    `shared` and `of_product` are [dim, units]. Gradients are summed by matrix products, in float32.
    """
    dim, units = shared.shape

    def gradient(upstream):
        def over_batch(kernels):
            return tf.reshape(sum_over_batch(tf.reshape(kernels, [-1, dim * units])), [dim, units])

        by_unit = tf.reshape(upstream * of_product, [-1, units])
        of_target = tf.matmul(by_unit, tf.ones([units, 1], upstream.dtype))
        return (
            over_batch(upstream),
            tf.reshape(of_target, [-1, dim]),
            over_batch(target[:, :, tf.newaxis] * upstream),
        )

    return shared + target[:, :, tf.newaxis] * of_product, gradient


class ActivationUnit(keras.layers.Layer):
    """DIN's local activation (Zhou et al., 2018): weights from a small network, not normalised.

        h_j = W [t, k_j, t - k_j, t * k_j] + b;  a_j = v PReLU(h_j) + c;  output = sum_j a_j k_j

    The paper's outer product is the elementwise one here, as in its authors' code. It is computed
    as W [t, k, t - k, t * k] = (W_1 + W_3) t + (W_2 - W_3 + W_4 diag(t)) k, and v PReLU(h) with
    slopes s as (v * (1 - s)) max(h, 0) + (v * s) h, whose gradients are matrix products.
    """

    def __init__(
        self, *, seed: int, name: str, dim: int = ACTIVATION_UNIT_DIM, dtype: str = "float32"
    ):
        super().__init__(name=name, dtype=dtype)
        self.dim = dim
        self.seeds = [derive_seed(seed, name, which) for which in ("kernel", "score_kernel")]

    def build(self, input_shape):
        of_hidden, of_score = (keras.initializers.GlorotNormal(seed) for seed in self.seeds)
        wide = [4 * int(input_shape[-1]), self.dim]
        self.kernel = self.add_weight(name="kernel", shape=wide, initializer=of_hidden)
        # In the dtype of the weight: its gradient is a sum over the batch.
        self.bias = self.add_weight(
            name="bias", shape=[self.dim], initializer="zeros", experimental_autocast=False
        )
        self.slope = self.add_weight(
            name="slope",
            shape=[self.dim, 1],
            initializer=keras.initializers.Constant(INITIAL_SLOPE),
        )
        self.score_kernel = self.add_weight(
            name="score_kernel", shape=[self.dim, 1], initializer=of_score
        )
        self.score_bias = self.add_weight(
            name="score_bias", shape=[1], initializer="zeros", experimental_autocast=False
        )
        super().build(input_shape)

    def call(self, target: tf.Tensor, keys: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Maps [batch, dim], [batch, n, dim], bool [batch, n] to [batch, dim]; 0 without a key."""
        of_target, of_key, of_difference, of_product = tf.split(
            tf.convert_to_tensor(self.kernel), 4, axis=0
        )
        fixed = tf.matmul(target, of_target + of_difference)
        fixed = tf.cast(tf.cast(fixed, self.bias.dtype) + self.bias, keys.dtype)
        by_sample = _kernels_by_sample(of_key - of_difference, target, of_product)
        hidden = add_to_each(fixed, tf.matmul(keys, by_sample))
        hidden = tf.reshape(hidden, [-1, self.dim])
        of_linear = self.score_kernel * self.slope
        of_positive = self.score_kernel - of_linear
        scores = tf.matmul(tf.nn.relu(hidden), of_positive) + tf.matmul(hidden, of_linear)
        scores = tf.reshape(precise(scores), tf.shape(mask)) + precise(self.score_bias)
        weights = tf.cast(tf.where(mask, scores, 0), keys.dtype)
        return tf.squeeze(tf.matmul(weights[:, tf.newaxis, :], keys), axis=1)


class BilinearScores(keras.layers.Layer):
    """state_j W target, DIEN's attention before its softmax (Zhou et al., 2019, equation 14)."""

    def __init__(self, *, seed: int, name: str, dtype: str = "float32"):
        super().__init__(name=name, dtype=dtype)
        self.kernel_seed = derive_seed(seed, name, "kernel")

    def build(self, input_shape):
        dim, units = int(input_shape[0][-1]), int(input_shape[1][-1])
        self.kernel = self.add_weight(
            name="kernel",
            shape=[units, dim],
            initializer=keras.initializers.GlorotNormal(self.kernel_seed),
        )
        super().build(input_shape)

    def call(self, target_and_states) -> tf.Tensor:
        """Maps ([batch, dim], [batch, n, units]) to [batch, n], at least float32."""
        target, states = target_and_states
        query = tf.matmul(target, tf.convert_to_tensor(self.kernel), transpose_b=True)
        return precise(tf.squeeze(tf.matmul(states, query[:, :, tf.newaxis]), axis=2))


class TargetQueries(keras.layers.Layer):
    """Query of a target, one per head.

        <A key, B target> / sqrt(head_dim) = <key, query> with query = A' B target / sqrt(head_dim)

    Args:
        num_heads: Number of heads; A and B project to ceil(dim / num_heads) columns.
        identity: Whether A and B start as the identity (of one head), so that the first scores are
            inner products of item and target; else Glorot normal.
    """

    def __init__(
        self,
        *,
        seed: int,
        name: str,
        num_heads: int = NUM_HEADS,
        identity: bool = False,
        dtype: str = "float32",
    ):
        super().__init__(name=name, dtype=dtype)
        self.num_heads = num_heads
        self.initializers = [
            "identity"
            if identity
            else keras.initializers.GlorotNormal(derive_seed(seed, name, kind))
            for kind in ("keys", "query")
        ]

    def build(self, input_shape):
        dim = int(input_shape[-1])
        self.head_dim = -(-dim // self.num_heads)
        self.of_keys, self.of_query = (
            self.add_weight(
                name=name, shape=[dim, self.num_heads * self.head_dim], initializer=initializer
            )
            for name, initializer in zip(("keys", "query"), self.initializers, strict=True)
        )
        super().build(input_shape)

    def call(self, target: tf.Tensor) -> tf.Tensor:
        """Maps [batch, dim] to [batch, num_heads, dim] in the compute dtype."""
        heads, width, dim = self.num_heads, self.head_dim, target.shape[-1]
        query = tf.matmul(target, tf.convert_to_tensor(self.of_query)) / math.sqrt(width)
        query = tf.transpose(tf.reshape(query, [-1, heads, width]), [1, 0, 2])
        kernel = tf.convert_to_tensor(self.of_keys)
        kernel = tf.transpose(tf.reshape(kernel, [dim, heads, width]), [1, 2, 0])
        return tf.transpose(tf.matmul(query, kernel), [1, 0, 2])


@tf.custom_gradient
def add_to_each(fixed: tf.Tensor, rows: tf.Tensor):
    """Adds `fixed` [batch, units] to each of a sample's rows [batch, n, units]."""

    def gradient(upstream):
        return tf.cast(tf.reduce_sum(precise(upstream), axis=1), fixed.dtype), upstream

    return fixed[:, tf.newaxis, :] + rows, gradient
