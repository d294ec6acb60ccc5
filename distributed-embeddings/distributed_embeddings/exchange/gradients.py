"""Gradients of embedding tables: rows that a batch touched, and what to add to them."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from distributed_embeddings.exchange.bag_gradients import BagGradient
from distributed_embeddings.planner.types import WHOLE_TABLE_ELEMENTS
from distributed_embeddings.precision import precise

# Dense gradients travel in messages of about this size: while one is on its way, the backward pass
# makes the next.
_BUCKET_BYTES = 2**20

Gradient = tf.Tensor | tf.IndexedSlices | BagGradient | None


def sum_duplicates(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Adds up the gradients of rows that occur more than once, in order of first occurrence.

    A stateful optimizer must see one gradient for each row: squares of parts are not the square of
    their sum.
    """
    rows, position = tf.unique(gradient.indices)
    values = sum_rows(gradient.values, position, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def sum_rows(values: tf.Tensor, position: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Sums [n, dim] to [count, dim]: row i is added, in float32, to row position[i]."""
    wide = precise(values)
    if tf.config.get_visible_devices("GPU"):
        return tf.cast(tf.math.unsorted_segment_sum(wide, position, count), values.dtype)
    # The gradient of a lookup that adds rows up: the same bits in half the time on a CPU.
    total = tf.raw_ops.SparseSegmentSumGrad(
        grad=wide, indices=position, segment_ids=tf.range(tf.size(position)), output_dim0=count
    )
    return tf.cast(total, values.dtype)


def expand(rows: tf.Tensor, index: tf.Tensor, dtype: tf.DType | None = None) -> tf.Tensor:
    """Returns rows[index] in a dtype; the gradient is dense, summed in float32.

    The rows are a batch's, not a table's, and one of them may be in every sample.
    """

    @tf.custom_gradient
    def gather(rows):
        def gradient(upstream):
            total = sum_rows(precise(upstream), index, tf.shape(rows)[0])
            return tf.cast(total, rows.dtype)

        return tf.gather(tf.cast(rows, dtype or rows.dtype), index), gradient

    return gather(rows)


def scale_gradient(gradient: Gradient, factor: float | tf.Tensor) -> Gradient:
    """Returns a gradient times a factor."""
    if gradient is None or (isinstance(factor, float) and factor == 1.0):
        return gradient
    if isinstance(gradient, BagGradient):
        return gradient.scaled(factor)
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values * tf.cast(factor, gradient.dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)


def sum_over_ranks(
    world, gradients: Sequence[Gradient], variables: Sequence[tf.Variable], name: str
) -> list[Gradient]:
    """Returns the gradients of the sum of all ranks' losses; collective.

    Gradients of a rank's own variables (marked `de_local` by `DistributedEmbedding`) have got every
    rank's part through the exchange and stay. Those of copies are summed: dense ones in few
    messages, the last layers' first, during the backward pass; those of tables row by row, so that
    an optimizer sees the rows that one rank would see.
    """
    gradients = list(gradients)
    if world.size == 1:
        return gradients
    result = list(gradients)
    shared = [
        i
        for i, (gradient, variable) in enumerate(zip(gradients, variables, strict=True))
        if gradient is not None and not getattr(variable, "de_local", False)
    ]
    dense, touched = {}, {}
    for number, i in enumerate(shared):  # ranks own different numbers of tables
        gradient, variable = gradients[i], variables[i]
        if isinstance(gradient, BagGradient):
            gradient = gradients[i] = gradient.summed()
        if not isinstance(gradient, tf.IndexedSlices):
            dense[i] = gradient
        elif variable.shape.num_elements() <= WHOLE_TABLE_ELEMENTS:
            rows = variable.shape[0]
            values = precise(gradient.values)  # of tables in 16 bits
            dense[i] = tf.math.unsorted_segment_sum(values, gradient.indices, rows)
            seen = tf.fill(tf.shape(gradient.indices), 1.0)
            touched[i] = tf.math.unsorted_segment_sum(seen, gradient.indices, rows)
        else:
            result[i] = tf.IndexedSlices(
                world.all_gather(gradient.values, f"{name}.values.{number}"),
                world.all_gather(gradient.indices, f"{name}.indices.{number}"),
                gradient.dense_shape,
            )
    result_of, rows_of = {}, {}
    for number, bucket in enumerate(_buckets(dense)):
        tensors = [*(dense[i] for i in bucket), *(touched[i] for i in bucket if i in touched)]
        summed = world.all_reduce(tensors, "sum", f"{name}.dense.{number}")
        result_of |= dict(zip(bucket, summed, strict=False))
        rows_of |= dict(
            zip([i for i in bucket if i in touched], summed[len(bucket) :], strict=True)
        )
    for i, gradient in result_of.items():
        if i in rows_of:
            rows = tf.cast(tf.where(rows_of[i] > 0)[:, 0], gradients[i].indices.dtype)
            values = tf.cast(tf.gather(gradient, rows), gradients[i].values.dtype)
            gradient = tf.IndexedSlices(values, rows, gradients[i].dense_shape)
        result[i] = gradient
    return result


def _buckets(gradients: Mapping[int, tf.Tensor]) -> list[list[int]]:
    """Returns keys of gradients that travel together, in the order of a backward pass."""
    buckets, size_bytes = [[]], 0
    for i in sorted(gradients, reverse=True):
        if size_bytes >= _BUCKET_BYTES:
            buckets.append([])
            size_bytes = 0
        buckets[-1].append(i)
        size_bytes += (gradients[i].shape.num_elements() or 0) * gradients[i].dtype.size
    return buckets if gradients else []
