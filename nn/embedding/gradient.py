"""Gradients of embedding tables: rows that a batch touched, and what to add to them."""

import tensorflow as tf


def sum_duplicates(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Adds up the gradients of rows that occur more than once in a batch.

    A stateful optimizer must see one gradient for each row: squares of parts are not the square of
    their sum.

    Args:
      gradient: values [n, dim], indices [n], duplicates allowed.

    Returns:
      values [m, dim], indices [m], each row once, in order of first occurrence.
    """
    rows, position = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, position, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)
