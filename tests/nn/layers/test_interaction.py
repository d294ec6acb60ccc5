import numpy as np
import pytest
import tensorflow as tf

from nn.layers.cross import CrossNetwork
from nn.layers.interaction import DotInteraction, pairwise_dots


def test_pairs_of_one_feature():
    rows = tf.ones([2, 1, 4])
    with tf.GradientTape() as tape:
        tape.watch(rows)
        pairs = pairwise_dots(rows)
    assert pairs.shape == (2, 0)
    np.testing.assert_array_equal(tape.gradient(pairs, rows), np.zeros([2, 1, 4]))


@pytest.mark.parametrize("num_features", [2, 5, 27])
@pytest.mark.parametrize("batch", [0, 1, 7])
def test_gradient_of_reference(num_features, batch):
    rng = np.random.default_rng(num_features)
    rows = tf.constant(rng.normal(size=(batch, num_features, 3)), tf.float64)
    mask = np.tril_indices(num_features, k=-1)
    lower = np.tril(np.ones([num_features, num_features], bool), k=-1)
    weights = tf.constant(rng.normal(size=(batch, len(mask[0]))))

    def plain(x):
        gram = tf.matmul(x, x, transpose_b=True)
        return tf.reshape(tf.boolean_mask(gram, lower, axis=1), [batch, len(mask[0])])

    gradients = []
    for function in (pairwise_dots, plain):
        with tf.GradientTape() as tape:
            tape.watch(rows)
            loss = tf.reduce_sum(function(rows) * weights)
        gradients.append(tape.gradient(loss, rows).numpy())
    np.testing.assert_allclose(gradients[0], gradients[1], atol=1e-12)
    np.testing.assert_allclose(pairwise_dots(rows), plain(rows), atol=1e-12)


@pytest.mark.parametrize("implementation", ["dot_tensorflow", "dot_custom", "dot_gather"])
def test_dot_interaction(implementation):
    bottom = tf.constant([[1.0, 2.0]])
    embeddings = tf.constant([[[3.0, 4.0], [5.0, 6.0]]])
    result = DotInteraction(implementation)(embeddings, bottom)
    np.testing.assert_array_equal(result, [[1.0, 2.0, 11.0, 17.0, 39.0, 0.0, 0.0, 0.0]])
    alone = DotInteraction(implementation)(embeddings, None)
    np.testing.assert_array_equal(alone, [[39.0] + [0.0] * 7])


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("numericals", [True, False])
def test_equal_implementations(numericals, dtype):
    compute = dtype.removeprefix("mixed_")
    bottom = tf.cast(tf.random.stateless_normal([9, 16], [1, 2]), compute)
    embeddings = tf.cast(tf.random.stateless_normal([9, 5, 16], [3, 4]), compute)
    inputs = [embeddings, bottom] if numericals else [embeddings]
    results = []
    for implementation in ("dot_tensorflow", "dot_custom", "dot_gather"):
        layer = DotInteraction(implementation, dtype=dtype)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = layer(embeddings, bottom if numericals else None)
            loss = tf.reduce_sum(tf.cast(output, tf.float32) * tf.range(9.0)[:, tf.newaxis])
        assert output.dtype == compute
        results.append([output, *tape.gradient(loss, inputs)])
    tolerance = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}[compute]
    for plain, *others in zip(*results, strict=True):
        plain, *others = (tf.cast(x, tf.float32).numpy() for x in (plain, *others))
        for other in others:
            np.testing.assert_allclose(other, plain, rtol=tolerance, atol=tolerance * plain.max())


def test_cross_layer():
    layer = CrossNetwork(1, 1, seed=0, name="cross")
    x = tf.constant([[1.0, 2.0]])
    layer(x)
    layer.down[0].kernel.assign([[1.0], [3.0]])  # U x = 1 + 6 = 7
    layer.up[0].kernel.assign([[2.0, -1.0]])  # V U x = (14, -7)
    layer.up[0].bias.assign([0.5, 1.0])  # + b = (14.5, -6)
    np.testing.assert_allclose(layer(x), [[1 * 14.5 + 1, 2 * -6 + 2]])
