"""Sums in float32, whatever the compute dtype.

A sum in bfloat16 stops growing at 256 times its terms, one in float16 at 2,048 times, and both of
TensorFlow's segment sums accumulate in the dtype of their values.
"""

import tensorflow as tf


def precise(x: tf.Tensor) -> tf.Tensor:
    """Returns x in float32 if its dtype is a shorter one, else x."""
    return tf.cast(x, precise_dtype(x.dtype))


def precise_dtype(dtype: tf.DType) -> tf.DType:
    """Returns the dtype in which values of a float dtype are summed."""
    return tf.float32 if dtype.size < 4 else dtype
