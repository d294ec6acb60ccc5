"""Gradients of a batch that goes through the model in parts, one after the other."""

from collections.abc import Callable

import tensorflow as tf


def accumulated(differentiate: Callable, batch, num_parts: int):
    """Losses and gradients of a batch, the sums of those of its parts.

    A part is a run of rows, the parts are as equal as can be, and there are at most as many as
    rows. They go one after the other: memory holds the activations of one.

    Args:
      differentiate: `(part, share) -> (losses, gradients)`: scalars, and of each variable a tensor,
        `tf.IndexedSlices` or None; both times `share`, the part's share of the rows (None: of all).
      batch: nested tensors of equal first dimension.
      num_parts: how many; 1 is the batch as it is.

    Returns:
      (losses, gradients) of the whole batch. Rows of a table that several parts have stand in its
      gradient several times.
    """
    if num_parts == 1:
        return differentiate(batch, None)
    num_rows = tf.shape(tf.nest.flatten(batch)[0])[0]
    num_parts = tf.minimum(num_parts, num_rows)

    def first_row(number: tf.Tensor) -> tf.Tensor:
        """Of a part; in int64, since rows times parts may be beyond int32."""
        wide = tf.cast(number, tf.int64) * tf.cast(num_rows, tf.int64)
        return tf.cast(wide // tf.cast(num_parts, tf.int64), tf.int32)

    def part(number: tf.Tensor):
        start, stop = first_row(number), first_row(number + 1)
        rows = tf.nest.map_structure(lambda whole: whole[start:stop], batch)
        return differentiate(rows, (stop - start) / num_rows)

    losses, gradients = part(tf.constant(0))
    sparse = [i for i, g in enumerate(gradients) if isinstance(g, tf.IndexedSlices)]
    dense = [i for i, g in enumerate(gradients) if g is not None and i not in sparse]

    def lists_of(found) -> list[tf.Tensor]:
        return [t for i in sparse for t in (found[i].values, found[i].indices)]

    def collect(number, lists, tensors):
        return [of.write(number, t) for of, t in zip(lists, tensors, strict=True)]

    lists = [
        tf.TensorArray(
            t.dtype,
            num_parts,
            infer_shape=False,
            element_shape=[None, *t.shape[1:]],
        )
        for t in lists_of(gradients)
    ]
    lists = collect(0, lists, lists_of(gradients))

    def body(number, sums, totals, lists):
        more, found = part(number)
        sums = [a + b for a, b in zip(sums, more, strict=True)]
        totals = [a + found[i] for a, i in zip(totals, dense, strict=True)]
        return number + 1, sums, totals, collect(number, lists, lists_of(found))

    _, losses, totals, lists = tf.while_loop(
        lambda number, *_: number < num_parts,
        body,
        (tf.constant(1), list(losses), [gradients[i] for i in dense], lists),
        parallel_iterations=1,
    )
    result = [None] * len(gradients)
    for i, total in zip(dense, totals, strict=True):
        result[i] = total
    for position, i in enumerate(sparse):
        values, indices = (lists[2 * position + k].concat() for k in (0, 1))
        result[i] = tf.IndexedSlices(values, indices, gradients[i].dense_shape)
    return losses, result
