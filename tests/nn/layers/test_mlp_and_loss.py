import math

import numpy as np
import pytest
import tensorflow as tf

from nn.layers.fully_connected import MLP, Dense
from nn.train.losses import binary_cross_entropy


def column(*values):
    return tf.constant([[v] for v in values], tf.float32)


def test_mlp_by_hand():
    mlp = MLP([2, 1], seed=0, name="mlp")
    x = tf.constant([[1.0, 2.0]])
    mlp(x)
    first, second = mlp.stack
    first.kernel.assign([[1.0, -1.0], [1.0, -1.0]])
    first.bias.assign([0.5, 0.0])  # relu(3.5, -3) = (3.5, 0)
    second.kernel.assign([[-2.0], [5.0]])
    second.bias.assign([1.0])  # -6
    np.testing.assert_allclose(mlp(x), [[0.0]])
    linear = MLP([2, 1], seed=0, name="mlp", linear_output=True)
    linear(x)
    linear.set_weights(mlp.get_weights())
    np.testing.assert_allclose(linear(x), [[-6.0]])


def test_rows_of_weight_zero():
    # The weight of the real row makes up for the padding, as the loaders' does.
    loss = binary_cross_entropy(column(1, 0), column(0, 99), column(2, 0))
    assert float(loss) == pytest.approx(math.log(2))
    assert float(binary_cross_entropy(column(1), column(0), column(0))) == 0


def test_mean_over_ranks():
    # Five rows on two ranks: shares of 3 and 2 rows, 6 places, each real row weighs 6 / 5.
    labels, logits = column(1, 0, 1, 1, 0, 0), column(0.5, -1, 2, -3, 0.1, 0)
    weights = column(*[6 / 5] * 5, 0)
    shares = slice(0, 3), slice(3, 6)
    losses = [binary_cross_entropy(labels[s], logits[s], weights[s]) for s in shares]
    whole = binary_cross_entropy(labels[:5], logits[:5], column(*[1] * 5))
    assert sum(map(float, losses)) / 2 == pytest.approx(float(whole), rel=1e-6)


def test_huge_logits():
    loss = binary_cross_entropy(column(1, 0), column(-1e4, -1e4), column(1, 1))
    assert float(loss) == pytest.approx(5e3)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("use_bias", [False, True])
def test_dense_gradients_against_tensorflow(relu, use_bias):
    layer = Dense(3, seed=1, name="layer", relu=relu, use_bias=use_bias)
    x = tf.random.stateless_normal([6, 4], [1, 2])
    upstream = tf.random.stateless_normal([6, 3], [3, 4])
    layer(x)

    def plain(x):
        y = tf.matmul(x, layer.kernel) + (layer.bias if use_bias else 0.0)
        return tf.nn.relu(y) if relu else y

    gradients = []
    for function in (layer, plain):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(function(x) * upstream)
        gradients.append(tape.gradient(loss, [x, *layer.trainable_variables]))
    for ours, tensorflows in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, tensorflows, atol=1e-5)


def test_bias_gradient_in_bfloat16():
    """Adding 1 to 256 in bfloat16 gives 256: a sum over 8,192 rows of ones would stop there."""
    layer = Dense(2, seed=1, name="layer", dtype="mixed_bfloat16")
    x = tf.zeros([8192, 1], tf.bfloat16)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.cast(layer(x), tf.float32))
    gradient = tape.gradient(loss, layer.bias)
    np.testing.assert_allclose(gradient, [8192.0, 8192.0], rtol=0.005)
