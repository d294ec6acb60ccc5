"""Layers of the sequential recommenders: what the models of test_sequence_model.py do not show."""

import numpy as np
import pytest
import tensorflow as tf

from nn.layers.dropout import DropoutPlace
from nn.sequence.attention import (
    ActivationUnit,
    TargetQueries,
    masked_softmax,
)
from nn.sequence.long_history import most_recent, select_top
from nn.sequence.mlp import Classifier, PReLU

YES, NO = True, False


def normal(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=shape), tf.float64)


def test_masked_softmax_of_the_lowest_scores():
    """A real place whose score is as low as float32 goes still beats padding."""
    scores = tf.constant([[-3e38, 0.0]])
    np.testing.assert_array_equal(masked_softmax(scores, tf.constant([[YES, NO]])), [[1, 0]])
    np.testing.assert_array_equal(masked_softmax(-scores, tf.constant([[YES, NO]])), [[1, 0]])


def test_initial_queries():
    target = normal(3, 4)
    layer = TargetQueries(seed=1, name="queries", num_heads=1, identity=True, dtype="float64")
    np.testing.assert_allclose(layer(target)[:, 0], target / 2)


@pytest.mark.parametrize("k", [1, 4, 20])
def test_selection_against_sorting(k):
    """Padding is never selected; of equal scores the most recent places are."""
    rng = np.random.default_rng(5)
    scores = rng.integers(0, 6, [200, 12]).astype("f")  # many are equal
    mask = rng.random([200, 12]) < 0.7
    selected = select_top(tf.constant(scores), tf.constant(mask), k).numpy()
    for row, real, got in zip(scores, mask, selected, strict=True):
        order = sorted(np.flatnonzero(real), key=lambda j, row=row: (row[j], j), reverse=True)
        assert set(np.flatnonzero(got)) == set(order[:k])


def test_most_recent():
    mask = tf.constant([[YES, YES, NO, YES]])
    np.testing.assert_array_equal(most_recent(mask, 2), [[NO, YES, NO, YES]])
    np.testing.assert_array_equal(most_recent(mask, 4), mask)


def test_float32_sums_over_batch():
    """8,191 has 13 bits, of which bfloat16 keeps 8."""
    prelu = PReLU(name="prelu", dtype="mixed_bfloat16")
    assert gradient_of(prelu, "slope", -tf.ones([8191, 1], tf.bfloat16)) == -8191
    unit = ActivationUnit(seed=0, name="unit", dim=1, dtype="mixed_bfloat16")
    target, keys = tf.zeros([8191, 1], tf.bfloat16), tf.ones([8191, 1, 1], tf.bfloat16)
    inputs = target, keys, tf.ones([8191, 1], tf.bool)
    unit(*inputs)
    unit.score_kernel.assign([[1.0]])
    unit.slope.assign([[1.0]])
    assert gradient_of(unit, "bias", *inputs) == 8191
    assert gradient_of(unit, "score_bias", *inputs) == 8191


def gradient_of(layer, weight: str, *inputs) -> float:
    """The gradient of the sum of a layer's output to a weight of one element."""
    layer(*inputs)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.cast(layer(*inputs), tf.float32))
    return float(tape.gradient(loss, getattr(layer, weight))[0])


def test_classifier_without_hidden_layers():
    layer = Classifier([], seed=0, name="mlp", dropout=(0.5, 0))
    place = DropoutPlace(*map(tf.constant, (np.int64(1), np.int64(0), np.int32(3))))
    assert layer(tf.ones([3, 2]), place).shape == (3, 1)
    assert len(layer.trainable_variables) == 2
