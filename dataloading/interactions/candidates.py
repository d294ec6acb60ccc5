"""Batches of candidate lists: one positive and its negatives, to be ranked, never divided."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dataloading.interactions.stored import (
    CandidateArrays,
    length_of_lists,
    num_users_and_items,
    read_candidate_lists,
    read_interactions,
    read_pairs,
    touched_keys,
)
from dataloading.interactions.unseen_items import draw_unseen_in_use
from dataloading.pipeline.batch import Batch, InteractionInputs
from dataloading.pipeline.columns import ArrayReader, Column, Role
from dataloading.pipeline.sample_dataset import LoaderOptions, SampleDataset
from dataloading.spec.feature_spec import FeatureSpec

if TYPE_CHECKING:
    import tensorflow as tf


class CandidateDataset:
    """The candidate lists of one split, in file order, as batches of whole candidate lists.

    A split without labels holds positives only, and the negatives of each are drawn here:
    different items that its user has in no interaction, of those that someone has (see
    `touched_keys`). An id of unknown items is never a negative. Memory: 5 bytes per row.

    Args:
        spec: with the channels `user`, `item` and, where there are labels, `label`.
        batch_size: maximum number of rows of a global batch, which holds whole candidate
            lists, equally many for each rank; the attribute is their number.
        valid_negative: negatives per candidate list: the first ones that are stored, or the
            number to draw. None: all that are stored.
        rank, world_size: see `LoaderOptions`, a sample of which is a candidate list here.
        with_labels: False reads no labels, to predict: labels are `None`, and each stored row
            is a candidate list of its own.

    Attributes:
        list_length: rows per candidate list.
        num_lists: candidate lists of the split.
        num_samples: their rows.

    Raises:
        ValueError: see `read_candidate_lists` and `read_interactions`; fewer negatives or unseen
            items than requested; or an argument is out of range.
    """

    failure: str | None = None  # None: invalid rows are found here, not later

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
        if with_labels:
            lists = evaluated_lists(spec, split, valid_negative, seed)
        else:
            lists = read_pairs(spec, split)
        self.split = split
        self.num_lists, self.list_length = lists.items.shape
        self.num_samples = lists.items.size
        rows_per_rank = self.list_length * world_size
        if batch_size < rows_per_rank:
            raise ValueError(
                f"batch_size is {batch_size}; a global batch has a candidate list for each rank "
                f"at least, {self.list_length} rows x {world_size} ranks = {rows_per_rank}: choose "
                "that or more (--valid_batch_size)"
            )
        self.batch_size = batch_size // rows_per_rank * rows_per_rank
        self._batches = SampleDataset(
            _reader(lists),
            split,
            LoaderOptions(
                batch_size=self.batch_size // self.list_length, rank=rank, world_size=world_size
            ),
            arrange=self._arrange,
        )
        self.num_batches = self._batches.num_batches
        self.rank = rank
        self.world_size = world_size

    def dataset(self, epoch: int = 0, start_sample: int = 0) -> tf.data.Dataset:
        """Returns a dataset of `Batch` of `InteractionInputs`, the same in every epoch.

        Args:
            start_sample: global rows to leave out, whole candidate lists.
        """
        return self._batches.dataset(epoch, start_sample // self.list_length)

    def _arrange(self, batch: Batch) -> Batch:
        import tensorflow as tf

        users, items = batch.inputs.categorical
        users = tf.repeat(tf.reshape(users, [-1]), self.list_length)
        return Batch(
            InteractionInputs(users, tf.reshape(items, [-1])),
            None if batch.labels is None else tf.reshape(batch.labels, [-1, 1]),
            tf.repeat(batch.weights, self.list_length, axis=0),
        )


def _reader(lists: CandidateArrays) -> ArrayReader:
    """Returns a reader of candidate lists, each of which is a sample."""
    length = lists.items.shape[1]
    arrays = {
        Column(Role.CATEGORICAL, "user", lists.users.dtype, 1): lists.users[:, None],
        Column(Role.CATEGORICAL, "item", lists.items.dtype, length): lists.items,
    }
    if lists.labels is not None:
        arrays[Column(Role.LABEL, "label", lists.labels.dtype, length)] = lists.labels
    return ArrayReader(arrays)


def evaluated_lists(
    spec: FeatureSpec, split: str, valid_negative: int | None, seed: int
) -> CandidateArrays:
    """Returns the candidate lists of a split with labels, see `CandidateDataset`."""
    if length_of_lists(spec, split) is None:
        return _with_drawn(spec, split, valid_negative, seed)
    return _with_fewer(read_candidate_lists(spec, split), valid_negative, spec, split)


def _with_fewer(
    lists: CandidateArrays, valid_negative: int | None, spec: FeatureSpec, split: str
) -> CandidateArrays:
    stored = lists.items.shape[1] - 1
    if valid_negative is None or valid_negative == stored:
        return lists
    if valid_negative > stored:
        raise ValueError(
            f"{spec.origin}: split '{split}' stores {stored} negatives a candidate list, fewer "
            f"than --valid_negative {valid_negative}; ask for at most {stored}, or prepare the "
            "data again"
        )
    kept = lists.labels | (np.cumsum(~lists.labels, axis=1) <= valid_negative)
    shape = len(lists.users), 1 + valid_negative
    return CandidateArrays(
        lists.users, lists.items[kept].reshape(shape), lists.labels[kept].reshape(shape)
    )


def _with_drawn(
    spec: FeatureSpec, split: str, valid_negative: int | None, seed: int
) -> CandidateArrays:
    """Returns a candidate list for each stored positive, which is the first of its rows."""
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
    return CandidateArrays(users, np.concatenate([items[:, None], negatives], axis=1), labels)
