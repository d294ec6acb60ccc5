"""Learning rate over the steps of a training."""

from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True)
class WarmupPolynomialDecay:
    """Linear warm-up, a plateau, then polynomial decay that ends at zero and stays there.

        lr(s) = base * min(1, (s + 1) / warmup_steps)
                     * clip((decay_start_step + decay_steps - s) / decay_steps, 0, 1) ^ power

    Attributes:
        base: learning rate of the plateau.
        warmup_steps: steps until the plateau; 0 for none.
        decay_start_step: last step of the plateau.
        decay_steps: steps from the plateau to zero; 0 for no decay.
        power: exponent of the decay.
    """

    base: float
    warmup_steps: int = 0
    decay_start_step: int = 0
    decay_steps: int = 0
    power: float = 2.0

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the learning rate of `step` (integer scalar, 0 first), as a float32 scalar."""
        # float64: float32 cannot count past 2^24 steps.
        step = tf.cast(step, tf.float64)
        rate = tf.constant(self.base, tf.float64)
        if self.warmup_steps:
            rate *= tf.minimum((step + 1) / self.warmup_steps, 1.0)
        if self.decay_steps:
            left = (self.decay_start_step + self.decay_steps - step) / self.decay_steps
            rate *= tf.clip_by_value(left, 0.0, 1.0) ** self.power
        return tf.cast(rate, tf.float32)
