"""NVIDIA Merlin's own distributed-embeddings with the interface of our layer.

The only file that imports it. It is built from source in NVIDIA's containers and needs GPUs.
"""

import dataclasses
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from nn.keras import keras
from runtime.checkpoint import Box, matrix_of

STRATEGIES = ("basic", "memory_balanced", "memory_optimized")


def is_available() -> bool:
    """Returns True if the library can be imported."""
    return importlib.util.find_spec("distributed_embeddings") is not None


class MerlinEmbedding(keras.layers.Layer):
    """Tables that Merlin's `DistributedEmbedding` places and looks up.

    Args:
        tables: `nn.embedding.Embedding` layers; Merlin's are created with their arguments.
        options: arguments of Merlin's layer without None; the strategies "auto" and "cost" become
            "memory_balanced".

    Raises:
        ValueError: the library is not installed, or does not take an option.
    """

    def __init__(
        self, tables: Sequence, options: Mapping[str, Any], dp_input: bool = True, **kwargs
    ):
        super().__init__(**kwargs)
        if not is_available():
            raise ValueError(
                "--embedding_backend merlin: NVIDIA's distributed-embeddings cannot be imported; "
                "install it (it is built from source, in NVIDIA's containers), or leave the flag "
                "out for our own"
            )
        from distributed_embeddings.python.layers import dist_model_parallel as merlin
        from distributed_embeddings.python.layers.embedding import Embedding

        arguments = {name: value for name, value in options.items() if value is not None}
        if arguments.get("strategy") not in STRATEGIES:
            arguments["strategy"] = "memory_balanced"
        self.tables = [(table.name, table.input_dim, table.output_dim) for table in tables]
        layers = [
            Embedding(
                table.input_dim,
                table.output_dim,
                embeddings_initializer=table.embeddings_initializer,
                combiner=table.combiner,
                name=table.name,
            )
            for table in tables
        ]
        try:
            self._merlin = merlin.DistributedEmbedding(
                layers, dp_input=dp_input, dtype=self.dtype_policy, **arguments
            )
        except TypeError as error:
            raise ValueError(
                f"--embedding_backend merlin: this version of distributed-embeddings refuses an "
                f"option ({error}): leave its flag out, or use our own backend"
            ) from None
        self._merlin.trainable = self.trainable

    optimizer_state_error = (
        "Merlin's distributed-embeddings does not give the optimizer's state of its tables: "
        "use --embedding_backend native, or --embedding_optimizer sgd, which has none"
    )

    @property
    def input_ids_list(self):
        return self._merlin.strategy.input_ids_list

    def build(self, input_shape=None):
        self._merlin.build(None)
        super().build(input_shape)

    def call(self, inputs, concatenate: bool = False):
        outputs = self._merlin(list(inputs))
        if not concatenate:
            return outputs
        return tf.concat(
            [
                tf.reshape(output, [-1, dim])
                for output, (_, _, dim) in zip(outputs, self.tables, strict=True)
            ],
            axis=1,
        )

    def row_means(self) -> None:
        """Returns None: ranks do not exchange means (`recipes.ctr.merlin_options`)."""

    def table_weights(self) -> list["MerlinTable"]:
        """Returns the tables; Merlin gathers all of them on rank 0 at once."""
        holder = _Whole(self._merlin, len(self.tables))
        return [
            MerlinTable(name, (rows, dim), holder, t)
            for t, (name, rows, dim) in enumerate(self.tables)
        ]


class _Whole:
    """All tables as arrays, read once or written once."""

    def __init__(self, layer, num_tables: int):
        self._layer = layer
        self._read: list[np.ndarray] | None = None
        self._written: list[np.ndarray | None] = [None] * num_tables
        self._missing: list[int | None] = [None] * num_tables  # elements

    def read(self, t: int) -> np.ndarray | None:
        if self._read is None:
            self._read = self._layer.get_weights()  # collective; [] elsewhere than on rank 0
        return self._read[t] if self._read else None

    def write(self, t: int, shape: tuple[int, int], row: int, values, column: int) -> None:
        if self._written[t] is None:
            self._written[t] = np.empty(shape, np.float32)
            self._missing[t] = shape[0] * shape[1]
        rows, columns = values.shape
        self._written[t][row : row + rows, column : column + columns] = values
        self._missing[t] -= values.size
        if all(missing == 0 for missing in self._missing):
            self._layer.set_weights(self._written)


@dataclasses.dataclass(frozen=True)
class MerlinTable:
    """Table number `number` of `whole`, for checkpoints (`runtime.checkpoint.Weight`)."""

    name: str
    shape: tuple[int, int]
    whole: _Whole
    number: int
    dtype = np.dtype(np.float32)

    def named(self, name: str) -> "MerlinTable":
        return dataclasses.replace(self, name=name)

    def prepare(self) -> None:
        """Gathers all tables on rank 0; collective."""
        self.whole.read(self.number)

    def saved_by(self, rank: int) -> list[Box]:
        return [matrix_of(self.shape)] if rank == 0 else []

    def held(self) -> list[Box]:
        return [matrix_of(self.shape)]

    def read(self, box: Box) -> np.ndarray:
        """Returns rows, on rank 0, after `prepare`."""
        return np.ascontiguousarray(self.whole.read(self.number)[box.row : box.row_end])

    def write(self, row: int, values: np.ndarray, column: int = 0) -> None:
        """Sets rows and columns; Merlin gets all tables when the last one is whole."""
        self.whole.write(self.number, self.shape, row, values, column)
