"""The dot interaction of DLRM as a fused TensorFlow op."""

from tensorflow_dot_based_interact.python.ops.dot_based_interact_ops import dot_based_interact

__all__ = ["dot_based_interact"]
