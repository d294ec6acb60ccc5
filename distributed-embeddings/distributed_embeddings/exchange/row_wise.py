"""Lookup in row-sliced tables, of which every rank holds a run of rows."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from distributed_embeddings.exchange import bag_gradients
from distributed_embeddings.exchange.gradients import expand
from distributed_embeddings.exchange.table_wise import RowExchange
from distributed_embeddings.ops.embedding_bag import Bags, Columns
from distributed_embeddings.planner import ROW_SLICED, Plan
from distributed_embeddings.precision import precise_dtype


class RowWise:
    """Exchange for row-sliced tables that share variables.

    Each id is sent to its owner once per batch and rank, and its row is returned. Gradients of rows
    are summed over the samples of a rank and exchanged in float32, also where rows are exchanged in
    16 bits: float16 would overflow, bfloat16 would keep 8 bits of the sum.

    Args:
        variable: This rank's rows of all of them, [rows, dim].
    """

    def __init__(self, exchange: RowExchange, plan: Plan, tables: Sequence[int], variable):
        self._exchange, self._world, self._variable = exchange, exchange.world, variable
        world = exchange.world
        self.tables = tuple(tables)
        self._bounds = {t: plan.row_bounds(t) for t in self.tables}
        # For each table and rank the position of the rank's run among the rows of all ranks'
        # variables, minus the first row of the run.
        self._shifts = {t: [0] * world.size for t in self.tables}
        self._firsts = [0]
        for rank in range(world.size):
            groups = [g for g in plan.groups(rank) if g.kind == ROW_SLICED]
            rows = 0
            for group in (g for g in groups if g.shards[0].table in self._bounds):
                rows = group.rows
                for shard, offset in zip(group.shards, group.row_offsets, strict=True):
                    self._shifts[shard.table][rank] = self._firsts[-1] + offset - shard.row_start
            self._firsts.append(self._firsts[-1] + rows)

    def look_up(self, ids: Sequence[tuple[int, tf.Tensor]], dtype, name: str) -> list[tf.Tensor]:
        """Returns rows [n, dim] for (table, ids [n]) of each feature of this rank; collective."""
        rows_of_ids = tf.concat([self._global_rows(t, values) for t, values in ids], axis=0)
        distinct, position = tf.unique(rows_of_ids)
        order = tf.argsort(distinct)
        distinct = tf.gather(distinct, order)
        ends = tf.searchsorted(distinct, tf.constant(self._firsts, tf.int64))
        requested, sizes = self._world.all_to_all(distinct, ends[1:] - ends[:-1], f"{name}.ids")
        own = requested - self._firsts[self._world.rank]
        bags = Bags(own[:, tf.newaxis], Columns.single(self._variable.shape[0]))
        rows = bag_gradients.look_up(self._variable, bags, precise_dtype(self._variable.dtype))
        exchange = self._exchange
        if exchange.comm_dtype is None:
            exchange = dataclasses.replace(exchange, comm_dtype=dtype)
        grad_dtype = precise_dtype(self._variable.dtype)
        is_read = isinstance(self._variable, tf.Variable)
        rows, _ = exchange.send(rows, sizes, f"{name}.rows", grad_dtype, is_read)
        rows = tf.ensure_shape(rows, [None, self._variable.shape[1]])
        inverse = tf.math.invert_permutation(order)
        results = expand(rows, tf.gather(inverse, position), dtype)
        return tf.split(results, [tf.size(values) for _, values in ids], axis=0)

    def _global_rows(self, table: int, ids: tf.Tensor) -> tf.Tensor:
        """Returns each id's row among the rows of all ranks' variables, int64 [n]."""
        ids = tf.cast(tf.reshape(ids, [-1]), tf.int64)
        # Where ids are not checked, one outside the table must not desynchronize the ranks.
        ids = tf.clip_by_value(ids, 0, self._bounds[table][-1] - 1)
        bounds, shifts = (tf.constant(x[table], tf.int64) for x in (self._bounds, self._shifts))
        return ids + tf.gather(shifts, tf.searchsorted(bounds, ids, side="right") - 1)
