"""Rows of one variable: ids of several features in, one vector or more a sample out."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from nn.embedding.ids import Ids, Signature
from nn.precision import precise


class Slot(NamedTuple):
    """A feature's look-up in a variable that holds several tables.

    Attributes:
      signature: of the feature's ids.
      offset: row of the variable at which the table starts.
      rows: rows of the table; valid ids are in [0, rows).
    """

    signature: Signature
    offset: int
    rows: int


def look_up(
    variable, slots: Sequence[Slot], fixed: tf.Tensor | None, ragged: Sequence[Ids], dtype, check
) -> list[tf.Tensor]:
    """Looks up and combines the ids of all slots with one gather for all fixed ones.

    Args:
      variable: [rows, dim].
      slots: the fixed ones first, then the ragged ones.
      fixed: [batch, ids of all fixed slots], side by side.
      ragged: ids of each ragged slot.
      dtype: of the result.
      check: raise InvalidArgumentError for an id that is not in its table.

    Returns:
      For consecutive slots whose vectors stand side by side one tensor [batch, their vectors *
      dim]; for a ragged slot without combiner [sum of lengths, dim].
    """
    num_fixed = len(slots) - len(ragged)
    outputs = []
    if num_fixed:
        outputs += _look_up_fixed(variable, slots[:num_fixed], fixed, dtype, check)
    for slot, ids in zip(slots[num_fixed:], ragged, strict=True):
        rows = tf.gather(variable, _offset(ids.values, [slot], variable, check))
        if slot.signature.combiner is not None:
            rows = combine_ragged(rows, ids.lengths, slot.signature.combiner)
        outputs.append(tf.cast(rows, dtype))
    return outputs


def _look_up_fixed(variable, slots, ids, dtype, check) -> list[tf.Tensor]:
    dim = variable.shape[1]
    counts = [slot.signature.num_ids for slot in slots]
    rows = tf.gather(variable, _offset(ids, slots, variable, check, counts))
    kinds = {(s.signature.hotness, s.signature.combiner) for s in slots}
    if all(hotness == 1 for hotness, _ in kinds):
        return [tf.reshape(tf.cast(rows, dtype), [-1, sum(counts) * dim])]
    if len(kinds) == 1:
        hotness, combiner = kinds.pop()
        vectors = sum(counts) // hotness
        rows = combine_fixed(tf.reshape(rows, [-1, vectors, hotness, dim]), combiner)
        return [tf.reshape(tf.cast(rows, dtype), [-1, vectors * dim])]
    outputs = []
    for slot, part in zip(slots, tf.split(rows, counts, axis=1), strict=True):
        vectors, hotness = slot.signature.vectors, slot.signature.hotness
        part = tf.reshape(part, [-1, vectors, hotness, dim])
        part = tf.cast(combine_fixed(part, slot.signature.combiner), dtype)
        outputs.append(tf.reshape(part, [-1, vectors * dim]))
    return [tf.concat(outputs, axis=1)]


def combine_fixed(rows: tf.Tensor, combiner: str | None) -> tf.Tensor:
    """[..., hotness, dim] to [..., dim], summed in float32 and of the dtype of the rows.

    Without a combiner hotness is 1.
    """
    if rows.shape[-2] == 1:
        return tf.squeeze(rows, -2)
    reduce = tf.reduce_mean if combiner == "mean" else tf.reduce_sum
    return tf.cast(reduce(precise(rows), axis=-2), rows.dtype)


def combine_ragged(rows: tf.Tensor, lengths: tf.Tensor, combiner: str) -> tf.Tensor:
    """[sum of lengths, dim] to [batch, dim], summed in float32 and of the dtype of the rows.

    A sample without ids gets zeros.
    """
    batch_size = tf.size(lengths)
    samples = tf.repeat(tf.range(batch_size), lengths)
    total = tf.math.unsorted_segment_sum(precise(rows), samples, batch_size)
    if combiner == "mean":
        total /= tf.cast(tf.maximum(lengths, 1), total.dtype)[:, tf.newaxis]
    return tf.cast(total, rows.dtype)


def checked(ids: tf.Tensor, rows) -> tf.Tensor:
    """The ids; InvalidArgumentError if one is not in [0, rows). Costs a wait on a GPU."""
    rows = tf.constant(rows, tf.int64)
    wide = tf.cast(ids, tf.int64)
    valid = tf.reduce_all(tf.logical_and(wide >= 0, wide < rows))
    message = "an id is not in [0, rows of its table). Ids, and the rows of their tables:"
    assertion = tf.debugging.Assert(valid, [message, ids, rows], summarize=30)
    with tf.control_dependencies([] if assertion is None else [assertion]):
        return tf.identity(ids)


def _offset(ids, slots, variable, check: bool, counts=None) -> tf.Tensor:
    """Ids as rows of the variable."""
    dtype = tf.int32 if variable.shape[0] < 2**31 else tf.int64
    counts = counts or [1] * len(slots)

    def a_column(values):
        return [v for v, count in zip(values, counts, strict=True) for _ in range(count)]

    if check:
        ids = checked(ids, a_column([slot.rows for slot in slots]))
    ids = tf.cast(ids, dtype)
    offsets = a_column([slot.offset for slot in slots])
    return ids + tf.constant(offsets, dtype) if any(offsets) else ids
