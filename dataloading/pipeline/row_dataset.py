"""Rows from anywhere as a `tf.data` pipeline of batches: what all loaders of fixed rows share.

TensorFlow is imported with the first pipeline, so that tools which only write rows start at once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dataloading.pipeline.batch import Batch, Inputs, RaggedIds
from dataloading.pipeline.ragged import Ragged, concatenate_rows, lay_out_rows
from dataloading.pipeline.shuffle import check_position, check_shares, share_of_rank

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class Columns:
    """What a loader reads per batch: (dtype, values per row) of each array, in this order.

    numerical: side by side they are `Inputs.numerical`; may be empty.
    categorical: one per feature; may be empty. None values per row: rows differ in length, and the
        array is a `Ragged`.
    label: one value per row; None: labels are not read and `Batch.labels` is None.
    """

    numerical: tuple[tuple[np.dtype, int], ...]
    categorical: tuple[tuple[np.dtype, int | None], ...]
    label: np.dtype | None

    def all(self) -> tuple[tuple[np.dtype, int | None], ...]:
        label = () if self.label is None else ((self.label, 1),)
        return (*self.numerical, *self.categorical, *label)

    def numbers_of_numerical(self) -> tuple[int, ...]:
        """Where the numericals are in `all()`."""
        return tuple(range(len(self.numerical)))

    def number_of_categorical(self, feature: int) -> int:
        """Where a feature is in `all()`."""
        return len(self.numerical) + feature

    def numbers_of_label(self) -> tuple[int, ...]:
        """Where the label is in `all()`; empty where it is not."""
        return tuple(range(len(self.numerical) + len(self.categorical), len(self.all())))


class RowDataset:
    """Base of the loaders: `num_rows` rows in batches, each row exactly once per epoch.

    A subclass reads rows by their position in the epoch's order: `_read(epoch, start, stop,
    wanted)` returns one array `[stop - start, values]`, or a `Ragged` of as many rows, per number
    in `wanted`, which counts the entries of `columns.all()`.

    Args:
        batch_size: the global batch size, `world_size` or more.
        rank, world_size: this rank gets one contiguous part of each global batch. All ranks yield
            equally many batches of equal length: where the last global batch does not divide, its
            rows are split as evenly as possible and padded with copies of the batch's first row of
            weight 0: an optimizer that moves each row of a table which occurs in the batch moves
            the same ones as on one rank. The weights of the others make up for it, see `Batch`.
        global_features: None, or the categorical features (their numbers in the channel) whose
            tables this rank holds, in any order, some perhaps several times: "model-parallel
            input". Then `Inputs.categorical` has an entry for each of these only, with the ids of
            the whole global batch: those of rank r in the rows `r * length` to
            `(r + 1) * length - 1`, in the order, and with the padding, that rank r has
            itself. Ids of other features are not read. Numericals, labels and weights stay this
            rank's own. Empty for a rank without tables.
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
        global_features: Sequence[int] | None = None,
        prefetch_batches: int = 2,
        parallel_reads: int = 2,
    ):
        check_shares(batch_size, rank, world_size)
        self.num_rows = num_rows
        self.batch_size = batch_size
        self.rank = rank
        self.world_size = world_size
        self.columns = columns
        local = (*columns.numbers_of_numerical(), *columns.numbers_of_label())
        if global_features is None:
            self._features = tuple(range(len(columns.categorical)))
            self._read_local = (*local, *map(columns.number_of_categorical, self._features))
            self._read_global = ()
        else:
            self._features = check_features(global_features, len(columns.categorical))
            self._read_local = local
            # A feature that is there several times is read once.
            self._read_global = tuple(
                columns.number_of_categorical(f) for f in dict.fromkeys(self._features)
            )
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
            A dataset of `Batch`. Its first dimension is `batch_size / world_size`, rounded up,
            except in a short last batch.
        """
        check_position(epoch, start_row, self.num_rows)
        import tensorflow as tf

        columns = self.columns.all()
        numbers = (*self._read_local, *self._read_global)
        kinds = [*(columns[number] for number in numbers), (np.dtype(np.float32), 1)]
        dtypes = []  # of the arrays; a ragged column is two of them
        for dtype, values in kinds:
            dtypes += [dtype, np.dtype(np.int32)] if values is None else [dtype]
        read = functools.partial(self._read_part, epoch, start_row)

        def batch_at(index):
            arrays = iter(tf.numpy_function(read, [index], [tf.as_dtype(d) for d in dtypes]))
            found = []
            for _, values in kinds:
                array = next(arrays)
                if values is None:
                    array.set_shape([None])
                    row_splits = next(arrays)
                    row_splits.set_shape([None])
                    array = RaggedIds(array, row_splits)
                else:
                    array.set_shape([None, values])
                found.append(array)
            *found, weights = found
            return self._to_batch(dict(zip(numbers, found, strict=True)), weights)

        num_batches = -(-(self.num_rows - start_row) // self.batch_size)
        return (
            tf.data.Dataset.range(num_batches)
            .map(batch_at, num_parallel_calls=self._parallel_reads, deterministic=True)
            .prefetch(self._prefetch_batches)
        )

    def _to_batch(self, arrays: dict, weights) -> Batch:
        import tensorflow as tf

        # The casts are TensorFlow's: NumPy converts float16 one value at a time.
        numerical = [tf.cast(arrays[n], tf.float32) for n in self.columns.numbers_of_numerical()]
        if numerical:
            numerical = tf.concat(numerical, axis=1)
        else:
            numerical = tf.zeros([tf.shape(weights)[0], 0], tf.float32)

        def widened(ids):
            return ids if ids.dtype == tf.int64 else tf.cast(ids, tf.int32)

        ids = {}
        for feature in self._features:
            stored = arrays[self.columns.number_of_categorical(feature)]
            if isinstance(stored, RaggedIds):
                ids[feature] = stored._replace(values=widened(stored.values))
            else:
                ids[feature] = widened(stored)
        labels = None
        for number in self.columns.numbers_of_label():
            labels = tf.cast(arrays[number], tf.float32)
        return Batch(
            Inputs(numerical, tuple(ids[feature] for feature in self._features)), labels, weights
        )

    def _read_part(self, epoch: int, start_row: int, index) -> list[np.ndarray]:
        """What this rank gets of a global batch: its own rows, ids of all rows, weights.

        A ragged column is two arrays, its values and its row splits.
        """
        first = start_row + int(index) * self.batch_size
        size = min(self.batch_size, self.num_rows - first)
        begin, end, length = share_of_rank(size, self.rank, self.world_size)
        whole = []
        try:
            if self._read_global:
                whole = self._read(epoch, first, first + size, self._read_global)
            own = [*self._read(epoch, first + begin, first + end, self._read_local)]
            missing = length - (end - begin)
            filler = self._read(epoch, first, first + 1, self._read_local) if missing else []
        except ValueError as error:
            self.failure = str(error)
            raise
        weight = length * self.world_size / size
        weights = np.zeros((length, 1), np.float32)
        weights[: end - begin] = weight
        if missing:
            own = [
                concatenate_rows([array, *[row] * missing])
                for array, row in zip(own, filler, strict=True)
            ]
        arrays = []
        for array in (*own, *(lay_out_rows(array, self.world_size) for array in whole), weights):
            arrays += array if isinstance(array, Ragged) else [array]
        return arrays

    def stored_rows(self, start: int, stop: int) -> list[np.ndarray | Ragged]:
        """Rows in the order of epoch 0, as they are stored: one array per `columns.all()`.

        For tools; needs no TensorFlow.

        Raises:
            ValueError: a row that breaks a rule, as in `dataset()`.
        """
        return self._read(0, start, stop, range(len(self.columns.all())))

    def _read(
        self, epoch: int, start: int, stop: int, wanted: Sequence[int]
    ) -> list[np.ndarray | Ragged]:
        raise NotImplementedError


def check_features(features: Sequence[int], num_features: int) -> tuple[int, ...]:
    """The numbers of `global_features`, each of which must be that of a feature."""
    for feature in features:
        if not 0 <= feature < num_features:
            raise ValueError(
                f"global_features holds {feature}; allowed: the numbers of the categorical "
                f"features, of which there are {num_features}, the first is 0"
            )
    return tuple(features)
