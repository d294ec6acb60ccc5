"""Whole tables of a sharded layer, gathered and set."""

from collections.abc import Sequence

import numpy as np

from distributed_embeddings.keras import keras
from distributed_embeddings.layers.custom_layer import matrix_of
from distributed_embeddings.layers.weights import LocalShard, TableWeight


class WholeTables:
    """Methods of `PlannedEmbedding` that read and write whole tables."""

    def table_weights(self) -> list[TableWeight]:
        """Returns the whole tables, in their order, wherever rows and columns are stored."""
        return self._weights_of(range(len(self._tables)))

    def _weights_of(self, tables: Sequence[int], values=None) -> list[TableWeight]:
        """Returns whole tables; `values` replaces the variables, group by group."""
        self._must_be_built()
        wanted = set(tables)
        local: dict[int, list[LocalShard]] = {}
        holders = self._holders if values is None else values
        for group, holder in zip(self._groups, holders, strict=True):
            if not wanted & {shard.table for shard in group.shards}:
                continue
            is_layer = isinstance(holder, keras.layers.Layer)
            variable = matrix_of(holder, group) if is_layer else holder
            for shard, offset in zip(group.shards, group.row_offsets, strict=True):
                local.setdefault(shard.table, []).append(LocalShard(shard, variable, offset))
        order = {shard: i for i, shard in enumerate(self.plan.local_shards(self.rank))}
        shards: dict[int, list] = {}
        for rank in range(self.world_size):
            for shard in self.plan.local_shards(rank):
                shards.setdefault(shard.table, []).append(shard)
        return [
            TableWeight(
                spec.table.name,
                (spec.table.rows, spec.table.dim),
                np.dtype(spec.dtype.as_numpy_dtype),
                self.world,
                tuple(shards[t]),
                # In the plan's order, by which the receiver of their rows cuts them apart.
                tuple(sorted(local.get(t, ()), key=lambda part: order[part.shard])),
            )
            for t, spec in [(t, self._tables[t]) for t in tables]
        ]

    def get_weights(self, all_ranks: bool = False) -> list[np.ndarray]:
        """Returns whole tables, on rank 0 or on all, [] on the others; collective."""
        return self._gathered(self.table_weights(), all_ranks)

    def _gathered(self, weights: list[TableWeight], all_ranks: bool) -> list[np.ndarray]:
        wanted, arrays = all_ranks or self.world.is_chief, []
        for weight in weights:
            table = np.empty(weight.shape, weight.dtype) if wanted else None
            for first, last in weight.pieces():
                piece = weight.gather_rows(first, last, all_ranks)
                if wanted:
                    table[first:last] = piece
            arrays.append(table)
        return arrays if wanted else []

    def set_weights(self, weights, chunk: int = 134217728, use_lock: bool = False) -> None:
        """Sets the tables from whole ones; each rank takes its part.

        Args:
            weights: For each table, in their order, an array [rows, dim] or the path of a .npy
                file, of which only this rank's part is read.
            chunk: Elements to copy at a time.
            use_lock: Whether one rank copies after the other, to save host memory.

        Raises:
            ValueError: Another number of tables, or another shape.
        """
        tables = self.table_weights()
        if len(weights) != len(tables):
            raise ValueError(
                f"set_weights got {len(weights)} tables, the layer {self.name} has {len(tables)}"
            )
        error, opened = None, []
        try:
            opened = [
                open_table(weight.name, weight.shape, source)
                for weight, source in zip(tables, weights, strict=True)
            ]
        except (ValueError, OSError) as caught:
            error = caught
        if use_lock:  # the others would wait for this rank's turn
            self.world.agree(error and str(error))
        elif error is not None:
            raise error
        for turn in range(self.world_size if use_lock else 1):
            if not use_lock or turn == self.rank:
                for weight, values in zip(tables, opened, strict=True):
                    step = max(1, chunk // weight.shape[1])
                    for first in range(0, weight.shape[0], step):
                        part = values[first : first + step]
                        weight.write(first, np.asarray(part, dtype=weight.dtype))
            if use_lock:
                self.world.barrier(f"{self._exchange_name}.set_weights")

    def _must_be_built(self) -> None:
        if not self._holders and self._groups:
            raise ValueError(
                f"{self.name} has no weights yet: call it once, or build(None), before its weights "
                "are read or set"
            )


def open_table(name: str, shape: tuple[int, ...], source) -> np.ndarray:
    """Returns a table from an array or a file."""
    is_path = isinstance(source, (str, bytes)) or hasattr(source, "__fspath__")
    values = np.load(source, mmap_mode="r") if is_path else source
    if tuple(values.shape) != shape:
        raise ValueError(f"table {name} is {list(shape)}, set_weights got {list(values.shape)}")
    return values
