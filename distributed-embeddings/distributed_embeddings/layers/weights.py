"""Whole tables in pieces: reading, writing and filling them without a second copy in memory."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from distributed_embeddings.box import Box
from distributed_embeddings.keras import keras
from distributed_embeddings.planner.types import DATA_PARALLEL, Shard
from distributed_embeddings.seeds import derive_seed

# Of a table, at a time: small compared with a table, large compared with the cost of a call.
PIECE_BYTES = 2 * 2**20

BLOCK_ROWS = 4096  # rows whose initial values are drawn together


@dataclass(frozen=True)
class LocalShard:
    """Rows and columns of a table in a variable of this rank, from row `offset` on."""

    shard: Shard
    variable: tf.Variable
    offset: int


@dataclass(frozen=True)
class TableWeight:
    """One whole table, wherever its rows and columns are stored; in boxes of rows and columns.

    Reads and writes go through gather and scatter: once a variable was gathered from, TensorFlow
    copies all of it for a plain read of any slice.

    Attributes:
        shape: (rows, dim); (rows,) of an optimizer's state with one number per row.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    world: object
    shards: tuple[Shard, ...]
    local: tuple[LocalShard, ...]

    def named(self, name: str) -> "TableWeight":
        return dataclasses.replace(self, name=name)

    def state(self, name: str, slots: Mapping, by_row: bool = False) -> "TableWeight":
        """Returns the weight of an optimizer's state of the table.

        Args:
            slots: The variable of the state by the reference of the table's variable.
            by_row: Whether the state has one number per row, which all holders of its columns have.
        """
        local = tuple(
            dataclasses.replace(local, variable=slots[local.variable.ref()]) for local in self.local
        )
        shape = self.shape[:1] if by_row else self.shape
        return dataclasses.replace(
            self, name=name, shape=shape, dtype=np.dtype(np.float32), local=local
        )

    def saved_by(self, rank: int) -> list[Box]:
        """Returns the boxes that a rank saves; rank 0 saves what all have copies of."""
        return [
            self._box(shard)
            for shard in self.shards
            if shard.rank == rank
            and (rank == 0 or shard.kind != DATA_PARALLEL)
            and (len(self.shape) == 2 or shard.column_start == 0)
            and shard.rows * shard.columns
        ]

    def local_boxes(self) -> list[Box]:
        return [self._box(local.shard) for local in self.local if local.shard.rows]

    def _box(self, shard: Shard) -> Box:
        columns = (0, 1) if len(self.shape) == 1 else (shard.column_start, shard.column_end)
        return Box(shard.row_start, shard.row_end, *columns)

    def read(self, box: Box) -> np.ndarray:
        """Returns [rows, columns] of a box within one of those that this rank holds."""
        for local in self.local:
            mine = self._box(local.shard)
            if mine.overlap(box) == box:
                # Not .numpy(), which copies once more.
                values = np.asarray(tf.gather(local.variable, _rows(local, box.row, box.row_end)))
                values = values.reshape(box.rows, mine.columns)
                if box.columns == mine.columns:
                    return values
                first = box.column - mine.column
                return np.ascontiguousarray(values[:, first : first + box.columns])
        raise ValueError(f"{self.name}: {box} is not on rank {self.world.rank}")

    def gather_rows(self, first: int, last: int, all_ranks: bool = False) -> np.ndarray | None:
        """Returns rows [first, last), on rank 0 or on all, elsewhere None; collective."""
        parts = [
            tf.reshape(tf.gather(local.variable, _rows(local, begin, end)), [-1])
            for local in self.local
            for begin, end in [_overlap(local.shard, first, last)]
            if end > begin
        ]
        sources = [s for s in self.shards if _size(s, first, last)]
        copied = bool(sources) and sources[0].kind == DATA_PARALLEL
        if copied:
            sources = [s for s in sources if s.rank == self.world.rank]
        flat = tf.concat(parts, axis=0) if parts else tf.zeros([0], tf.as_dtype(self.dtype))
        if self.world.size > 1 and not copied:
            if all_ranks:
                flat = self.world.all_gather(flat, "table.read")
            elif any(s.rank for s in sources):
                sizes = tf.constant([1] + [0] * (self.world.size - 1)) * tf.size(flat)
                flat, _ = self.world.all_to_all(flat, sizes, "table.read")
        if not (all_ranks or self.world.is_chief):
            return None
        return self._assemble(np.asarray(flat), sources, first, last)

    def _assemble(self, flat, sources: Sequence[Shard], first: int, last: int) -> np.ndarray:
        if len(sources) == 1 and sources[0].columns == self.shape[1]:
            return flat.reshape(-1, self.shape[1])
        values = np.empty([last - first, self.shape[1]], self.dtype)
        position = 0
        for shard in sources:
            begin, end = _overlap(shard, first, last)
            size = _size(shard, first, last)
            part = flat[position : position + size].reshape(end - begin, shard.columns)
            values[begin - first : end - first, shard.column_start : shard.column_end] = part
            position += size
        return values

    def write(self, row: int, values, column: int = 0) -> None:
        """Sets this rank's part of the rows and columns from (row, column) on."""
        written = Box(row, row + values.shape[0], column, column + values.shape[1])
        for local in self.local:
            box = self._box(local.shard)
            common = written.overlap(box)
            if common is None:
                continue
            part = values[
                common.row - row : common.row_end - row,
                common.column - column : common.column_end - column,
            ]
            rows = _rows(local, common.row, common.row_end)
            if common.columns < box.columns:  # the rest of the rows stays
                kept = tf.gather(local.variable, rows).numpy()
                first = common.column - box.column
                kept[:, first : first + common.columns] = part
                part = kept
            if len(self.shape) == 1:
                part = part[:, 0]
            local.variable.scatter_update(tf.IndexedSlices(tf.convert_to_tensor(part), rows))

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Yields (first, last) of consecutive runs of rows of at most `PIECE_BYTES`."""
        row_bytes = max(1, self.shape[1] * self.dtype.itemsize)
        step = max(1, PIECE_BYTES // row_bytes)
        for first in range(0, self.shape[0], step):
            yield first, min(first + step, self.shape[0])


def _overlap(shard: Shard, first: int, last: int) -> tuple[int, int]:
    begin, end = max(first, shard.row_start), min(last, shard.row_end)
    return begin, max(begin, end)


def _size(shard: Shard, first: int, last: int) -> int:
    begin, end = _overlap(shard, first, last)
    return (end - begin) * shard.columns


def _rows(local: LocalShard, begin: int, end: int) -> tf.Tensor:
    shift = local.offset - local.shard.row_start
    return tf.range(begin + shift, end + shift, dtype=tf.int64)


@keras.saving.register_keras_serializable("distributed_embeddings")
class TableUniform(keras.initializers.Initializer):
    """Uniform in +-sqrt(1 / rows of the table) (Naumov et al., 2019).

    Values depend only on the seed, the table's name and the row, not on the plan.

    Args:
        num_zeros: Last columns that start at zero; they leave the values of the others unchanged.
    """

    def __init__(self, seed: int, table: str, num_zeros: int = 0):
        self.seed = seed
        self.table = table
        self.num_zeros = num_zeros

    def __call__(self, shape, dtype=tf.float32, partition_shape=None, partition_offset=(0, 0)):
        """Draws rows; `partition_offset` is a multiple of BLOCK_ROWS, and column 0."""
        rows, dim = partition_shape or shape
        limit = np.sqrt(1.0 / shape[0])
        seed, first = derive_seed(self.seed, self.table), partition_offset[0] // BLOCK_ROWS
        blocks = [
            tf.random.stateless_uniform(
                [BLOCK_ROWS, dim - self.num_zeros],
                seed=[seed, first + number],
                minval=-limit,
                maxval=limit,
            )
            for number in range(-(-rows // BLOCK_ROWS))
        ]
        values = tf.cast(tf.concat(blocks, axis=0)[:rows], dtype)
        return tf.pad(values, [[0, 0], [0, self.num_zeros]]) if self.num_zeros else values

    def get_config(self):
        return {"seed": self.seed, "table": self.table, "num_zeros": self.num_zeros}


def copy(weight: TableWeight, values) -> None:
    """Sets a table on the ranks that hold it from a whole one, an array or a variable."""
    for first, last in weight.pieces() if weight.local else ():
        if isinstance(values, tf.Variable):
            piece = tf.gather(values, tf.range(first, last))
        else:
            piece = values[first:last]
        weight.write(first, np.asarray(piece, dtype=weight.dtype))


def fill(weight: TableWeight, initializer) -> None:
    """Draws a table's initial values on the ranks that hold them.

    Keras' uniform, normal and constant initializers draw blocks of BLOCK_ROWS rows; others draw the
    whole table: Keras' variance scaling ones would scale by the part.
    """
    kinds = keras.initializers
    if isinstance(initializer, kinds.Zeros) or not weight.local:
        return  # variables start with zeros
    dtype = tf.as_dtype(weight.dtype)
    by_part = (
        *(TableUniform, kinds.Constant, kinds.Ones),
        *(kinds.RandomUniform, kinds.RandomNormal, kinds.TruncatedNormal),
    )
    if not isinstance(initializer, by_part):
        weight.write(0, tf.cast(initializer(weight.shape, dtype=dtype), dtype))
        return
    rows, dim = weight.shape
    shards = [local.shard for local in weight.local]
    for first in range(0, rows, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, rows)
        if not any(_size(shard, first, last) for shard in shards):
            continue
        values = initializer(
            weight.shape,
            dtype=dtype,
            partition_shape=(last - first, dim),
            partition_offset=(first, 0),
        )
        weight.write(first, values)
