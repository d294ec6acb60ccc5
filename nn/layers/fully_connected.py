"""Multi-layer perceptron with the initialization of DLRM."""

import math
from collections.abc import Callable, Sequence

import tensorflow as tf
from distributed_embeddings.keras import keras
from distributed_embeddings.seeds import derive_seed

from nn.layers.dropout import Dropout, DropoutPlace


def sum_over_batch(rows: tf.Tensor) -> tf.Tensor:
    """Sums [batch, n] to [n], accumulated in float32 by the matrix product.

    TensorFlow's BiasAddGrad accumulates bfloat16 in bfloat16 on a CPU: over a batch of 8,192 it
    loses up to half of the sum, and is slower.
    """
    ones = tf.ones([1, tf.shape(rows)[0]], rows.dtype)
    return tf.squeeze(tf.matmul(ones, rows), 0)


def fused_affine(activation: Callable, activation_gradient: Callable) -> Callable:
    """Returns the function (x, kernel, bias) -> activation(x W + b) with an exact bias gradient.

    `activation_gradient` maps the output and its gradient to the gradient of the activation's
    input. On a CPU TensorFlow fuses the three operations.
    """

    @tf.custom_gradient
    def function(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor):
        y = activation(tf.nn.bias_add(tf.matmul(x, kernel), bias))

        def gradient(dy):
            dy = activation_gradient(y, dy)
            return (
                tf.matmul(dy, kernel, transpose_b=True),
                tf.matmul(x, dy, transpose_a=True),
                sum_over_batch(dy),
            )

        return y, gradient

    return function


affine = fused_affine(lambda x: x, lambda y, dy: dy)
_affine_relu = fused_affine(tf.nn.relu, lambda y, dy: tf.raw_ops.ReluGrad(gradients=dy, features=y))


class Dense(keras.layers.Layer):
    """Dense layer with an optional ReLU, and exact bias gradients in bfloat16.

        y = max(x W + b, 0)

    The kernel starts Glorot normal, the bias N(0, sqrt(1 / dim)) (Naumov et al., 2019).

    Args:
        dim: Width of the output.
        relu: Whether to apply max(y, 0).

    Example:
        Dense(8, seed=1, name="dense", relu=True)(tf.ones([32, 16])).shape  # (32, 8)
    """

    def __init__(
        self,
        dim: int,
        *,
        seed: int,
        name: str,
        relu: bool = False,
        use_bias: bool = True,
        dtype: str = "float32",
    ):
        super().__init__(name=name, dtype=dtype)
        self.dim, self.relu, self.use_bias = dim, relu, use_bias
        self.kernel_seed = derive_seed(seed, name, "kernel")
        self.bias_seed = derive_seed(seed, name, "bias")

    def build(self, input_shape):
        self.kernel = self.add_weight(
            name="kernel",
            shape=[int(input_shape[-1]), self.dim],
            initializer=keras.initializers.GlorotNormal(self.kernel_seed),
        )
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias",
                shape=[self.dim],
                initializer=keras.initializers.RandomNormal(
                    stddev=math.sqrt(1.0 / self.dim), seed=self.bias_seed
                ),
            )
        super().build(input_shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Maps [batch, n] to [batch, dim] in the compute dtype."""
        kernel = tf.convert_to_tensor(self.kernel)  # in the compute dtype
        if not self.use_bias:
            y = tf.matmul(x, kernel)
            return tf.nn.relu(y) if self.relu else y
        bias = tf.convert_to_tensor(self.bias)
        return _affine_relu(x, kernel, bias) if self.relu else affine(x, kernel, bias)


class MLP(keras.layers.Layer):
    """Dense layers with ReLU between them.

    Args:
        dims: Width of each layer's output.
        linear_output: No ReLU after the last layer (its output are logits).
        dropout: (rate, seed) after each ReLU in training; None: no dropout.

    Example:
        MLP((32, 8), seed=1, name="mlp")(tf.ones([64, 16])).shape  # (64, 8)
    """

    def __init__(
        self,
        dims: Sequence[int],
        *,
        seed: int,
        name: str,
        linear_output: bool = False,
        dropout: tuple[float, int] | None = None,
        dtype: str = "float32",
    ):
        super().__init__(name=name, dtype=dtype)
        common, last = {"seed": derive_seed(seed, name), "dtype": dtype}, len(dims) - 1
        self.stack = [
            Dense(dim, name=f"dense_{i}", relu=not (linear_output and i == last), **common)
            for i, dim in enumerate(dims)
        ]
        self.dropouts = []
        if dropout is not None:
            rate, seed = dropout[0], derive_seed(dropout[1], name)
            self.dropouts = [
                Dropout(rate, seed=seed, name=f"dropout_{i}", dtype=dtype)
                for i in range(len(dims) - linear_output)
            ]

    def call(self, x: tf.Tensor, place: DropoutPlace | None = None) -> tf.Tensor:
        """Maps [batch, n] to [batch, dims[-1]] in the compute dtype.

        `place` is that of `Dropout`; without one nothing is dropped.
        """
        for i, layer in enumerate(self.stack):
            x = layer(x)
            if place is not None and i < len(self.dropouts):
                x = self.dropouts[i](x, place)
        return x
