import math

import numpy as np
import pytest
import tensorflow as tf

from nn.layers.dropout import DropoutPlace
from nn.layers.members import MemberMLP, mean_member


def test_logits_by_hand():
    mlp = MemberMLP((2, 1), 2, seed=1, name="mlp")
    x = tf.constant([[1.0, 2.0], [0.0, -1.0]])
    mlp(x)
    assert set(np.unique(mlp.signs)) == {-1, 1}
    mlp.signs.assign([[1, 1], [1, -1]])
    (hidden,) = mlp.hidden.stack
    hidden.kernel.assign([[1, 0], [1, 2]])
    hidden.bias.assign([0, -1])
    mlp.kernel.assign([[1, 2], [3, 0]])
    mlp.bias.assign([0, 0.5])
    # Member 1 of the first sample: relu(3, 3); member 2, of (1, -2): relu(-1, -5).
    # Second sample: relu(-1, -3), and of (0, 1): relu(1, 1).
    np.testing.assert_allclose(mlp(x), [[9, 0.5], [0, 3.5]])


def test_no_hidden_layers():
    mlp = MemberMLP((1,), 3, seed=1, name="mlp")
    x = tf.random.normal([5, 4])
    signed = x[:, tf.newaxis] * mlp(x)[..., tf.newaxis] * 0 + x[:, tf.newaxis] * mlp.signs
    np.testing.assert_allclose(mlp(x), tf.reduce_sum(signed * mlp.kernel, -1), rtol=1e-5)


def test_initial_weights():
    first, same, other = (MemberMLP((50, 1), 8, seed=s, name="mlp") for s in (1, 1, 2))
    for mlp in (first, same, other):
        mlp(tf.zeros([1, 100]))
    assert abs(np.mean(first.signs)) < 0.15
    assert np.std(first.kernel) == pytest.approx(math.sqrt(2 / 51), rel=0.1)
    np.testing.assert_array_equal(first.signs, same.signs)
    assert (first.signs.numpy() != other.signs.numpy()).mean() > 0.4


def test_dropout():
    mlp = MemberMLP((1000, 1), 2, seed=1, name="mlp", dropout=(0.5, 3))
    x = tf.ones([4, 6])
    whole = mlp(x)
    first, count = tf.zeros([], tf.int64), tf.constant(4)
    places = [DropoutPlace(tf.constant(step, tf.int64), first, count) for step in (1, 1, 2)]
    steps = [mlp(x, place) for place in places]
    np.testing.assert_array_equal(steps[0], steps[1])
    assert (steps[0].numpy() != steps[2].numpy()).all()
    assert (steps[0].numpy() != whole.numpy()).all()


def test_mean_member_by_hand():
    # sigmoids 1/4 and 3/4 -> 1/2; 1/2 and 3/4 -> 5/8
    logits = tf.constant([[-math.log(3), math.log(3)], [0, math.log(3)]])
    np.testing.assert_allclose(mean_member(logits), [[0], [math.log(5 / 3)]], atol=1e-6)
    one = tf.constant([[1.5]])
    assert mean_member(one) is one


def test_mean_member_of_large_logits():
    logits = tf.constant([[100.0, 100.0], [-200.0, -200.0], [80.0, 90.0]])
    expected = [[100], [-200], [80 + math.log(2)]]
    np.testing.assert_allclose(mean_member(logits), expected, rtol=1e-5)
