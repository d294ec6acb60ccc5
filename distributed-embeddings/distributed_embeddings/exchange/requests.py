"""Requests of a batch: the ids of each feature, and the shards that they are looked up in."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from distributed_embeddings.ops.embedding_bag import Bags, Columns, splits_of
from distributed_embeddings.planner import Lookup, Shard


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
        values: int32 or int64; [batch, num_ids] where fixed, [sum of lengths] where ragged.
        lengths: int32 [batch], ids per sample; None where fixed.
    """

    values: tf.Tensor
    lengths: tf.Tensor | None = None

    @property
    def batch_size(self) -> tf.Tensor:
        return tf.shape(self.values if self.lengths is None else self.lengths)[0]


def read_ids(ids, combiner: str | None, feature: str) -> tuple[Signature, Ids]:
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


def _read_dense(ids: tf.Tensor, combiner: str | None, feature: str) -> tuple[Signature, Ids]:
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
    if len(shape) > 2:
        ids = tf.reshape(ids, [-1, signature.num_ids])
    return signature, Ids(ids)


def _ragged(values: tf.Tensor, lengths, combiner: str | None) -> tuple[Signature, Ids]:
    inner = None if combiner is None else ()
    return Signature(True, inner, 0, combiner), Ids(values, lengths)


def integer_ids(ids: tf.Tensor) -> tf.Tensor:
    """Returns ids as int32 or int64, which no value of a wider dtype is cut to."""
    if ids.dtype in (tf.int32, tf.int64):
        return ids
    return tf.cast(ids, tf.int64 if ids.dtype.size > 2 else tf.int32)


class Request(NamedTuple):
    """Lookup of a feature in a shard (see `planner.Lookup`), for ids of one signature.

    Attributes:
        width: Elements per sample; of ragged ids without combiner per id.
    """

    feature: int
    group: int
    row_offset: int
    shard: Shard
    signature: Signature
    width: int


class Requests:
    """Lookups of a rank in the order of the exchange.

    The order: by group, fixed ids before ragged ones, ragged ids without a combiner last.

    Attributes:
        pooled: Requests whose vectors form one row per sample, [batch, width].
        uncombined: Requests with ragged ids and no combiner, whose vectors are exchanged apart.
        num_ids: Fixed ids per sample.
        width: Elements of the pooled vectors of a sample.
    """

    def __init__(self, lookups: Sequence[Lookup], signatures: Mapping[int, Signature]):
        requests = []
        for lookup in lookups:
            signature, shard = signatures[lookup.feature], lookup.shard
            width = signature.vectors * shard.columns
            requests.append(
                Request(lookup.feature, lookup.group, lookup.row_offset, shard, signature, width)
            )
        self.ordered = sorted(
            requests, key=lambda r: (r.group, r.signature.ragged, r.signature.inner is None)
        )
        self.fixed = [r for r in self.ordered if not r.signature.ragged]
        self.ragged = [r for r in self.ordered if r.signature.ragged]
        self.pooled = [r for r in self.ordered if r.signature.inner is not None]
        self.uncombined = [r for r in self.ordered if r.signature.inner is None]
        self.num_ids = sum(r.signature.num_ids for r in self.fixed)
        self.width = sum(r.width for r in self.pooled)

    def select(self, ids: Mapping[int, Ids]) -> tuple[tf.Tensor | None, list[Ids]]:
        """Returns (fixed ids [batch, num_ids], None without any; ragged ids of each request)."""
        fixed = [ids[r.feature].values for r in self.fixed]
        return tf.concat(fixed, axis=1) if fixed else None, [ids[r.feature] for r in self.ragged]

    def bags(self, fixed: tf.Tensor | None, ragged: Sequence[Ids]) -> list[Bags]:
        """Returns the bags of one group's ids: all fixed ones together, then each ragged request.

        Args:
            fixed, ragged: See `select`.
        """
        bags = [Bags(fixed, _columns(self.fixed))] if self.fixed else []
        for r, ids in zip(self.ragged, ragged, strict=True):
            if r.signature.combiner is None:  # a bag per id
                bags.append(Bags(ids.values[:, tf.newaxis], _columns([r])))
            else:
                bags.append(Bags(ids.values, _columns([r]), splits_of(ids.lengths)))
        return bags

    def split(self, pooled: tf.Tensor) -> list[tuple[Request, tf.Tensor]]:
        """Splits pooled vectors [batch, width] into those of each request."""
        parts = tf.split(pooled, [r.width for r in self.pooled], axis=1)
        return list(zip(self.pooled, parts, strict=True))


def by_group(lookups: Sequence[Lookup]) -> list[list[Lookup]]:
    """Returns the lookups of each group, in the order of the groups."""
    ordered = sorted(lookups, key=lambda lookup: lookup.group)
    runs = itertools.groupby(ordered, key=lambda lookup: lookup.group)
    return [list(run) for _, run in runs]


def _columns(requests: Sequence[Request]) -> Columns:
    """Returns the output vectors of requests, all fixed, or a single ragged one."""
    columns = []
    for r in requests:
        hotness, mean = r.signature.hotness or 1, r.signature.combiner == "mean"
        column = (hotness, r.row_offset, r.shard.rows, mean)
        columns += [column] * (1 if r.signature.ragged else r.signature.vectors)
    return Columns(*zip(*columns, strict=True))


def call_layer(
    layer, requests: Requests, fixed: tf.Tensor | None, ragged: Sequence[Ids], dtype
) -> list[tf.Tensor]:
    """Calls a layer of a custom class with one group's ids.

    Returns:
        One output for each of `requests.bags(fixed, ragged)`: [batch, width], without combiner
        [ids, columns].
    """
    columns = requests.ordered[0].shard.columns
    vectors, outputs = [], []
    if requests.fixed:
        counts = [r.signature.num_ids for r in requests.fixed]
        for r, part in zip(requests.fixed, tf.split(fixed, counts, axis=1), strict=True):
            inner, hotness = r.signature.inner, [r.signature.hotness]
            shape = [*inner, *(hotness if r.signature.combiner else [])]
            output = layer(tf.reshape(part, [-1, *shape]))
            _check_output(layer, output, (*inner, columns))
            vectors.append(tf.cast(tf.reshape(output, [-1, r.width]), dtype))
        outputs.append(tf.concat(vectors, axis=1))
    for r, ids in zip(requests.ragged, ragged, strict=True):
        output = layer(tf.RaggedTensor.from_row_lengths(ids.values, ids.lengths, validate=False))
        if r.signature.combiner is None:
            output = output.values
        _check_output(layer, output, (columns,))
        outputs.append(tf.cast(output, dtype))
    return outputs


def _check_output(layer, output, expected: tuple[int, ...]) -> None:
    if tuple(output.shape[1:]) != expected:
        raise ValueError(
            f"{type(layer).__name__} {layer.name}: expected an output of shape "
            f"{['batch', *expected]} (that of the ids, without the last dimension if the layer has "
            f"a combiner, and output_dim), got {output.shape}"
        )
