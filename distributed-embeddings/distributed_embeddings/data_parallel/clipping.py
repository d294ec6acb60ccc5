"""Clipping of gradients by their norm over all ranks, for Keras optimizers, new and legacy."""

from collections.abc import Sequence

import tensorflow as tf

from distributed_embeddings.data_parallel.reduction import Reduction
from distributed_embeddings.exchange.gradients import Gradient, sum_duplicates
from distributed_embeddings.exchange.row_exchange import unique_name
from distributed_embeddings.precision import precise


def global_norm(
    gradients: Sequence[Gradient], variables: Sequence, reduction: Reduction
) -> tf.Tensor:
    """Returns the norm of all ranks' gradients, counting copies once; collective."""
    copied, own = [tf.zeros([])], [tf.zeros([])]
    for gradient, variable in zip(gradients, variables, strict=True):
        if gradient is not None:
            squares = own if reduction.is_own(variable) else copied
            squares.append(_sum_of_squares(gradient))
    (total,) = reduction.world.all_reduce(
        [tf.add_n(own)], "sum", unique_name("data_parallel.global_norm")
    )
    return tf.sqrt(total + tf.add_n(copied))


def _sum_of_squares(gradient: Gradient) -> tf.Tensor:
    if isinstance(gradient, tf.IndexedSlices):
        gradient = sum_duplicates(gradient).values
    return tf.cast(tf.reduce_sum(tf.square(precise(gradient))), tf.float32)


class ClippingOptimizer:
    """Mixin for an optimizer's class that computes `global_clipnorm` over all ranks.

    Keras would take the norm of the gradients that a rank has: each rank would move the
    copied weights by another factor. Keras also counts the gradients of a repeated row one by one.
    """

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        """Clips and applies gradients; every rank must call it."""
        pairs = list(grads_and_vars)
        if self.clipnorm:
            self._check_clipnorm([v for g, v in pairs if g is not None])
        if self.global_clipnorm:
            pairs = self._clip_by_global_norm(pairs)
        return super().apply_gradients(pairs, *args, **kwargs)

    def _check_clipnorm(self, variables) -> None:
        own = [v for v in variables if self._reduction.is_own(v) and v.shape.num_elements()]
        if own and self._reduction.world.size > 1:
            raise ValueError(
                f"clipnorm={self.clipnorm}: expected no clipping by variable, got {own[0].name}, "
                "which holds several tables, or slices of tables, of this rank: their norms depend "
                "on the number of ranks. Use global_clipnorm or clipvalue instead"
            )

    def _clip_by_global_norm(self, pairs):
        gradients, variables = zip(*pairs, strict=True) if pairs else ((), ())
        norm = global_norm(gradients, variables, self._reduction)
        clipped, _ = tf.clip_by_global_norm(gradients, self.global_clipnorm, use_norm=norm)
        return list(zip(clipped, variables, strict=True))

    def _clip_gradients(self, grads):
        """Clips by value only: Keras' optimizers call it after `apply_gradients` has clipped."""
        return grads if self.global_clipnorm else super()._clip_gradients(grads)

    @property
    def _global_clipnorm_fn(self):
        """Function by which legacy optimizers clip pairs: none, `apply_gradients` has clipped."""
        return lambda pairs: pairs

    @_global_clipnorm_fn.setter
    def _global_clipnorm_fn(self, function):
        pass
