"""Tables of one kind, as this rank's layers and as whole ones: the weights in Merlin's API."""

import numpy as np
import tensorflow as tf

from distributed_embeddings.keras import keras
from distributed_embeddings.layers.planned_embedding import PlannedEmbedding
from distributed_embeddings.layers.whole_tables import open_table
from distributed_embeddings.merlin.strategy import THRESHOLDS, DistEmbeddingStrategy
from distributed_embeddings.planner import DATA_PARALLEL, ROW_SLICED, TABLE_PARALLEL


class SlicedWeights(PlannedEmbedding):
    """Methods of `DistributedEmbedding` about the tables of one kind."""

    @property
    def strategy(self) -> DistEmbeddingStrategy:
        """The placement of the tables, in the numbering of the original library."""
        thresholds = {name: getattr(self, name) for name in THRESHOLDS}
        return DistEmbeddingStrategy(
            self._embeddings, self.world_size, plan=self.plan, **thresholds
        )

    @property
    def local_embedding_layers(self) -> list[keras.layers.Layer]:
        """Layers of this rank's table-parallel variables, one per variable, in their order.

        Tables of equal width share a variable, hence a layer: table i of a layer starts at row
        `strategy.local_weight_offsets[rank][layer][i]`. The layers share the variables with this
        one; before it is built they have none.
        """
        return self._layers_of(TABLE_PARALLEL)

    @property
    def dp_layers(self) -> list[keras.layers.Layer]:
        """Layers of the data-parallel variables; see `local_embedding_layers`."""
        return self._layers_of(DATA_PARALLEL)

    @property
    def row_layers(self) -> list[keras.layers.Layer]:
        """Layers of this rank's rows of row-sliced tables; see `local_embedding_layers`."""
        return self._layers_of(ROW_SLICED)

    def _layers_of(self, kind: str) -> list[keras.layers.Layer]:
        layers = []
        for g, group in enumerate(self._groups):
            if group.kind != kind:
                continue
            holder = self._holders[g] if self._holders else None
            if isinstance(holder, keras.layers.Layer):
                layers.append(holder)
                continue
            spec = self._tables[group.shards[0].table]
            layer = spec.layer_type.from_config(
                {**spec.config, "input_dim": group.rows, "output_dim": group.dim}
            )
            if holder is not None:
                layer.embeddings = holder
                layer.built = True
            layers.append(layer)
        return layers

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
