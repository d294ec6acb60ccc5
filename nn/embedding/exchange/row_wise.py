"""Look-ups in tables of which every rank holds a run of rows."""

from collections.abc import Sequence

import tensorflow as tf

from nn.embedding.exchange.gradients import sum_rows
from nn.embedding.exchange.table_wise import exchange_rows
from nn.precision import precise, precise_dtype


def _expand(rows, index, dtype):
    """rows[index] in a dtype, whose gradient is dense: the rows are a batch's, not a table's.

    An id may occur in every sample: its gradient is summed in float32.
    """

    @tf.custom_gradient
    def expand(rows):
        def gradient(upstream):
            total = sum_rows(precise(upstream), index, tf.shape(rows)[0])
            return tf.cast(total, rows.dtype)

        return tf.gather(tf.cast(rows, dtype), index), gradient

    return expand(rows)


class RowSliced:
    """Exchange for tables of which every rank holds a run of rows: each id travels to its owner
    once a batch and rank, however often it occurs, and its row comes back.

    The gradient of a row is the sum over the samples of a rank. It travels in float32, also where
    rows travel in 16 bits: float16 would overflow, bfloat16 would keep 8 bits of the sum.

    Args:
      world: the ranks.
      bounds: for each table its rows' bounds, [world size + 1]: rank r holds
        [bounds[r], bounds[r + 1]).
      offsets: for each table and rank the row of the rank's variable at which its run starts.
      variable_rows: rows of each rank's variable.
      wire_dtype: dtype of rows on their way; None for their own.
      anchor: see `exchange_rows`.
    """

    def __init__(self, world, bounds, offsets, variable_rows, wire_dtype=None, anchor=None):
        self.world = world
        self.anchor = anchor
        self.wire_dtype = wire_dtype
        # Rows of all ranks' variables, one after the other.
        firsts = [sum(variable_rows[:rank]) for rank in range(world.size)]
        self._firsts = [*firsts, sum(variable_rows)]
        self._bounds = [list(b) for b in bounds]
        self._shifts = [
            [firsts[r] + of[r] - b[r] for r in range(world.size)]
            for b, of in zip(bounds, offsets, strict=True)
        ]

    def look_up(self, variable, ids: Sequence[tuple[int, tf.Tensor]], dtype, name: str):
        """Rows of ids.

        Args:
          variable: this rank's rows [rows, dim] of all tables.
          ids: (place of the table among those of `bounds`, ids [n] in the table) of each feature
            of this rank's samples.
          dtype: of the result.
          name: prefix of the exchanges' names.

        Returns:
          [n, dim] of each feature.
        """
        places = tf.concat([self._places(t, values) for t, values in ids], axis=0)
        wanted, position = tf.unique(places)
        order = tf.argsort(wanted)
        back = tf.math.invert_permutation(order)
        wanted = tf.gather(wanted, order)
        ends = tf.searchsorted(wanted, tf.constant(self._firsts, tf.int64))
        own_first = self._firsts[self.world.rank]
        asked, asked_sizes = self.world.all_to_all(wanted, ends[1:] - ends[:-1], f"{name}.ids")
        rows = precise(tf.gather(variable, asked - own_first))
        rows, _ = exchange_rows(
            self.world,
            rows,
            asked_sizes,
            f"{name}.rows",
            self.wire_dtype or dtype,
            self.anchor,
            gradient_dtype=precise_dtype(variable.dtype),
        )
        rows = tf.ensure_shape(rows, [None, variable.shape[1]])
        results = _expand(rows, tf.gather(back, position), dtype)
        return tf.split(results, [tf.size(values) for _, values in ids], axis=0)

    def _places(self, table: int, ids: tf.Tensor) -> tf.Tensor:
        """int64 [n], each id's row among the rows of all ranks' variables."""
        ids = tf.cast(tf.reshape(ids, [-1]), tf.int64)
        # Where ids are not checked, one outside the table must not leave the ranks out of step.
        ids = tf.clip_by_value(ids, 0, self._bounds[table][-1] - 1)
        bounds, shifts = (tf.constant(x[table], tf.int64) for x in (self._bounds, self._shifts))
        return ids + tf.gather(shifts, tf.searchsorted(bounds, ids, side="right") - 1)
