"""Reduction of gradients of one rank's loss to those of all ranks' mean loss."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from distributed_embeddings.collectives import current
from distributed_embeddings.collectives.horovod_modules import horovod_tensorflow
from distributed_embeddings.exchange.gradients import Gradient, scale_gradient, sum_over_ranks
from distributed_embeddings.exchange.row_exchange import unique_name
from distributed_embeddings.keras import keras


@dataclass
class Reduction:
    """Reduction of gradients over ranks, with Horovod's options.

    Attributes:
        device_dense, device_sparse, num_groups, groups: accepted and without effect.
        compression: object with `compress(tensor) -> (tensor, context)` and `decompress(tensor,
            context)` for dense gradients, e.g. `hvd.Compression.fp16`.
        sparse_as_dense: average `tf.IndexedSlices` of replicated tables as dense tensors, as
            Merlin's distributed-embeddings always does. Results differ for optimizers that skip
            rows without a gradient, such as the legacy Keras SGD with momentum.
        op: `hvd.Average` (None) or `hvd.Sum`. With the sum also set `scale_local_gradients=False`.
        gradient_predivide_factor: gradients are divided by it before the sum, by size / it after.
        process_set: all ranks, Horovod's default; no other.
        scale_local_gradients: divide the gradients of a rank's own variables by the number of
            ranks.

    Raises:
        ValueError: an option that contradicts another, or that is not supported.
    """

    device_dense: str = ""
    device_sparse: str = ""
    compression: Any = None
    sparse_as_dense: bool = False
    op: Any = None
    gradient_predivide_factor: float = 1.0
    num_groups: int = 0
    groups: Any = None
    process_set: Any = None
    scale_local_gradients: bool = True
    own: set = field(default_factory=set)  # references of variables in addition to the marked ones

    def __post_init__(self):
        self.world = current()
        self.average = True
        if self.op is not None and self.world.size > 1:
            hvd = horovod_tensorflow()
            if self.op not in (hvd.Average, hvd.Sum):
                raise ValueError("op is hvd.Average or hvd.Sum; Adasum is not supported")
            self.average = self.op == hvd.Average
        if self.gradient_predivide_factor != 1.0 and not self.average:
            raise ValueError("gradient_predivide_factor is for op=hvd.Average, but op is hvd.Sum")
        ranks = getattr(self.process_set, "ranks", None)
        if ranks is not None and list(ranks) != list(range(self.world.size)):
            raise ValueError(
                f"process_set has ranks {list(ranks)}, but all {self.world.size} must train "
                "together: leave it out"
            )

    def is_own(self, variable) -> bool:
        if getattr(variable, "de_local", False):
            return True
        return isinstance(variable, tf.Variable) and variable.ref() in self.own

    def reduce(self, gradients: Sequence[Gradient], variables: Sequence) -> list[Gradient]:
        """Returns the gradients of all ranks' mean loss.

        Args:
            gradients: Gradients of this rank's loss: tensors, `tf.IndexedSlices` or None, which
                stays.
            variables: Their variables, the copies among them in the same order on every rank.
        """
        size = self.world.size
        result = list(gradients)
        if size == 1:
            return result
        copies = [i for i, variable in enumerate(variables) if not self.is_own(variable)]
        before, after = 1.0, 1.0
        if self.average:
            before = 1.0 / self.gradient_predivide_factor
            after = self.gradient_predivide_factor / size
        poison = self._non_finite(gradients, copies)
        sent, contexts = [], []
        for i in copies:
            gradient, context = self._compress(scale_gradient(gradients[i], before))
            sent.append(gradient)
            contexts.append(context)
        summed = sum_over_ranks(
            self.world,
            [*sent, poison],
            [*(variables[i] for i in copies), None],
            unique_name("data_parallel.gradients"),
        )
        poison = summed.pop()
        for i, gradient, context in zip(copies, summed, contexts, strict=True):
            if self.compression is not None and isinstance(gradient, tf.Tensor):
                gradient = self.compression.decompress(gradient, context)
            result[i] = scale_gradient(gradient, after)
        if self.scale_local_gradients:
            for i in set(range(len(result))) - set(copies):
                result[i] = scale_gradient(result[i], 1.0 / size)
        return result if poison is None else [_poisoned(g, poison) for g in result]

    def _compress(self, gradient: Gradient):
        if self.sparse_as_dense and isinstance(gradient, tf.IndexedSlices):
            gradient = tf.convert_to_tensor(gradient)
        if self.compression is not None and isinstance(gradient, tf.Tensor):
            return self.compression.compress(gradient)
        return gradient, None

    def _non_finite(self, gradients, copies) -> tf.Tensor | None:
        """With float16: 0, or NaN if a gradient of this rank's own variables is not finite.

        All ranks must skip the step, or their copies would differ.
        """
        if keras.mixed_precision.global_policy().compute_dtype != "float16":
            return None
        finite = [tf.constant(True)] + [
            tf.reduce_all(tf.math.is_finite(getattr(gradients[i], "values", gradients[i])))
            for i in set(range(len(gradients))) - set(copies)
            if gradients[i] is not None
        ]
        return tf.where(tf.reduce_all(finite), 0.0, float("nan"))


def _poisoned(gradient: Gradient, poison: tf.Tensor) -> Gradient:
    """Adds 0 or NaN to all values of a gradient.

    `tf.IndexedSlices` without rows get one to carry a NaN: it is in a step that is skipped.
    """
    if gradient is None:
        return None
    poison = tf.cast(poison, gradient.dtype)
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient + poison
    is_lost = tf.logical_and(tf.math.is_nan(poison), tf.equal(tf.size(gradient.indices), 0))
    carriers = tf.cast(is_lost, tf.int32)
    shape = tf.concat([[carriers], tf.shape(gradient.values)[1:]], axis=0)
    values = tf.concat([gradient.values, tf.zeros(shape, gradient.dtype)], axis=0)
    row = tf.zeros([carriers], gradient.indices.dtype)
    indices = tf.concat([gradient.indices, row], axis=0)
    return tf.IndexedSlices(values + poison, indices, gradient.dense_shape)
