"""Ids of the features of a batch, in whatever form a program passes them."""

import math
from typing import NamedTuple

import tensorflow as tf


class Signature(NamedTuple):
    """Static properties of a feature's ids; equal on every rank.

    Attributes:
        ragged: Whether samples differ in their number of ids.
        inner: Shape of a sample's output before the table's dim; () for one vector. None for
            ragged ids that are not combined.
        hotness: Ids per vector (0 for ragged ids).
        combiner: None, "sum" or "mean".
    """

    ragged: bool
    inner: tuple[int, ...] | None
    hotness: int
    combiner: str | None

    @property
    def vectors(self) -> int:
        """Vectors per sample."""
        return math.prod(self.inner or ())

    @property
    def num_ids(self) -> int:
        """Ids per sample, of fixed ids."""
        return self.vectors * self.hotness


class Ids(NamedTuple):
    """A feature's ids of a batch.

    Attributes:
        signature: Their static properties.
        values: int32 or int64; [batch, num_ids] where fixed, [sum of lengths] where ragged.
        lengths: int32 [batch], ids per sample; None where fixed.
    """

    signature: Signature
    values: tf.Tensor
    lengths: tf.Tensor | None = None

    @property
    def batch_size(self) -> tf.Tensor:
        return tf.shape(self.values if self.lengths is None else self.lengths)[0]


def read_ids(ids, combiner: str | None, feature: str) -> Ids:
    """Brings what a program passes as a feature's ids into one form.

    Args:
        ids: A tensor [batch] or [batch, ..., hotness], a 2-D `tf.RaggedTensor`, or a 2-D
            `tf.SparseTensor` in row order, whose columns do not matter.
        feature: Name of the feature in errors.

    Raises:
        ValueError: Ids of another rank, [batch] with a combiner, or an unknown hotness without one.
        tf.errors.InvalidArgumentError: Sparse ids in another order.
    """
    if isinstance(ids, tf.SparseTensor):
        if ids.shape.rank not in (2, None):
            raise ValueError(f"{feature}: sparse ids must be [batch, any], got {ids.shape}")
        rows = tf.cast(ids.indices[:, 0], tf.int32)
        tf.debugging.assert_non_negative(
            rows[1:] - rows[:-1],
            f"{feature}: expected sparse ids in the order of their samples, got others: call "
            "tf.sparse.reorder",
        )
        batch_size = tf.cast(ids.dense_shape[0], tf.int32)
        lengths = tf.math.bincount(rows, minlength=batch_size, dtype=tf.int32)
        return _ragged(integer_ids(ids.values), lengths, combiner)
    if isinstance(ids, tf.RaggedTensor):
        if ids.shape.rank != 2 or ids.ragged_rank != 1:
            raise ValueError(
                f"{feature}: ragged ids must be [batch, None], nested ones are not supported; got "
                f"{ids.shape} with ragged rank {ids.ragged_rank}"
            )
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        return _ragged(integer_ids(ids.values), lengths, combiner)
    return _read_dense(integer_ids(tf.convert_to_tensor(ids)), combiner, feature)


def _read_dense(ids: tf.Tensor, combiner: str | None, feature: str) -> Ids:
    shape = ids.shape.as_list() if ids.shape.rank is not None else []
    if not shape:
        raise ValueError(
            f"{feature}: ids must be [batch] or [batch, ..., hotness], got {ids.shape}"
        )
    if len(shape) == 1:
        if combiner is not None:
            raise ValueError(
                f"{feature}: ids of shape [batch] with combiner {combiner!r}: is that one sample "
                "or one id a sample? Give [batch, 1]"
            )
        return Ids(Signature(False, (), 1, None), ids[:, tf.newaxis])
    if None in shape[1:] or 0 in shape[1:]:
        if len(shape) > 2 or combiner is None:
            raise ValueError(
                f"{feature}: ids {ids.shape} need a static shape above 0 after the batch"
                + ("" if len(shape) > 2 else ", or a combiner")
            )
        size = tf.shape(ids)
        return _ragged(tf.reshape(ids, [-1]), tf.fill(size[:1], size[1]), combiner)
    inner, hotness = (shape[1:], 1) if combiner is None else (shape[1:-1], shape[-1])
    signature = Signature(False, tuple(inner), hotness, combiner)
    if len(shape) > 2:
        ids = tf.reshape(ids, [-1, signature.num_ids])
    return Ids(signature, ids)


def _ragged(values: tf.Tensor, lengths, combiner: str | None) -> Ids:
    inner = None if combiner is None else ()
    return Ids(Signature(True, inner, 0, combiner), values, lengths)


def integer_ids(ids: tf.Tensor) -> tf.Tensor:
    """Returns ids as int32 or int64, which no value of a wider dtype is cut to."""
    if ids.dtype in (tf.int32, tf.int64):
        return ids
    return tf.cast(ids, tf.int64 if ids.dtype.size > 2 else tf.int32)
