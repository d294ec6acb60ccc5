"""Rows from anywhere as a `tf.data` pipeline of batches: what all loaders of fixed rows share.

TensorFlow is imported with the first pipeline, so that tools which only write rows start at once.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dataloading.batch import Batch, Inputs
from dataloading.row_order import share_of_rank

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class Columns:
    """What a loader reads per batch: (dtype, values per row) of each array, in this order.

    numerical: side by side they are `Inputs.numerical`; may be empty.
    categorical: one per feature; may be empty.
    label: one value per row.
    """

    numerical: tuple[tuple[np.dtype, int], ...]
    categorical: tuple[tuple[np.dtype, int], ...]
    label: np.dtype

    def all(self) -> tuple[tuple[np.dtype, int], ...]:
        return (*self.numerical, *self.categorical, (self.label, 1))


class RowDataset:
    """Base of the loaders: `num_rows` rows in batches, each row exactly once per epoch.

    A subclass reads rows by their position in the epoch's order: `_read(epoch, start, stop)`
    returns one array `[stop - start, values]` per entry of `columns.all()`.

    Args:
        batch_size: the global batch size, a multiple of `world_size`.
        rank, world_size: this rank gets one contiguous part of each global batch. All ranks yield
            equally many batches of equal length: where the last global batch does not divide, its
            rows are split as evenly as possible and padded with rows of weight 0.
        prefetch_batches: batches that are made ready ahead of the consumer.
        parallel_reads: batches that are read at the same time; their order stays.
    """

    def __init__(
        self,
        num_rows: int,
        batch_size: int,
        columns: Columns,
        *,
        rank: int = 0,
        world_size: int = 1,
        prefetch_batches: int = 2,
        parallel_reads: int = 2,
    ):
        for name, value in (("batch_size", batch_size), ("world_size", world_size)):
            if value < 1:
                raise ValueError(f"{name} is {value}; allowed: 1 or more")
        if batch_size % world_size:
            raise ValueError(
                f"batch_size {batch_size} is the global batch and not divisible by world_size "
                f"{world_size}; choose a multiple, e.g. {-(-batch_size // world_size) * world_size}"
            )
        if not 0 <= rank < world_size:
            raise ValueError(f"rank is {rank}; allowed: 0 to world_size - 1 = {world_size - 1}")
        self.num_rows = num_rows
        self.batch_size = batch_size
        self.rank = rank
        self.world_size = world_size
        self._columns = columns
        self._prefetch_batches = prefetch_batches
        self._parallel_reads = parallel_reads
        # What was wrong with the rows that could not be read: tf.data hands on the text of an
        # error only within a stack trace.
        self.failure: str | None = None

    @property
    def num_batches(self) -> int:
        """Global batches per epoch; the last one may be shorter."""
        return -(-self.num_rows // self.batch_size)

    def dataset(self, epoch: int = 0, start_row: int = 0) -> tf.data.Dataset:
        """The batches of one epoch.

        Args:
            epoch: chooses the order where the loader shuffles.
            start_row: global rows of this epoch's order to leave out because they were used
                before; the rows that follow are the same as without an interruption.

        Returns:
            A dataset of `Batch`. Its first dimension is `batch_size / world_size` except in a
            short last batch.
        """
        if epoch < 0:
            raise ValueError(f"epoch is {epoch}; allowed: 0 or more")
        if not 0 <= start_row <= self.num_rows:
            raise ValueError(
                f"start_row is {start_row}; allowed: 0 to the number of rows, {self.num_rows}"
            )
        import tensorflow as tf

        columns = self._columns.all()
        read = functools.partial(self._read_share, epoch, start_row)

        def batch_at(index):
            arrays = tf.numpy_function(
                read, [index], [*(tf.as_dtype(dtype) for dtype, _ in columns), tf.float32]
            )
            for array, (_, values) in zip(arrays, [*columns, (None, 1)], strict=True):
                array.set_shape([None, values])
            return self._to_batch(arrays)

        num_batches = -(-(self.num_rows - start_row) // self.batch_size)
        return (
            tf.data.Dataset.range(num_batches)
            .map(batch_at, num_parallel_calls=self._parallel_reads, deterministic=True)
            .prefetch(self._prefetch_batches)
        )

    def _to_batch(self, arrays) -> Batch:
        import tensorflow as tf

        # The casts are TensorFlow's: NumPy converts float16 one value at a time.
        weights, labels = arrays[-1], arrays[-2]
        numerical = arrays[: len(self._columns.numerical)]
        categorical = arrays[len(self._columns.numerical) : -2]
        if numerical:
            numerical = tf.concat([tf.cast(array, tf.float32) for array in numerical], axis=1)
        else:
            numerical = tf.zeros([tf.shape(weights)[0], 0], tf.float32)
        categorical = tuple(
            ids if ids.dtype == tf.int64 else tf.cast(ids, tf.int32) for ids in categorical
        )
        return Batch(Inputs(numerical, categorical), tf.cast(labels, tf.float32), weights)

    def _read_share(self, epoch: int, start_row: int, index) -> list[np.ndarray]:
        first = start_row + int(index) * self.batch_size
        size = min(self.batch_size, self.num_rows - first)
        begin, end, length = share_of_rank(size, self.rank, self.world_size)
        try:
            arrays = [*self._read(epoch, first + begin, first + end)]
        except ValueError as error:
            self.failure = str(error)
            raise
        arrays.append(np.ones((end - begin, 1), np.float32))
        missing = length - (end - begin)
        if missing:
            arrays = [np.pad(array, ((0, missing), (0, 0))) for array in arrays]
        return arrays

    def _read(self, epoch: int, start: int, stop: int) -> list[np.ndarray]:
        raise NotImplementedError
