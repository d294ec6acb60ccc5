"""Vectors of numbers by a piecewise-linear encoding."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from distributed_embeddings.keras import keras
from distributed_embeddings.seeds import derive_seed


class PiecewiseLinear(keras.layers.Layer):
    """Vector of each number, linear within each bin and continuous between bins.

        z_b = (x - e_b) / (e_{b+1} - e_b), limited to [0, 1]
        y = sum_b z_b W[column, b] + bias[column]

    The first bin has no lower limit and the last one no upper limit, so that numbers outside the
    bins extend them linearly. The encoding is computed in float32 in every precision. W starts
    uniform in +-0.05, and the bias at zero.

    Args:
        num_bins: Largest number of bins of a column.
        dim: Width of a vector.
        num_zeros: Last of these columns that have no bias and start at zero: linear terms.
        edges: Ascending edges of the bins, at most `num_bins` + 1 of each column; None: a
            checkpoint sets them.

    Attributes:
        edges: Untrained weight [columns, num_bins + 1]; the last edge of a column is repeated.

    Raises:
        ValueError: In a call, if the number of columns is not that of `edges`.

    Example:
        layer = PiecewiseLinear(2, 16, edges=[[0, 1, 4], [-1, 1]], seed=1, name="numbers")
        layer(tf.random.normal([32, 2])).shape  # (32, 2, 16)

    Reference: Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning",
        2022, section 3.2.
    """

    def __init__(
        self,
        num_bins: int,
        dim: int,
        *,
        seed: int,
        name: str,
        num_zeros: int = 0,
        edges: Sequence[Any] | None = None,
        dtype: str = "float32",
    ):
        super().__init__(name=name, dtype=dtype, autocast=False)  # numbers stay as they are
        self.num_bins, self.dim, self.num_zeros = num_bins, dim, num_zeros
        self.start_edges = edges
        self.kernel_seed = derive_seed(seed, name, "kernel")

    def build(self, input_shape):
        columns, zeros = int(input_shape[-1]), self.num_zeros
        start = np.zeros([columns, self.num_bins + 1], np.float32)
        if self.start_edges is not None:
            if len(self.start_edges) != columns:
                raise ValueError(
                    f"expected the edges of {columns} columns, got {len(self.start_edges)}"
                )
            for row, edges in zip(start, self.start_edges, strict=True):
                row[:] = np.pad(np.float32(edges), (0, len(row) - len(edges)), "edge")
        self.edges = self.add_weight(
            name="edges",
            shape=start.shape,
            initializer=lambda shape, dtype=None, **_: tf.cast(start, dtype),
            trainable=False,
            experimental_autocast=False,
        )
        uniform = keras.initializers.RandomUniform(seed=self.kernel_seed)

        def draw(shape, dtype=None, **_):
            values = uniform([*shape[:2], self.dim - zeros], dtype)
            return tf.pad(values, [[0, 0], [0, 0], [0, zeros]])

        self.kernel = self.add_weight(
            name="kernel", shape=[columns, self.num_bins, self.dim], initializer=draw
        )
        self.bias = self.add_weight(
            name="bias", shape=[columns, self.dim - zeros], initializer="zeros"
        )
        super().build(input_shape)

    def encode(self, x: tf.Tensor) -> tf.Tensor:
        """Returns z of numbers [batch, columns], [columns, batch, num_bins]; 0 in unused bins."""
        edges = tf.convert_to_tensor(self.edges)
        widths = edges[:, 1:] - edges[:, :-1]
        is_used = widths > 0
        is_last = is_used & ~tf.pad(is_used[:, 1:], [[0, 0], [0, 1]])
        is_first = is_used & (tf.range(self.num_bins) == 0)
        lower = tf.where(is_first, tf.constant(-np.inf, edges.dtype), 0)
        upper = tf.where(is_last, tf.constant(np.inf, edges.dtype), tf.cast(is_used, edges.dtype))
        x = tf.transpose(tf.cast(x, edges.dtype))[:, :, tf.newaxis]
        z = (x - edges[:, tf.newaxis, :-1]) / tf.where(is_used, widths, 1)[:, tf.newaxis]
        return tf.minimum(tf.maximum(z, lower[:, tf.newaxis]), upper[:, tf.newaxis])

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Maps numbers [batch, columns] to vectors [batch, columns, dim] in the compute dtype."""
        kernel, bias = tf.convert_to_tensor(self.kernel), tf.convert_to_tensor(self.bias)
        bias = tf.pad(bias, [[0, 0], [0, self.num_zeros]])
        z = tf.cast(self.encode(x), kernel.dtype)
        # The bias is the weight of a bin that is always 1: the matrix product sums its gradient
        # over the batch in float32.
        z = tf.pad(z, [[0, 0], [0, 0], [0, 1]], constant_values=1)
        weights = tf.concat([kernel, bias[:, tf.newaxis]], axis=1)
        return tf.transpose(tf.matmul(z, weights), [1, 0, 2])
