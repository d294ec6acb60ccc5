"""Gradient accumulation: a batch passes through the model in parts, one after the other."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from distributed_embeddings.exchange.bag_gradients import BagGradient

from nn.optim.optimizers import Gradient

# `(part, share)` -> losses of a part of a batch, and its gradients times its share of the samples.
Differentiate = Callable[[Any, tf.Tensor], tuple[list[tf.Tensor], list[Gradient | None]]]


def accumulate(
    differentiate: Differentiate, batch: Any, num_parts: int
) -> tuple[list[tf.Tensor], list[Gradient | None]]:
    """Returns losses and gradients of a batch: the sums of those of its parts.

    A row of a table that several parts use occurs several times in the gradient of the table. A
    batch of fewer samples than `num_parts`, at least 2, has one part per sample.
    """
    num_samples = tf.shape(tf.nest.flatten(batch)[0])[0]
    num_parts = tf.minimum(num_parts, num_samples)

    def run_part(number: tf.Tensor) -> tuple[list[tf.Tensor], list[Gradient | None]]:
        start, stop = (_first_sample(n, num_samples, num_parts) for n in (number, number + 1))
        part = tf.nest.map_structure(lambda whole: whole[start:stop], batch)
        share = tf.cast((stop - start) / num_samples, tf.float32)
        losses, gradients = differentiate(part, share)
        losses = [value * tf.cast(share, value.dtype) for value in losses]
        return losses, [g.summed() if isinstance(g, BagGradient) else g for g in gradients]

    losses, gradients = run_part(tf.constant(0))
    sparse = [i for i, g in enumerate(gradients) if isinstance(g, tf.IndexedSlices)]
    dense = [i for i, g in enumerate(gradients) if g is not None and i not in sparse]

    def sparse_tensors(gradients: Sequence[Any]) -> list[tf.Tensor]:
        return [t for i in sparse for t in (gradients[i].values, gradients[i].indices)]

    def write(
        number: tf.Tensor, arrays: Sequence[tf.TensorArray], tensors: Sequence[tf.Tensor]
    ) -> list[tf.TensorArray]:
        return [array.write(number, t) for array, t in zip(arrays, tensors, strict=True)]

    def body(number: tf.Tensor, losses: Any, totals: Any, arrays: Any) -> tuple[Any, ...]:
        part_losses, gradients = run_part(number)
        losses = [a + b for a, b in zip(losses, part_losses, strict=True)]
        totals = [a + gradients[i] for a, i in zip(totals, dense, strict=True)]
        return number + 1, losses, totals, write(number, arrays, sparse_tensors(gradients))

    arrays = [
        tf.TensorArray(t.dtype, num_parts, infer_shape=False, element_shape=[None, *t.shape[1:]])
        for t in sparse_tensors(gradients)
    ]
    arrays = write(tf.constant(0), arrays, sparse_tensors(gradients))
    _, losses, totals, arrays = tf.while_loop(
        lambda number, *_: number < num_parts,
        body,
        (tf.constant(1), list(losses), [gradients[i] for i in dense], arrays),
        parallel_iterations=1,
    )
    sums: list[Gradient | None] = [None] * len(gradients)
    for i, total in zip(dense, totals, strict=True):
        sums[i] = total
    for number, i in enumerate(sparse):
        values, indices = (arrays[2 * number + k].concat() for k in (0, 1))
        shape = gradients[i].dense_shape  # type: ignore[union-attr]
        sums[i] = tf.IndexedSlices(values, indices, shape)
    return losses, sums


def _first_sample(part: tf.Tensor, num_samples: tf.Tensor, num_parts: tf.Tensor) -> tf.Tensor:
    # In int64: the product of samples and parts may exceed int32.
    product = tf.cast(part, tf.int64) * tf.cast(num_samples, tf.int64)
    return tf.cast(product // tf.cast(num_parts, tf.int64), tf.int32)
