"""Means over the columns of table rows, also where the columns live on several ranks."""

from collections.abc import Sequence

import tensorflow as tf

from distributed_embeddings.planner import Plan


class RowMeans:
    """Means over whole rows, for optimizers with one number per row (row-wise Adagrad).

    All holders of a table's slices got the same ids: they exchange one number per row.

    Args:
        variables: For each of this rank's groups its variable, None for other layers.
    """

    def __init__(self, world, plan: Plan, variables: Sequence, name: str):
        self._world, self._name = world, name
        self.any_slices = any(len(shards) > 1 for shards in plan.column_slices)
        # Of each sliced table: its dim, the other ranks that hold slices, and this rank's slices as
        # (variable, first row, end).
        self._tables: dict[int, tuple[int, list[int], list[tuple]]] = {}
        for variable, group in zip(variables, plan.groups(world.rank), strict=True):
            for shard, offset in zip(group.shards, group.row_offsets, strict=True):
                t, dim = shard.table, plan.tables[shard.table].dim
                if variable is None or shard.columns == dim or not plan.column_slices[t]:
                    continue
                others = sorted({s.rank for s in plan.column_slices[t]} - {world.rank})
                slices = self._tables.setdefault(t, (dim, others, []))[2]
                slices.append((variable, offset, offset + shard.rows))

    def __call__(self, variables: Sequence, rows: Sequence, sums: Sequence) -> list[tf.Tensor]:
        """Returns means of rows, float32 [m] for each variable; collective.

        Args:
            variables: Variables [any, columns].
            rows: For each variable some of its rows, [m], ascending.
            sums: For each variable the sums over its columns, float32 [m].
        """
        means = [s / v.shape[1] for v, s in zip(variables, sums, strict=True)]
        place = {v.ref(): i for i, v in enumerate(variables)}
        runs: dict[int, list] = {}  # of each table (number of the variable, first, sums) a slice
        for t in sorted(self._tables):
            for variable, first, end in self._tables[t][2]:
                i = place.get(variable.ref())
                if i is not None:
                    bounds = tf.searchsorted(rows[i], tf.constant([first, end], rows[i].dtype))
                    runs.setdefault(t, []).append((i, bounds[0], sums[i][bounds[0] : bounds[1]]))
        own = {t: tf.add_n([part for _, _, part in slices]) for t, slices in runs.items()}
        total = self._add_other_ranks(own)
        for t, slices in runs.items():
            for i, first, part in slices:
                where = first + tf.range(tf.size(part))
                mean = total[t] / self._tables[t][0]
                means[i] = tf.tensor_scatter_nd_update(means[i], where[:, tf.newaxis], mean)
        return means

    def _add_other_ranks(self, own: dict[int, tf.Tensor]) -> dict[int, tf.Tensor]:
        """Returns the sums over all columns, from those of this rank's."""
        sent, sizes, senders = [tf.zeros([0], tf.float32)], [], []
        for rank in range(self._world.size):
            shared = [t for t in own if rank in self._tables[t][1]]
            sent += [own[t] for t in shared]
            senders += [(rank, t) for t in shared]
            counts = [tf.size(own[t]) for t in shared]
            sizes.append(tf.add_n(counts) if counts else tf.constant(0))
        received, _ = self._world.all_to_all(tf.concat(sent, axis=0), tf.stack(sizes), self._name)
        if not senders:
            return own
        by_rank: dict[int, list[tuple[int, tf.Tensor]]] = {
            t: [(self._world.rank, part)] for t, part in own.items()
        }
        for (rank, t), part in zip(
            senders, tf.split(received, [tf.size(own[t]) for _, t in senders]), strict=True
        ):
            by_rank[t].append((rank, part))
        # In the order of ranks, so that all holders of a row get the same bits.
        ordered = {t: sorted(parts, key=lambda part: part[0]) for t, parts in by_rank.items()}
        return {t: tf.add_n([part for _, part in parts]) for t, parts in ordered.items()}
