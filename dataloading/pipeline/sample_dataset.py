"""Samples from any reader as a `tf.data` pipeline of batches.

TensorFlow is imported with the first pipeline, so that tools which only copy samples start at once.
"""

from __future__ import annotations

import copy
import functools
import itertools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dataloading.pipeline.batch import Batch, Inputs, RaggedIds
from dataloading.pipeline.columns import Column, Role, SampleReader
from dataloading.pipeline.permuted import PermutedReader
from dataloading.pipeline.ragged import Ragged, Samples
from dataloading.pipeline.shuffle import (
    BlockShuffle,
    FileOrder,
    GroupOrder,
    check_shares,
    padded_shares,
    share_of_rank,
)

if TYPE_CHECKING:
    import tensorflow as tf

_WEIGHTS = Column(Role.LABEL, "", np.dtype(np.float32), 1)


@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    """Division of samples into batches, and of batches among ranks.

    Attributes:
        batch_size: the global batch size, `world_size` or more.
        rank, world_size: this rank receives one contiguous part of each global batch. All ranks
            yield the same number of batches of equal length: where the last global batch does not
            divide evenly, it is split as evenly as possible and padded with copies of its first
            sample, of weight 0: so an optimizer updates the same rows of tables as on one rank.
            The weights of the other samples compensate, see `Batch`.
        global_features: "model-parallel input": the categorical features (their indices in the
            channel) whose tables this rank stores, in any order, possibly repeated or none. Then
            `Inputs.categorical` has one entry for each of these only, with the ids of the whole
            global batch: rank r's samples, with its padding, are at the positions `r * length` to
            `(r + 1) * length - 1`. Numerical features, labels and weights remain this rank's own.
        prefetch_batches: batches that are prepared ahead of the consumer.
        parallel_reads: batches that are read at the same time; their order stays.
    """

    batch_size: int
    rank: int = 0
    world_size: int = 1
    global_features: Sequence[int] | None = None
    prefetch_batches: int = 2
    parallel_reads: int = 2

    def read_features(self, features: Sequence) -> Sequence:
        """Returns those of all categorical features that are read: see `global_features`."""
        if self.global_features is None:
            return features
        return [features[index] for index in self.global_features]


@dataclass(frozen=True, kw_only=True)
class StoredOptions(LoaderOptions):
    """Options of loaders that read files.

    Attributes:
        with_labels: False reads no labels: `Batch.labels` is then `None`; the channel `label`, its
            feature's chunk and the chunk's files may be absent.
        shuffle: a new order in each epoch, see `BlockShuffle`; otherwise file order.
        block_samples: samples that are neighbors in the file and read together while shuffling.
        window_samples: a multiple of `block_samples`; a larger window mixes better and needs more
            page cache. Data of up to one window is shuffled fully.
    """

    with_labels: bool = True
    shuffle: bool = False
    seed: int = 0
    block_samples: int = 8192
    window_samples: int = 524_288

    def order(self, num_samples: int) -> BlockShuffle | FileOrder:
        if self.shuffle:
            return BlockShuffle(num_samples, self.seed, self.block_samples, self.window_samples)
        return FileOrder()


