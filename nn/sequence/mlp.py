"""The classifiers at the ends of a sequential recommender: hidden layers, dropout, one logit."""

from collections.abc import Sequence

import tensorflow as tf
from distributed_embeddings.seeds import derive_seed

from nn.keras import keras
from nn.layers.dense import Dense, fused_affine

INITIAL_SLOPE = 0.25  # He et al., "Delving Deep into Rectifiers", 2015


@tf.custom_gradient
def _prelu(x: tf.Tensor, slope: tf.Tensor):
    """Returns max(x, 0) + slope * min(x, 0), x [..., n], slope [n] in the dtype of the weight."""

    def gradient(dy):
        negative = tf.minimum(x, 0)
        rest = list(range(len(x.shape) - 1))
        products = tf.cast(dy * negative, slope.dtype)  # bfloat16 would sum to 8 bits
        dx = tf.where(x > 0, dy, dy * tf.cast(slope, x.dtype))
        return dx, tf.reduce_sum(products, axis=rest)

    return tf.where(x > 0, x, x * tf.cast(slope, x.dtype)), gradient


# Fused, because alone the sigmoid takes longer than x W.
_affine_sigmoid = fused_affine(tf.sigmoid, lambda y, dy: tf.raw_ops.SigmoidGrad(y=y, dy=dy))


class SigmoidDense(Dense):
    """y = sigmoid(x W + b), with the weights of `Dense`."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return _affine_sigmoid(x, *map(tf.convert_to_tensor, (self.kernel, self.bias)))


class PReLU(keras.layers.Layer):
    """max(x, 0) + a min(x, 0) with a trained slope `a` for each unit."""

    def __init__(self, initial_slope: float = INITIAL_SLOPE, **options):
        super().__init__(**options)
        self.initial_slope = initial_slope

    def build(self, input_shape):
        self.slope = self.add_weight(
            name="slope",
            shape=[int(input_shape[-1])],
            initializer=keras.initializers.Constant(self.initial_slope),
            experimental_autocast=False,
        )
        super().build(input_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return _prelu(x, tf.convert_to_tensor(self.slope))


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


class Classifier(keras.layers.Layer):
    """Hidden layers and one logit.

        x -> (affine, activation, dropout) for each of `dims` -> affine -> logit

    Args:
        dims: Sizes of the hidden layers; may be empty.
        activation: "prelu" or "sigmoid".
        dropout: (rate, seed) of the hidden layers, in training; None: no dropout.
    """

    def __init__(
        self,
        dims: Sequence[int],
        *,
        seed: int,
        name: str,
        activation: str = "prelu",
        dropout: tuple[float, int] | None = None,
        dtype: str = "float32",
    ):
        super().__init__(name=name, dtype=dtype)
        own_seed = derive_seed(seed, name)
        kinds = [Dense if activation == "prelu" else SigmoidDense] * len(dims) + [Dense]
        self.affine = [
            kind(dim, seed=own_seed, name=f"dense_{i}", dtype=dtype)
            for i, (kind, dim) in enumerate(zip(kinds, [*dims, 1], strict=True))
        ]
        self.activations = []
        if activation == "prelu":
            self.activations = [PReLU(name=f"prelu_{i}", dtype=dtype) for i in range(len(dims))]
        self.dropouts = []
        if dropout is not None:
            rate, seed = dropout[0], derive_seed(dropout[1], name)
            self.dropouts = [
                Dropout(rate, seed=seed, name=f"dropout_{i}", dtype=dtype) for i in range(len(dims))
            ]

    def call(self, x: tf.Tensor, step: tf.Tensor | None = None) -> tf.Tensor:
        """Maps [n, width] to logits [n, 1]; `step` is that of dropout, None without dropout."""
        *hidden, last = self.affine
        for i, affine in enumerate(hidden):
            x = affine(x)
            if self.activations:
                x = self.activations[i](x)
            if self.dropouts and step is not None:
                x = self.dropouts[i](x, step)
        return last(x)
