"""Lookup in row-sliced tables, of which every rank holds a run of rows."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from distributed_embeddings.exchange import bag_gradients
from distributed_embeddings.exchange.gradients import expand
from distributed_embeddings.exchange.ids import Ids
from distributed_embeddings.exchange.row_exchange import RowExchange
from distributed_embeddings.ops.embedding_bag import (
    Bags,
    checked,
    combine_fixed,
    combine_ragged,
)
from distributed_embeddings.planner import ROW_SLICED, Plan
from distributed_embeddings.precision import precise_dtype


class _Wanted(NamedTuple):
    """Rows that the ranks want of this one, and the places of those that it wants.

    Attributes:
        rows: int64 [n], rows of this rank's variable.
        sizes: int32 [world size], how many of them each rank wants.
        position: Of each id of this rank its row among those that will be returned.
    """

    rows: tf.Tensor
    sizes: tf.Tensor
    position: tf.Tensor


class RowWise:
    """Part of a lookup: row-sliced tables that share variables.

    Each id is sent to its owner once per batch and rank, and its row is returned. Gradients of rows
    are summed over the samples of a rank and exchanged in float32, also where rows are exchanged in
    16 bits: float16 would overflow, bfloat16 would keep 8 bits of the sum.

    Args:
        variable: This rank's rows of all of them, [rows, dim].
        check_ids: Whether an id outside its table raises InvalidArgumentError.
        dtype: Of the vectors.
        name: Suffix of the names of its collectives.
    """

    def __init__(
        self,
        exchange: RowExchange,
        plan: Plan,
        tables: Sequence[int],
        variable: tf.Variable | tf.Tensor,
        check_ids: bool,
        dtype: tf.DType,
        name: str,
    ):
        self._exchange, self._world, self._variable = exchange, exchange.world, variable
        self._check_ids, self._dtype, self._name = check_ids, dtype, name
        self._table_of = {f: plan.features[f].table for f in plan.features_of(tuple(tables))}
        self._bounds = {t: plan.row_bounds(t) for t in tables}
        # For each table and rank the position of the rank's run among the rows of all ranks'
        # variables, minus the first row of the run.
        self._shifts = {t: [0] * self._world.size for t in tables}
        self._firsts = [0]
        for rank in range(self._world.size):
            groups = [g for g in plan.groups(rank) if g.kind == ROW_SLICED]
            rows = 0
            for group in (g for g in groups if g.shards[0].table in self._bounds):
                rows = group.rows
                for shard, offset in zip(group.shards, group.row_offsets, strict=True):
                    self._shifts[shard.table][rank] = self._firsts[-1] + offset - shard.row_start
            self._firsts.append(self._firsts[-1] + rows)

    def concatenated(self, ids: Mapping[int, Ids], name: str) -> None:
        """Returns None: vectors come by feature."""

    def __call__(self, ids: Mapping[int, Ids], name: str) -> dict[int, tf.Tensor]:
        """Returns the vectors of this rank's samples by feature; collective."""
        name = f"{name}.{self._name}"
        received = self.send_ids(ids, name)
        return self.return_vectors(self.look_up(received), received, ids, name)

    def send_ids(self, ids: Mapping[int, Ids], name: str) -> _Wanted:
        """Sends each distinct id of this rank's samples to the owner of its row."""
        rows_of_ids = tf.concat([self._global_rows(f, ids[f]) for f in self._table_of], axis=0)
        distinct, position = tf.unique(rows_of_ids)
        order = tf.argsort(distinct)
        distinct = tf.gather(distinct, order)
        ends = tf.searchsorted(distinct, tf.constant(self._firsts, tf.int64))
        requested, sizes = self._world.all_to_all(distinct, ends[1:] - ends[:-1], f"{name}.ids")
        position = tf.gather(tf.math.invert_permutation(order), position)
        return _Wanted(requested - self._firsts[self._world.rank], sizes, position)

    def look_up(self, received: _Wanted) -> tf.Tensor:
        """Returns the rows [n, dim] that the ranks want of this one."""
        bags = Bags.single(received.rows[:, tf.newaxis], self._variable.shape[0])
        return bag_gradients.look_up(self._variable, bags, precise_dtype(self._variable.dtype))

    def return_vectors(
        self, rows: tf.Tensor, received: _Wanted, ids: Mapping[int, Ids], name: str
    ) -> dict[int, tf.Tensor]:
        """Sends rows (see `look_up`) back to the ranks of their samples, which combine them."""
        exchange = self._exchange
        if exchange.comm_dtype is None:
            exchange = dataclasses.replace(exchange, comm_dtype=self._dtype)
        grad_dtype = precise_dtype(self._variable.dtype)
        is_read = isinstance(self._variable, tf.Variable)
        rows, _ = exchange.send(rows, received.sizes, f"{name}.rows", grad_dtype, is_read)
        rows = tf.ensure_shape(rows, [None, self._variable.shape[1]])
        vectors = expand(rows, received.position, self._dtype)
        parts = tf.split(vectors, [tf.size(ids[f].values) for f in self._table_of], axis=0)
        return {f: _combine(ids[f], part) for f, part in zip(self._table_of, parts, strict=True)}

    def _global_rows(self, feature: int, ids: Ids) -> tf.Tensor:
        """Returns each id's row among the rows of all ranks' variables, int64 [n]."""
        table, values = self._table_of[feature], tf.reshape(ids.values, [-1])
        rows = self._bounds[table][-1]
        if self._check_ids:
            values = checked(values, rows)
        # Where ids are not checked, one outside the table must not desynchronize the ranks.
        values = tf.clip_by_value(tf.cast(values, tf.int64), 0, rows - 1)
        bounds, shifts = (tf.constant(x[table], tf.int64) for x in (self._bounds, self._shifts))
        return values + tf.gather(shifts, tf.searchsorted(bounds, values, side="right") - 1)


def _combine(ids: Ids, vectors: tf.Tensor) -> tf.Tensor:
    """Combines the vectors [n, dim] of a feature's ids."""
    signature = ids.signature
    if not signature.ragged:
        shape = [-1, signature.vectors, signature.hotness, vectors.shape[-1]]
        return combine_fixed(tf.reshape(vectors, shape), signature.combiner)
    if signature.combiner is None:
        return vectors
    return combine_ragged(vectors, ids.lengths, signature.combiner)
