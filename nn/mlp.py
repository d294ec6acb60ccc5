"""Multi-layer perceptron with the initialisation of DLRM."""

import math
from collections.abc import Sequence

import tensorflow as tf

from nn.keras import keras
from runtime.device import derive_seed


def dense(
    dim: int,
    seed: int,
    name: str,
    activation: str | None = None,
    use_bias: bool = True,
    dtype: str = "float32",
) -> keras.layers.Dense:
    """A dense layer: Glorot normal kernel, N(0, sqrt(1/dim)) bias (Naumov et al., 2019)."""
    return keras.layers.Dense(
        dim,
        activation=activation,
        use_bias=use_bias,
        kernel_initializer=keras.initializers.GlorotNormal(derive_seed(seed, name, "kernel")),
        bias_initializer=keras.initializers.RandomNormal(
            stddev=math.sqrt(1.0 / dim), seed=derive_seed(seed, name, "bias")
        ),
        name=name,
        dtype=dtype,
    )


class MLP(keras.layers.Layer):
    """Dense layers with ReLU between them.

    Args:
      dims: output size of each layer.
      seed: seed of the initial weights.
      linear_output: no ReLU after the last layer (it gives logits).
      dtype: Keras dtype policy.
    """

    def __init__(
        self,
        dims: Sequence[int],
        *,
        seed: int,
        name: str,
        linear_output: bool = False,
        dtype: str = "float32",
    ):
        super().__init__(name=name, dtype=dtype)
        last = len(dims) - 1
        self.stack = [
            dense(
                dim,
                seed=derive_seed(seed, name),
                name=f"dense_{i}",
                activation=None if linear_output and i == last else "relu",
                dtype=dtype,
            )
            for i, dim in enumerate(dims)
        ]

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, n] -> [batch, dims[-1]] in the compute dtype."""
        for layer in self.stack:
            x = layer(x)
        return x
