"""Dropout that resumes after a restart."""

import tensorflow as tf
from distributed_embeddings.seeds import derive_seed

from nn.keras import keras


class Dropout(keras.layers.Layer):
    """Sets a share of the units, in [0, 1), to 0 and divides the others by 1 - rate.

    Stateless: the same seed, name and step leave out the same units, also after a restart.
    """

    def __init__(self, rate: float, *, seed: int, name: str, dtype: str = "float32"):
        super().__init__(name=name, dtype=dtype)
        self.rate = rate
        self.seed = derive_seed(seed, name, "dropout")

    def call(self, x: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        """Returns the units that a step, an int64 scalar, keeps."""
        seed = tf.stack([tf.constant(self.seed, tf.int64), step])
        return tf.nn.experimental.stateless_dropout(x, self.rate, seed, rng_alg="philox")
