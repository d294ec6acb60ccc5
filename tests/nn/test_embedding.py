import itertools

import numpy as np
import pytest
import tensorflow as tf

from nn.embedding.gradient import sum_duplicates
from nn.embedding.layer import EmbeddingCollection, TableConfig
from nn.embedding.weights import TableWeight, fill_uniform, pieces


def tables(*shapes):
    return [TableConfig(f"t{i}", rows, dim) for i, (rows, dim) in enumerate(shapes)]


def counting(layer):
    """Sets row r of table t to 100 t + r in every column."""
    for t, weight in enumerate(layer.table_weights()):
        rows, dim = weight.shape
        weight.write(0, np.repeat(100.0 * t + np.arange(rows), dim).reshape(rows, dim).astype("f"))
    return layer


def ids(*features):
    return tuple(tf.constant(feature, tf.int32) for feature in features)


def test_tables_of_one_width_share_a_variable():
    layer = EmbeddingCollection(tables((3, 2), (5, 4), (2, 2)))
    assert [tuple(v.shape) for v in layer.group_variables] == [(5, 4), (5, 2)]
    assert layer.groups == [[1], [0, 2]]


def test_one_hot_lookup_by_hand():
    layer = counting(EmbeddingCollection(tables((3, 2), (4, 2))))
    result = layer(ids([[2], [0]], [[1], [3]]))
    np.testing.assert_array_equal(result, [[2, 2, 101, 101], [0, 0, 103, 103]])


def test_features_of_mixed_widths_keep_their_order():
    layer = counting(EmbeddingCollection(tables((3, 1), (4, 2), (5, 1))))
    result = layer(ids([[2]], [[1]], [[4]]))
    np.testing.assert_array_equal(result, [[2, 101, 101, 204]])


@pytest.mark.parametrize("second", [[[3, 1]], [[3]]], ids=["equal hotness", "mixed hotness"])
def test_several_ids_are_summed(second):
    layer = counting(EmbeddingCollection(tables((3, 2), (4, 2))))
    result = layer(ids([[2, 1]], second))
    expected = sum(100 + i for i in second[0])
    np.testing.assert_array_equal(result, [[3, 3, expected, expected]])


def test_empty_batch():
    layer = EmbeddingCollection(tables((3, 2), (4, 2)))
    assert layer(ids(np.zeros([0, 1]), np.zeros([0, 1]))).shape == (0, 4)


def test_int64_ids():
    layer = counting(EmbeddingCollection(tables((3, 2))))
    np.testing.assert_array_equal(layer((tf.constant([[2]], tf.int64),)), [[2, 2]])


def test_wrong_number_of_features():
    layer = EmbeddingCollection(tables((3, 2), (4, 2)))
    with pytest.raises(ValueError, match="2 tables, but ids of 1 features"):
        layer(ids([[0]]))


def test_initial_values_are_uniform_within_the_bound():
    layer = EmbeddingCollection(tables((10_000, 4), (100, 4)), seed=7)
    for weight in layer.table_weights():
        values = weight.read(0, weight.shape[0])
        limit = np.sqrt(1 / weight.shape[0])
        assert np.abs(values).max() <= limit
        assert values.std() == pytest.approx(limit / np.sqrt(3), rel=0.1)
    assert len(np.unique(layer.table_weights()[0].read(0, 10_000))) > 39_000


def test_initial_values_do_not_depend_on_the_other_tables():
    alone = EmbeddingCollection([TableConfig("b", 5000, 4)], seed=3)
    beside = EmbeddingCollection([TableConfig("a", 7, 4), TableConfig("b", 5000, 4)], seed=3)
    np.testing.assert_array_equal(
        alone.table_weights()[0].read(0, 5000), beside.table_weights()[1].read(0, 5000)
    )
    other = EmbeddingCollection([TableConfig("b", 5000, 4)], seed=4)
    assert (alone.table_weights()[0].read(0, 9) != other.table_weights()[0].read(0, 9)).all()


def test_zeros_initializer():
    layer = EmbeddingCollection(tables((3, 2)), zeros=True)
    np.testing.assert_array_equal(layer.table_weights()[0].read(0, 3), np.zeros([3, 2]))


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_low_precision_output_from_float32_tables(dtype):
    layer = EmbeddingCollection(tables((3, 2)), dtype=dtype)
    assert layer(ids([[0]])).dtype.name == dtype.removeprefix("mixed_")
    assert layer.group_variables[0].dtype == tf.float32


def test_gradient_has_the_rows_of_the_batch():
    layer = EmbeddingCollection(tables((3, 2), (4, 2)))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(ids([[2], [2]], [[1], [3]])) * [[1.0, 2.0, 3.0, 4.0]])
    gradient = tape.gradient(loss, layer.group_variables[0])
    assert isinstance(gradient, tf.IndexedSlices)
    np.testing.assert_array_equal(gradient.indices, [2, 4, 2, 6])
    summed = sum_duplicates(gradient)
    np.testing.assert_array_equal(summed.indices, [2, 4, 6])
    np.testing.assert_array_equal(summed.values, [[2, 4], [3, 4], [3, 4]])


def test_frozen_tables_are_not_trainable():
    assert EmbeddingCollection(tables((3, 2)), trainable=False).trainable_variables == []


def test_pieces_cover_all_rows_and_are_small():
    runs = list(pieces((1_000_000, 128), 4))
    assert runs[0][0] == 0
    assert runs[-1][1] == 1_000_000
    assert all(a[1] == b[0] for a, b in itertools.pairwise(runs))
    assert all((last - first) * 512 <= 64 * 2**20 for first, last in runs)


def test_table_weight_reads_and_writes_its_rows_only():
    variable = tf.Variable(tf.zeros([6, 1]))
    weight = TableWeight("t", (3, 1), variable, offset=2)
    weight.write(1, np.array([[5.0], [6.0]], "f"))
    np.testing.assert_array_equal(variable[:, 0], [0, 0, 0, 5, 6, 0])
    np.testing.assert_array_equal(weight.read(0, 3), [[0], [5], [6]])
    fill_uniform(weight, 1)
    assert variable.numpy()[[0, 1, 5]].tolist() == [[0], [0], [0]]
