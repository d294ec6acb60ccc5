"""Parts of whole tables, gathered and cut: the weights' part of Merlin's API."""

import numpy as np
import tensorflow as tf

from distributed_embeddings.layers.planned_embedding import PlannedEmbedding
from distributed_embeddings.layers.whole_tables import open_table
from distributed_embeddings.planner import ROW_SLICED, TABLE_PARALLEL


class SlicedWeights(PlannedEmbedding):
    """Methods of `DistributedEmbedding` that gather and cut tables of one kind."""

    def get_col_sliced_weights(self, local_weights, all_ranks: bool = False) -> list[np.ndarray]:
        """Returns the whole table-parallel tables; collective.

        Args:
            local_weights: Values of this rank's table-parallel variables, in the order of
                `local_embedding_layers`.
            all_ranks: Whether all ranks get the tables; otherwise rank 0, and the others [].
        """
        return self._gather_kind(TABLE_PARALLEL, local_weights, all_ranks)

    def get_row_sliced_weights(self, weights) -> list[np.ndarray]:
        """Returns the whole row-sliced tables, on all ranks; collective.

        Args:
            weights: Values of this rank's rows, in the order of `row_layers`.
        """
        return self._gather_kind(ROW_SLICED, weights, True)

    def _gather_kind(self, kind: str, local_weights, all_ranks: bool) -> list[np.ndarray]:
        groups = [g for g, group in enumerate(self._groups) if group.kind == kind]
        if len(local_weights) != len(groups):
            raise ValueError(
                f"{self.name}: expected the values of this rank's {len(groups)} {kind} variables, "
                f"got {len(local_weights)}"
            )
        values: list = [None] * len(self._groups)
        for g, value in zip(groups, local_weights, strict=True):
            values[g] = tf.convert_to_tensor(value)
        return self._gathered(self._weights_of(self._tables_of(kind), values), all_ranks)

    def set_col_slice_weights(self, weights) -> list[np.ndarray]:
        """Returns this rank's parts of the table-parallel tables; it sets nothing.

        Args:
            weights: The whole table-parallel tables (`strategy.table_groups[1]`), arrays or paths
                of .npy files.

        Returns:
            Values of this rank's variables, in the order of `local_embedding_layers`.
        """
        return self._parts(TABLE_PARALLEL, weights)

    def set_row_slice_weights(self, weights) -> list[np.ndarray]:
        """Returns this rank's rows of the row-sliced tables; it sets nothing.

        Args:
            weights: The whole row-sliced tables (`strategy.table_groups[2]`), arrays or paths.

        Returns:
            Values of this rank's variables, in the order of `row_layers`.
        """
        return self._parts(ROW_SLICED, weights)

    def _parts(self, kind: str, weights) -> list[np.ndarray]:
        tables = self._tables_of(kind)
        if len(weights) != len(tables):
            raise ValueError(
                f"{self.name}: expected {len(tables)} {kind} tables, got {len(weights)}"
            )
        whole = {
            t: open_table(self._tables[t].table.name, self._tables[t].shape, source)
            for t, source in zip(tables, weights, strict=True)
        }
        return [
            np.concatenate(
                [
                    whole[s.table][s.row_start : s.row_end, s.column_start : s.column_end]
                    for s in group.shards
                ]
            )
            for group in self._groups
            if group.kind == kind
        ]

    def _tables_of(self, kind: str) -> tuple[int, ...]:
        plan = self.plan
        return plan.row_sliced_tables if kind == ROW_SLICED else plan.table_parallel_tables
