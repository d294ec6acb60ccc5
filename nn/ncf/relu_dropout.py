"""ReLU and dropout in one pass over the hidden units."""

from collections.abc import Sequence

import tensorflow as tf
from distributed_embeddings.seeds import derive_seed

# Multipliers of a 32-bit hash, "lowbias32" of Wellons, "Hash prospecting", 2018.
_MULTIPLIERS = (0x7FEB352D, 0x846CA68B)


class ReluDropout:
    """max(sum of terms, 0), of which a share of the units is set to 0 and the others divided by
    1 - rate.

    The units are a function of seed, name, step and their place alone, so that a restart resumes
    exactly: a 32-bit hash of a unit's number is below a threshold. TensorFlow's generators would
    take longer than everything else here; XLA makes one loop of it.
    """

    def __init__(self, rate: float, *, seed: int, name: str):
        self.seed = derive_seed(seed, name, "dropout")
        self.threshold = min(round(rate * 2**32), 2**32 - 1)
        self.scale = 1 / (1 - rate)
        # A GPU has the bandwidth, and XLA there needs tools that may be absent.
        on_gpu = bool(tf.config.get_visible_devices("GPU"))
        compiled = {"jit_compile": None if on_gpu else True, "autograph": False}
        self._forward = tf.function(self._forward_pass, **compiled)
        self._backward = tf.function(self._backward_pass, **compiled)

    def __call__(self, terms: Sequence[tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        """Maps terms [batch, width] to [batch, width]; `step` is an int64 scalar."""
        seed = tf.stack([tf.constant(self.seed, tf.int64), step])
        keys = tf.random.stateless_uniform([2], seed, None, None, tf.uint32, alg="philox")

        @tf.custom_gradient
        def dropped(*terms):
            units = self._forward(terms, keys)

            def gradient(upstream):
                passed = self._backward(upstream, units)
                return [passed] * len(terms)

            return units, gradient

        return dropped(*terms)

    def _forward_pass(self, terms, keys):
        x = tf.add_n(terms)
        numbers = unit_hashes(tf.shape(x), keys)
        kept = tf.logical_and(numbers >= tf.constant(self.threshold, tf.uint32), x > 0)
        return tf.where(kept, x * tf.constant(self.scale, x.dtype), tf.zeros_like(x))

    def _backward_pass(self, upstream, units):
        # Nothing passes where a unit is 0, be it dropped or negative.
        passed = upstream * tf.constant(self.scale, units.dtype)
        return tf.where(units > 0, passed, tf.zeros_like(units))


def unit_hashes(shape: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Returns a hash of each unit's number, uint32 [n, m], under two keys, uint32 [2].

    From 2^32 units on numbers repeat.
    """
    rows, columns = tf.range(shape[0])[:, tf.newaxis], tf.range(shape[1])
    x = tf.cast(rows, tf.uint32) * tf.cast(shape[1], tf.uint32) + tf.cast(columns, tf.uint32)
    for i, (multiplier, bits) in enumerate(zip(_MULTIPLIERS, (16, 15), strict=True)):
        x = tf.bitwise.bitwise_xor(x, keys[i])
        x = _fold(x, bits) * tf.constant(multiplier, tf.uint32)
    return _fold(x, 16)


def _fold(x: tf.Tensor, bits: int) -> tf.Tensor:
    shifted = tf.bitwise.right_shift(x, tf.constant(bits, tf.uint32))
    return tf.bitwise.bitwise_xor(x, shifted)
