"""The classifiers at the ends of a sequential recommender: hidden layers, dropout, one logit."""

from collections.abc import Sequence

import tensorflow as tf
from distributed_embeddings.keras import keras
from distributed_embeddings.seeds import derive_seed

from nn.layers.dropout import Dropout, DropoutPlace
from nn.layers.fully_connected import Dense, fused_affine

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


class Classifier(keras.layers.Layer):
    """Hidden layers and one logit.

        x -> (affine, activation, dropout) for each of `dims` -> affine -> logit

    Args:
        dims: Sizes of the hidden layers; may be empty.
        activation: "prelu" or "sigmoid".
        dropout: (rate, seed) in training; None: no dropout.
    """

    dense: type[Dense] = Dense
    sigmoid_dense: type[Dense] = SigmoidDense
    initial_slope = INITIAL_SLOPE
    has_one_dropout = False  # before the logit, instead of one after each hidden layer

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
        options = {"seed": derive_seed(seed, name), "dtype": dtype}
        hidden = self.dense if activation == "prelu" else self.sigmoid_dense
        self.affine = [hidden(dim, name=f"dense_{i}", **options) for i, dim in enumerate(dims)]
        self.affine.append(self.dense(1, name=f"dense_{len(dims)}", **options))
        self.activations = []
        if activation == "prelu":
            self.activations = [
                PReLU(self.initial_slope, name=f"prelu_{i}", dtype=dtype) for i in range(len(dims))
            ]
        self.dropouts = []
        if dropout is not None:
            rate, seed = dropout[0], derive_seed(dropout[1], name)
            names = [f"dropout_{i}" for i in range(len(dims))]
            if self.has_one_dropout:
                names = ["dropout"]
            self.dropouts = [Dropout(rate, seed=seed, name=name, dtype=dtype) for name in names]

    def call(
        self, x: tf.Tensor, place: DropoutPlace | None = None, num_blocks: int = 1
    ) -> tf.Tensor:
        """Maps [n, width] to logits [n, 1]; `place` and `num_blocks` are those of `Dropout`."""
        first_dropout = len(self.affine) - len(self.dropouts)
        for i, affine in enumerate(self.affine):
            if i >= first_dropout and place is not None:
                x = self.dropouts[i - first_dropout](x, place, num_blocks)
            x = affine(x)
            if i < len(self.activations):
                x = self.activations[i](x)
        return x
