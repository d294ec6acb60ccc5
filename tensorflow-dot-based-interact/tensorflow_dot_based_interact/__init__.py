"""The dot interaction of DLRM as a fused TensorFlow op."""
