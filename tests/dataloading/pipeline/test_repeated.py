"""Batches of a data set repeatedly: from memory where they fit."""

import itertools

import pytest
import tensorflow as tf

from dataloading.pipeline.batch import Batch, Inputs, RaggedIds
from dataloading.pipeline.repeated import repeated


@pytest.mark.parametrize(("most_bytes", "passes"), [(60, 1), (59, 3), (0, 3)])
def test_batches_in_turn(most_bytes, passes):
    """A batch has 20 bytes: a numerical feature, an id with its two splits, a label."""
    passed = []

    def dataset():
        passed.append(True)
        return tf.data.Dataset.range(5).map(
            lambda i: Batch(
                Inputs(tf.cast([[i]], tf.float32), (RaggedIds(tf.cast([i], tf.int32), [0, 1]),)),
                tf.zeros([1, 1]),
                (),
            )
        )

    batches = itertools.islice(repeated(dataset, 3, most_bytes), 8)
    numbers = [int(batch.inputs.numerical.numpy().item()) for batch in batches]
    assert numbers == [0, 1, 2, 0, 1, 2, 0, 1]
    assert len(passed) == passes
