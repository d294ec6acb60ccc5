"""Implementations of the dot interaction: discovery of the fused op, and the fallback."""

from enum import Enum
from types import ModuleType

import tensorflow as tf


class DotImplementation(str, Enum):
    """Implementations of `DotInteraction`."""

    FUSED = "dot_custom"  # the fused op
    TENSORFLOW = "dot_tensorflow"
    GATHER = "dot_gather"  # TensorFlow in few operations, for exported models

    __str__ = str.__str__


def custom_op() -> ModuleType:
    """Returns the module of the fused op, with its library loaded.

    Raises:
        ImportError: It is not installed, or does not fit this TensorFlow.
    """
    try:
        from tensorflow_dot_based_interact.python.ops import dot_based_interact_ops
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] != "tensorflow_dot_based_interact":
            raise
        raise ImportError("tensorflow-dot-based-interact is not installed: run `make op`") from None
    dot_based_interact_ops.library()
    return dot_based_interact_ops


def choose_dot(interaction: str, device: str) -> tuple[str, str | None]:
    """Chooses the implementation that `--interaction` selects on this machine.

    Args:
        interaction: "dot" (the fastest available), "dot_custom", "dot_custom_cuda" or
            "dot_tensorflow".

    Returns:
        (the fused op or plain TensorFlow, reason for a fallback or None).

    Raises:
        ValueError: "dot_custom_cuda" without a GPU or without the op's GPU kernels.
    """
    if interaction == DotImplementation.TENSORFLOW:
        return DotImplementation.TENSORFLOW.value, None
    if interaction == "dot_custom_cuda" and device != "GPU":
        reason = "there is no GPU"
    else:
        reason = _reason_for_fallback(device)
    if reason is None:
        return DotImplementation.FUSED.value, None
    if interaction == "dot_custom_cuda":
        raise ValueError(
            f"--interaction dot_custom_cuda needs the op's GPU kernels, but {reason}; or let the "
            "toolkit choose with --interaction dot"
        )
    note = f"--interaction {interaction} is computed by dot_tensorflow, for {reason}"
    return DotImplementation.TENSORFLOW.value, note


def _reason_for_fallback(device: str) -> str | None:
    """Tries the op on a device; None if it runs."""
    try:
        operations = custom_op()
    except ImportError as error:
        return str(error)
    if device == "GPU":
        if not operations.build()["cuda"]:
            return "the op was built without GPU kernels: run `make op CUDA=1`"
        try:
            with tf.device("GPU"):
                operations.dot_based_interact(tf.ones([1, 2, 8]), tf.ones([1, 8])).numpy()
        except tf.errors.OpError as error:  # not built for this GPU or its driver
            return f"its GPU kernels do not run here ({error.message})"
    return None
