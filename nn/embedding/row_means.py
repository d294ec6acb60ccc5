"""Means over the columns of table rows, also where the columns live on several ranks."""

from collections.abc import Sequence

import tensorflow as tf

from nn.embedding.plan import Plan


class RowMeans:
    """Means over whole rows, from what each rank knows of its columns.

    Optimizers with one number a row (row-wise Adagrad) need them: of a column slice alone they
    would learn at another rate than the whole row. All holders of a table's slices got the same
    ids, so that one number a row and holder is all that travels.

    Args:
      world: the ranks.
      plan: who holds what.
      variables: of each of this rank's groups its variable (None for others).
      name: of the exchange.
    """

    def __init__(self, world, plan: Plan, variables: Sequence, name: str):
        self._world, self._name = world, name
        holders = {
            t: sorted({shard.rank for shard in shards})
            for t, shards in enumerate(plan.column_slices)
        }
        self._slices = []  # (table, variable, first row, end, columns of the table, other holders)
        for variable, group in zip(variables, plan.groups(world.rank), strict=True):
            for shard, offset in zip(group.shards, group.row_offsets, strict=True):
                others = [r for r in holders[shard.table] if r != world.rank]
                if variable is not None and others and shard.columns < plan.tables[shard.table].dim:
                    end = offset + shard.rows
                    dim = plan.tables[shard.table].dim
                    self._slices.append((shard.table, variable, offset, end, dim, others))
        self._slices.sort(key=lambda item: item[0])
        self.any_slices = any(len(ranks) > 1 for ranks in holders.values())

    def __call__(self, variables: Sequence, rows: Sequence, sums: Sequence) -> list[tf.Tensor]:
        """Means of rows; collective.

        Args:
          variables: variables [any, columns].
          rows: for each a list of its rows, [m], rising.
          sums: for each the sums over its columns, float32 [m].

        Returns:
          For each float32 [m].
        """
        means = [s / v.shape[1] for v, s in zip(variables, sums, strict=True)]
        place = {v.ref(): i for i, v in enumerate(variables)}
        parts = {}  # table -> (number of the variable, first, this rank's sums)
        for t, variable, first, end, _, _ in self._slices:
            i = place.get(variable.ref())
            if i is not None:
                bounds = tf.searchsorted(rows[i], tf.constant([first, end], rows[i].dtype))
                parts[t] = (i, bounds[0], sums[i][bounds[0] : bounds[1]])
        shared = [item for item in self._slices if item[0] in parts]
        nothing = tf.zeros([0], tf.float32)
        sent, sizes = [nothing], []
        for rank in range(self._world.size):
            mine = [parts[item[0]][2] for item in shared if rank in item[5]]
            sent += mine
            sizes.append(tf.add_n([tf.size(part) for part in mine]) if mine else tf.constant(0))
        received, _ = self._world.all_to_all(tf.concat(sent, axis=0), tf.stack(sizes), self._name)
        senders = [
            (rank, item[0])
            for rank in range(self._world.size)
            for item in shared
            if rank in item[5]
        ]
        if not senders:
            return means
        runs = tf.split(received, [tf.size(parts[t][2]) for _, t in senders])
        for t, _, _, _, dim, _ in shared:
            i, first, own = parts[t]
            total = tf.add_n([own, *(r for (_, s), r in zip(senders, runs, strict=True) if s == t)])
            where = first + tf.range(tf.size(own))
            means[i] = tf.tensor_scatter_nd_update(means[i], where[:, tf.newaxis], total / dim)
        return means
