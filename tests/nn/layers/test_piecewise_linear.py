import numpy as np
import pytest
import tensorflow as tf

from nn.layers.piecewise_linear import PiecewiseLinear

EDGES = [[0, 1, 4], [-1, 1]]  # of two columns, the second with one bin


def layer_of(edges=EDGES, **options):
    layer = PiecewiseLinear(2, 3, edges=edges, seed=1, name="numbers", **options)
    layer(tf.zeros([1, 2]))
    return layer


def test_encoding_by_hand():
    x = tf.constant([[0.5, 0.0], [2.5, 1.0], [-2.0, -3.0], [7.0, 5.0]])
    first, second = layer_of().encode(x).numpy()
    np.testing.assert_allclose(first, [[0.5, 0], [1, 0.5], [-2, 0], [1, 2]])
    np.testing.assert_allclose(second, [[0.5, 0], [1, 0], [-1, 0], [3, 0]])


def test_vectors_by_hand():
    layer = layer_of()
    layer.kernel.assign([[[1, 0, 2], [0, 1, -2]], [[4, 4, 4], [9, 9, 9]]])
    layer.bias.assign([[0, 0, 1], [10, 0, 0]])
    vectors = layer(tf.constant([[2.5, 0.0]]))
    np.testing.assert_allclose(vectors, [[[1, 0.5, 2], [12, 2, 2]]])


def test_weights():
    layer = layer_of(num_zeros=1)
    assert [w.name.split("/")[-1].split(":")[0] for w in layer.trainable_weights] == [
        "kernel",
        "bias",
    ]
    np.testing.assert_array_equal(layer.edges, [[0, 1, 4], [-1, 1, 1]])
    assert layer.bias.shape == (2, 2)  # none of the last column
    kernel = layer.kernel.numpy()
    assert (kernel[:, :, :2] != 0).all() and (kernel[:, :, 2] == 0).all()
    np.testing.assert_array_equal(layer_of(num_zeros=1).kernel, kernel)


def test_low_precision():
    """Numbers in bfloat16 would have two or three digits."""
    layer = PiecewiseLinear(
        1, 1, edges=[[1000, 1002]], seed=1, name="numbers", dtype="mixed_bfloat16"
    )
    vectors = layer(tf.constant([[1001.0], [1000.0]]))
    assert vectors.dtype == tf.bfloat16
    kernel = layer.kernel.numpy()[0, 0]
    np.testing.assert_allclose(tf.cast(vectors, tf.float32)[:, 0], [kernel / 2, kernel * 0], 1e-2)


def test_edges_of_a_checkpoint():
    layer = layer_of(edges=None)
    np.testing.assert_array_equal(layer.edges, np.zeros([2, 3]))
    assert np.isfinite(layer(tf.ones([4, 2]))).all()


def test_wrong_number_of_columns():
    with pytest.raises(ValueError, match="expected the edges of 2 columns, got 1"):
        layer_of(edges=EDGES[:1])