class SampleDataset:
    """Batches of the samples of one split, each sample exactly once per epoch.

    An invalid value ends the iteration with `tf.errors.InvalidArgumentError`.

    Args:
        order: order of the samples in an epoch; None for file order.
        num_samples: samples per epoch; None for all of the reader.
        arrange: turns a batch of `Inputs` into the batch that the model takes; None keeps it.

    Attributes:
        num_samples: global samples per epoch.
        num_batches: global batches per epoch; the last one may be shorter.
        failure: message of the `ValueError` that ended an iteration: tf.data includes the text of
            an error only within a stack trace.
    """

    def __init__(
        self,
        reader: SampleReader,
        split: str,
        options: LoaderOptions,
        *,
        order=None,
        num_samples: int | None = None,
        arrange: Callable[[Batch], Batch] | None = None,
    ):
        check_shares(options.batch_size, options.rank, options.world_size)
        self.split = split
        self.columns = reader.columns
        self.num_samples = reader.num_samples if num_samples is None else num_samples
        self.batch_size = options.batch_size
        self.num_batches = -(-self.num_samples // self.batch_size)
        self.rank = options.rank
        self.world_size = options.world_size
        self.failure: str | None = None
        self._reader, self._options = reader, options
        self._order = order or FileOrder()
        self._arrange = arrange or (lambda batch: batch)
        categorical = [column for column in self.columns if column.role is Role.CATEGORICAL]
        self._features = options.read_features(categorical)
        self._local = [column for column in self.columns if column not in categorical]
        self._global = []
        if options.global_features is None:
            self._local += categorical
        else:  # a feature that is listed several times is read once
            self._global = list(dict.fromkeys(self._features))

    def dataset(self, epoch: int = 0, start_sample: int = 0) -> tf.data.Dataset:
        """Returns the batches of one epoch.

        Args:
            epoch: selects the order where the loader shuffles.
            start_sample: global samples of this epoch's order to leave out because they were used
                before; the samples that follow are those of an epoch without an interruption.

        Returns:
            A dataset of `Batch`. Its first dimension is `batch_size / world_size`, rounded up,
            except in a short last batch.
        """
        return dataset_of(
            -(-(self.num_samples - start_sample) // self.batch_size),
            functools.partial(self._batch_at, epoch, start_sample),
            parallel_calls=self._options.parallel_reads,
            prefetch=self._options.prefetch_batches,
        )

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features of the inputs."""
        columns = (column for column in self.columns if column.role is not Role.LABEL)
        return tuple(dict.fromkeys(name for c in columns for name in c.features or (c.feature,)))

    def permuted(self, feature: str, seed: int | Sequence[int]) -> SampleDataset:
        """Returns these samples with the values of one feature permuted across all of them.

        The permutation depends on the seed and the number of samples only: it is the same on all
        ranks, for all features and for all batch sizes.
        """
        num_samples = self._reader.num_samples
        numbers = np.arange(num_samples, dtype=np.int32 if num_samples < 2**31 else np.int64)
        order = np.random.default_rng(seed).permutation(numbers)
        permuted = copy.copy(self)
        permuted._reader = PermutedReader(self._reader, feature, order)
        return permuted

    def grouped(self, feature: str, first_id: int, seed: int, window_samples: int) -> SampleDataset:
        """Returns these samples in a new order in each epoch, those of one id next to each other.

        Args:
            feature: categorical feature with one id per sample, which is read for all samples.
            first_id, seed, window_samples: see `GroupOrder`.
        """
        (column,) = [c for c in self.columns if (c.role, c.feature) == (Role.CATEGORICAL, feature)]
        ids, step = np.empty(self.num_samples, column.dtype), 1 << 20
        for start in range(0, self.num_samples, step):
            samples = range(start, min(start + step, self.num_samples))
            (values,) = self._reader.read(samples, [column])
            ids[samples.start : samples.stop] = values[:, 0]
        grouped = copy.copy(self)
        grouped._order = GroupOrder(ids, first_id, seed, window_samples)
        return grouped

    def _batch_at(self, epoch: int, start_sample: int, index: tf.Tensor) -> Batch:
        """Returns a batch by its number, counted from `start_sample`; in a graph."""
        import tensorflow as tf

        columns = [*self._local, *self._global, _WEIGHTS]
        dtypes = []  # of the arrays; a ragged column has two of them
        for column in columns:
            dtypes += [tf.as_dtype(column.dtype)] + [tf.int32] * (column.width is None)
        # TensorFlow keeps the function as long as the process: it must not keep files open. The
        # pipeline keeps this object by the method that it maps.
        read = functools.partial(_read_part, weakref.ref(self), epoch, start_sample)
        # Without state: with --deterministic as well, several batches are read at a time.
        tensors = iter(tf.numpy_function(read, [index], dtypes, stateful=False))
        values = {column: _next_value(tensors, column) for column in columns}
        weights = values[_WEIGHTS]
        numerical = [values[c] for c in self.columns if c.role is Role.NUMERICAL]
        if len(numerical) != 1:
            numerical = [tf.concat(numerical or [tf.zeros([tf.shape(weights)[0], 0])], axis=1)]
        (labels,) = [values[c] for c in self.columns if c.role is Role.LABEL] or [None]
        inputs = Inputs(numerical[0], tuple(values[column] for column in self._features))
        return self._arrange(Batch(inputs, labels, weights))

    def _read_part(self, epoch: int, start_sample: int, index) -> list[np.ndarray]:
        """Returns this rank's arrays of a global batch: own samples, ids of all samples, weights;
        two arrays for a ragged column."""
        first = start_sample + int(index) * self.batch_size
        size = min(self.batch_size, self.num_samples - first)
        begin, end, length = share_of_rank(size, self.rank, self.world_size)
        weights = np.zeros((length, 1), np.float32)
        weights[: end - begin] = length * self.world_size / size
        samples = self._order.samples(epoch, first, first + size)
        if size < length * self.world_size:
            samples = np.asarray(samples)[padded_shares(size, self.world_size)]
        own = samples[self.rank * length : (self.rank + 1) * length]
        try:
            arrays = self._reader.read(own, self._local)
            if self._global:
                arrays += self._reader.read(samples, self._global)
        except ValueError as error:
            self.failure = str(error)
            raise
        parts = [array if isinstance(array, Ragged) else [array] for array in arrays]
        return [*itertools.chain(*parts), weights]

    def stored_samples(self, start: int, stop: int) -> list[Samples]:
        """Returns samples of epoch 0 as they are stored, one array per column; for tools.

        Raises:
            ValueError: a value is invalid.
        """
        return self._reader.read(self._order.samples(0, start, stop), self.columns)


def _read_part(reference: weakref.ref, epoch: int, start_sample: int, index) -> list[np.ndarray]:
    return reference()._read_part(epoch, start_sample, index)


def _next_value(tensors, column: Column):
    """Returns the next tensor of a column, or its `RaggedIds`, in the dtype of a batch."""
    import tensorflow as tf

    dtype = tf.float32
    if column.role is Role.CATEGORICAL:
        dtype = tf.int64 if column.dtype == np.int64 else tf.int32
    # The cast is TensorFlow's: NumPy converts float16 one value at a time.
    values = tf.cast(next(tensors), dtype)
    if column.width is not None:
        values.set_shape([None, column.width])
        return values
    values.set_shape([None])
    row_splits = next(tensors)
    row_splits.set_shape([None])
    return RaggedIds(values, row_splits)


def dataset_of(
    num_batches: int,
    batch_at: Callable[[tf.Tensor], Batch],
    *,
    parallel_calls: int | None = None,
    prefetch: int = 2,
) -> tf.data.Dataset:
    """Returns the batches `batch_at(0)` to `batch_at(num_batches - 1)`, in this order.

    Without tf.data's autotuning, which has nothing to choose here: the garbage collection of an
    iterator may wait for its thread, up to a minute after an error (seen with TensorFlow 2.21).

    Args:
        batch_at: returns a batch by its number (int64 scalar); traced to a graph.
        parallel_calls: batches under construction at a time; None: one.
        prefetch: finished batches that may wait for the caller.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return (
        tf.data.Dataset.range(num_batches)
        # One batch at a time is in order anyway, and TensorFlow warns of the argument.
        .map(
            tf.autograph.experimental.do_not_convert(batch_at),  # which takes longer than tracing
            num_parallel_calls=parallel_calls,
            deterministic=None if parallel_calls is None else True,
        )
        .prefetch(prefetch)
        .with_options(options)
    )
