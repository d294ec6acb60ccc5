"""One batch of users and items drawn at random, to measure the speed of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dataloading.pipeline.batch import Batch, InteractionInputs

if TYPE_CHECKING:
    import tensorflow as tf


class DrawnPairs:
    """A data set of one batch of `batch_size` users and items, each uniform, without labels.

    Args:
        num_users, num_items: ids are below these numbers.
    """

    split = "drawn"
    num_batches = 1

    def __init__(self, num_users: int, num_items: int, batch_size: int, seed: int = 0):
        random = np.random.default_rng([seed, batch_size])
        self.batch_size = self.num_samples = batch_size
        self._inputs = InteractionInputs(
            random.integers(num_users, size=batch_size, dtype=np.int32),
            random.integers(num_items, size=batch_size, dtype=np.int32),
        )

    def dataset(self) -> tf.data.Dataset:
        """Returns a dataset of one `Batch` of `InteractionInputs` without labels and weights."""
        import tensorflow as tf

        inputs = InteractionInputs(*(tf.constant(ids) for ids in self._inputs))
        return tf.data.Dataset.from_tensors(Batch(inputs, None, None))
