"""Loss scaling: a factor on the loss that keeps small gradients within float16's range."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

DYNAMIC = "dynamic"
INITIAL_SCALE = 2.0**15
GROWTH_STEPS = 2000


class LossScale:
    """Static or dynamic loss scale (Micikevicius et al., "Mixed Precision Training", 2018).

    A dynamic scale starts at 2^15. A step with a non-finite gradient halves it, down to 1;
    `GROWTH_STEPS` finite steps in a row double it.

    Args:
        value: a number of at least 1, or "dynamic". 1.0 means no scaling.

    Attributes:
        is_dynamic: whether the scale changes.
        is_used: whether gradients are scaled, and checked.
        factor: the factor of the next step: a float, or a float32 variable if it is dynamic.
    """

    def __init__(self, value: float | str = 1.0):
        self.is_dynamic = value == DYNAMIC
        self.is_used = self.is_dynamic or value != 1.0
        if self.is_dynamic:
            self.factor = tf.Variable(INITIAL_SCALE, trainable=False, name="loss_scale")
            self._good_steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="good_steps")
        else:
            self.factor = float(value)

    def update(self, finite: tf.Tensor) -> None:
        """Adapts a dynamic scale after a step; `finite`: bool scalar, equal on all ranks."""
        if not self.is_dynamic:
            return
        scale, good_steps = self.factor.read_value(), self._good_steps.read_value() + 1
        grows = tf.logical_and(good_steps >= GROWTH_STEPS, tf.math.is_finite(2.0 * scale))
        larger = tf.where(grows, 2.0 * scale, scale)
        self.factor.assign(tf.where(finite, larger, tf.maximum(scale / 2.0, 1.0)))
        keeps_counting = tf.logical_and(finite, good_steps < GROWTH_STEPS)
        self._good_steps.assign(tf.where(keeps_counting, good_steps, 0))

    def state(self) -> dict[str, Any]:
        """Returns what `set_state` restores; empty for a static scale."""
        if not self.is_dynamic:
            return {}
        return {
            "loss_scale": float(self.factor.numpy()),
            "good_steps": int(self._good_steps.numpy()),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores a dynamic scale; a state without one leaves it at its start."""
        if self.is_dynamic and "loss_scale" in state:
            self.factor.assign(state["loss_scale"])
            self._good_steps.assign(state["good_steps"])
