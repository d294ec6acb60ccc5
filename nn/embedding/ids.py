"""Ids of a feature in the forms that programs pass: dense, ragged, sparse."""

from typing import NamedTuple

import tensorflow as tf


class Signature(NamedTuple):
    """Static properties of a feature's ids; equal on every rank.

    Attributes:
        ragged: samples differ in their number of ids.
        inner: shape of a sample's output before the table's dim; () for one vector. None where
            every sample has another number of vectors (ragged ids that are not combined).
        hotness: ids per vector (0 for ragged ids).
        combiner: None, "sum" or "mean".
    """

    ragged: bool
    inner: tuple[int, ...] | None
    hotness: int
    combiner: str | None

    @property
    def vectors(self) -> int:
        """Vectors a sample."""
        count = 1
        for size in self.inner or ():
            count *= size
        return count

    @property
    def num_ids(self) -> int:
        """Ids per sample; of fixed ids only."""
        return self.vectors * self.hotness


class Ids(NamedTuple):
    """A feature's ids of a batch.

    Attributes:
        values: int32 or int64; [batch, num_ids] where fixed, [sum of lengths] where ragged.
        lengths: int32 [batch], ids per sample; None where fixed.
    """

    values: tf.Tensor
    lengths: tf.Tensor | None = None

    @property
    def batch_size(self) -> tf.Tensor:
        """int32 scalar."""
        return tf.shape(self.values if self.lengths is None else self.lengths)[0]


def read_ids(ids, combiner: str | None, feature: str) -> tuple[Signature, Ids]:
    """Brings what a program passes as a feature's ids into one form.

    Args:
        ids: a tensor [batch] or [batch, ..., hotness], a 2-D `tf.RaggedTensor`, or a 2-D
            `tf.SparseTensor` in row order, whose columns do not matter. Ids are int32 or int64;
            others are cast to the one that holds them.
        combiner: of the table; without one every id's row is an output.
        feature: how to call it in an error.

    Raises:
        ValueError: ids of another rank, [batch] with a combiner, or an unknown hotness without one.
    """
    if isinstance(ids, tf.SparseTensor):
        if ids.shape.rank not in (2, None):
            raise ValueError(f"{feature}: sparse ids must be [batch, any], got {ids.shape}")
        rows = tf.cast(ids.indices[:, 0], tf.int32)
        lengths = tf.math.bincount(
            rows, minlength=tf.cast(ids.dense_shape[0], tf.int32), dtype=tf.int32
        )
        return _ragged(_integers(ids.values), lengths, combiner)
    if isinstance(ids, tf.RaggedTensor):
        if ids.shape.rank != 2 or ids.ragged_rank != 1:
            raise ValueError(
                f"{feature}: ragged ids must be [batch, None], nested ones are not supported; got "
                f"{ids.shape} with ragged rank {ids.ragged_rank}"
            )
        return _ragged(_integers(ids.values), tf.cast(ids.row_lengths(), tf.int32), combiner)
    ids = _integers(tf.convert_to_tensor(ids))
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
        return Signature(False, (), 1, None), Ids(ids[:, tf.newaxis])
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
    return signature, Ids(tf.reshape(ids, [-1, signature.num_ids]) if len(shape) > 2 else ids)


def _ragged(values, lengths, combiner: str | None) -> tuple[Signature, Ids]:
    inner = None if combiner is None else ()
    return Signature(True, inner, 0, combiner), Ids(values, lengths)


def _integers(ids: tf.Tensor) -> tf.Tensor:
    if ids.dtype in (tf.int32, tf.int64):
        return ids
    return tf.cast(ids, tf.int64 if ids.dtype.size > 2 else tf.int32)
