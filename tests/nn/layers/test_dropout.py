"""Dropout: the same units on any number of ranks."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from dataloading.pipeline.shuffle import share_of_rank
from nn.layers.dropout import Dropout, DropoutPlace, first_sample


def place(step=1, first=0, num_samples=100):
    return DropoutPlace(*map(tf.constant, (np.int64(step), np.int64(first), np.int32(num_samples))))


def test_share_and_scale():
    layer = Dropout(0.2, seed=3, name="dropout")
    x = tf.fill([100, 1001], 4.0)
    first = layer(x, place()).numpy()
    assert set(np.unique(first)) == {0.0, 5.0}
    assert (first == 0).mean() == pytest.approx(0.2, abs=0.01)
    np.testing.assert_array_equal(first, layer(x, place()))
    for other, step in (
        (layer, 2),
        (Dropout(0.2, seed=4, name="dropout"), 1),
        (Dropout(0.2, seed=3, name="another"), 1),
    ):
        differ = (first != other(x, place(step)).numpy()).mean()
        assert differ == pytest.approx(2 * 0.2 * 0.8, abs=0.02)
    half = Dropout(0.2, seed=3, name="dropout", dtype="mixed_bfloat16")(x, place())
    assert half.dtype == tf.bfloat16
    np.testing.assert_array_equal(half, first)


@pytest.mark.parametrize(("blocks", "rows", "width"), [(1, 1, 5), (3, 1, 5), (2, 4, 3), (1, 2, 8)])
@pytest.mark.parametrize("compiled", [False, True])
def test_part_of_a_batch(blocks, rows, width, compiled):
    """Samples 3 to 6 of 10 lose the same units alone; x is [blocks, samples, rows, width]."""
    layer = Dropout(0.5, seed=3, name="dropout")
    call = tf.function(layer.call) if compiled else layer.call

    def dropped(first, num_samples):
        x = tf.ones([blocks * num_samples * rows, width])
        kept = call(x, place(7, first, num_samples), blocks).numpy()
        return kept.reshape(blocks, num_samples, rows, width)

    whole = dropped(0, 10)
    np.testing.assert_array_equal(dropped(3, 4), whole[:, 3:7])
    assert len(np.unique(whole[:, 3:7].swapaxes(0, 1).reshape(4, -1), axis=0)) > 1


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_first_sample(size):
    for total, rank in itertools.product(range(1, 12), range(size)):
        begin, end, length = share_of_rank(total, rank, size)
        weights = np.zeros([length, 1], np.float32)
        weights[: end - begin] = length * size / total
        first = int(first_sample(tf.constant(weights), tf.constant(length), rank, size))
        assert first == begin or begin == end
        if total % size == 0:
            assert int(first_sample(None, tf.constant(length), rank, size)) == begin
