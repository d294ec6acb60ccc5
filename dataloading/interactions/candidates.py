"""Series of one positive and its negatives as batches, to be ranked: no series is ever split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dataloading.interactions.stored import (
    Series,
    length_of_series,
    num_users_and_items,
    read_interactions,
    read_pairs,
    read_series,
    touched_keys,
)
from dataloading.interactions.unseen_items import draw_unseen_in_use
from dataloading.pipeline.batch import Batch, InteractionInputs
from dataloading.pipeline.columns import Column, Role
from dataloading.pipeline.sample_dataset import LoaderOptions, SampleDataset
from dataloading.pipeline.shuffle import check_at_least
from dataloading.spec.feature_spec import FeatureSpec

if TYPE_CHECKING:
    import tensorflow as tf


class SeriesDataset:
    """The series of one split, in file order, as batches of whole series.

    A split without labels holds positives only, and the negatives of each are drawn here:
    different items that its user has in no interaction, of those that someone has (see
    `touched_keys`). An id of unknown items is never a negative. Memory: 5 bytes per row.

    Args:
        spec: with the channels `user`, `item` and, where there are labels, `label`.
        split: e.g. `test`.
        batch_size: maximum number of rows of a global batch, which holds whole series, equally
            many for each rank; the attribute is their number.
        valid_negative: negatives per series: the first ones that are stored, or the number to
            draw. None: all that are stored.
        seed: of negatives that are drawn.
        rank, world_size: see `LoaderOptions`, a sample of which is a series here.
        with_labels: False reads no labels, to predict: labels are `None`, and each stored row
            is a series of its own.

    Attributes:
        series_length: rows per series.
        num_series: series of the split.
        num_samples: their rows.
        failure: None: invalid rows are found here, not later.

    Raises:
        ValueError: see `read_series` and `read_interactions`; fewer negatives or unseen items than
            requested; or an argument is out of range.
    """

    failure: str | None = None

    def __init__(
        self,
        spec: FeatureSpec,
        split: str,
        batch_size: int,
        *,
        valid_negative: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        with_labels: bool = True,
    ):
        check_at_least(1, batch_size=batch_size, world_size=world_size)
        if valid_negative is not None:
            check_at_least(1, valid_negative=valid_negative)
        if not with_labels:
            series = read_pairs(spec, split)
        elif length_of_series(spec, split) is None:
            series = _with_drawn(spec, split, valid_negative, seed)
        else:
            series = _with_fewer(read_series(spec, split), valid_negative, spec, split)
        self.split = split
        self.num_series, self.series_length = series.items.shape
        self.num_samples = series.items.size
        rows_per_rank = self.series_length * world_size
        if batch_size < rows_per_rank:
            raise ValueError(
                f"batch_size is {batch_size}; a global batch has a series for each rank at least, "
                f"{self.series_length} rows x {world_size} ranks = {rows_per_rank}: choose that or "
                "more (--valid_batch_size)"
            )
        self.batch_size = batch_size // rows_per_rank * rows_per_rank
        self._batches = SampleDataset(
            _SeriesReader(series),
            split,
            LoaderOptions(
                batch_size=self.batch_size // self.series_length, rank=rank, world_size=world_size
            ),
            arrange=self._arrange,
        )
        self.num_batches = self._batches.num_batches
        self.rank = rank
        self.world_size = world_size

    def dataset(self, epoch: int = 0, start_sample: int = 0) -> tf.data.Dataset:
        """Returns a dataset of `Batch` of `InteractionInputs`, the same in every epoch.

        Args:
            epoch: any.
            start_sample: global rows to leave out, whole series.
        """
        if start_sample % self.series_length:
            raise ValueError(
                f"start_sample is {start_sample}; allowed: multiples of the {self.series_length} "
                "rows of a series"
            )
        return self._batches.dataset(epoch, start_sample // self.series_length)

    def _arrange(self, batch: Batch) -> Batch:
        """Returns the rows of a batch of series."""
        import tensorflow as tf

        users, items = batch.inputs.categorical
        users = tf.repeat(tf.reshape(users, [-1]), self.series_length)
        return Batch(
            InteractionInputs(users, tf.reshape(items, [-1])),
            None if batch.labels is None else tf.reshape(batch.labels, [-1, 1]),
            tf.repeat(batch.weights, self.series_length, axis=0),
        )


class _SeriesReader:
    """Reads series, each of which is a sample; a `SampleReader`."""

    def __init__(self, series: Series):
        length = series.items.shape[1]
        self._arrays = {
            Column(Role.CATEGORICAL, "user", series.users.dtype, 1): series.users[:, None],
            Column(Role.CATEGORICAL, "item", series.items.dtype, length): series.items,
        }
        if series.labels is not None:
            self._arrays[Column(Role.LABEL, "label", series.labels.dtype, length)] = series.labels
        self.columns = tuple(self._arrays)
        self.num_samples = len(series.items)

    def read(self, samples: slice | np.ndarray, columns: Sequence[Column]) -> list[np.ndarray]:
        return [self._arrays[column][samples] for column in columns]


def _with_fewer(
    series: Series, valid_negative: int | None, spec: FeatureSpec, split: str
) -> Series:
    """Returns the series with their first `valid_negative` negatives."""
    stored = series.items.shape[1] - 1
    if valid_negative is None or valid_negative == stored:
        return series
    if valid_negative > stored:
        raise ValueError(
            f"{spec.origin}: split '{split}' stores {stored} negatives a series, fewer than "
            f"--valid_negative {valid_negative}; ask for at most {stored}, or prepare the "
            "data again"
        )
    kept = series.labels | (np.cumsum(~series.labels, axis=1) <= valid_negative)
    shape = len(series.users), 1 + valid_negative
    return Series(
        series.users, series.items[kept].reshape(shape), series.labels[kept].reshape(shape)
    )


def _with_drawn(spec: FeatureSpec, split: str, valid_negative: int | None, seed: int) -> Series:
    """Returns a series for each stored positive, which is the first of its rows."""
    if valid_negative is None:
        raise ValueError(
            f"{spec.origin}: split '{split}' holds positives only: expected the number of "
            "negatives to draw for each (--valid_negative)"
        )
    users, items = read_interactions(spec, split)
    num_items = num_users_and_items(spec)[1]
    touched = touched_keys(spec, split)
    negatives = draw_unseen_in_use(users, num_items, touched, valid_negative, seed)
    labels = np.zeros((len(users), 1 + valid_negative), bool)
    labels[:, 0] = True
    return Series(users, np.concatenate([items[:, None], negatives], axis=1), labels)
