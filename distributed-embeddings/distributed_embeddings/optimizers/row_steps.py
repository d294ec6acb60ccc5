"""Steps of optimizers on the rows of a table that have a gradient, by gather and scatter."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def move_by_adagrad(
    table: tf.Variable,
    accumulator: tf.Variable,
    gradient: tf.IndexedSlices,
    squares: tf.Tensor,
    learning_rate: Any,
    epsilon: Any,
) -> None:
    """a += squares;  w -= learning_rate * g / (sqrt(a) + epsilon).

    Args:
        table, accumulator: w, [rows, dim], and a, [rows, dim] or [rows].
        gradient: g, whose rows differ.
        squares: of the accumulator's shape in these rows.
    """
    rows = gradient.indices
    total = tf.gather(accumulator, rows) + squares
    accumulator.scatter_update(tf.IndexedSlices(total, rows))
    root = tf.sqrt(total) + epsilon
    root = root[:, tf.newaxis] if root.shape.rank == 1 else root
    table.scatter_sub(tf.IndexedSlices(learning_rate * gradient.values / root, rows))


def move_by_adam(
    table: tf.Variable,
    moments: Sequence[tf.Variable],
    gradient: tf.IndexedSlices,
    learning_rate: Any,
    epsilon: Any,
    *betas: Any,
) -> None:
    """m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w -= rate * m / (sqrt(v) + epsilon).

    Args:
        table, moments: w, and m and v, [rows, dim].
        gradient: g, whose rows differ.
        betas: b1 and b2.
    """
    g, rows, means = gradient.values, gradient.indices, list[tf.Tensor]()
    for moment, beta, value in zip(moments, betas, (g, tf.square(g)), strict=True):
        means.append(beta * tf.gather(moment, rows) + (1 - beta) * value)
        moment.scatter_update(tf.IndexedSlices(means[-1], rows))
    step = learning_rate * means[0] / (tf.sqrt(means[1]) + epsilon)
    table.scatter_sub(tf.IndexedSlices(step, rows))
