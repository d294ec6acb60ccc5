"""Lookup and gradient of compiled embedding bags, against float64."""

import types

import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.exchange import bag_gradients
from distributed_embeddings.ops import embedding_bag, kernels
from distributed_embeddings.ops.embedding_bag import Bags, look_up

DIMS = (1, 3, 8, 16, 17, 64, 128, 200)
DTYPES = (tf.float32, tf.float16, tf.bfloat16)
# Largest relative error of one rounding.
EPSILON = {tf.float32: 2.0**-22, tf.float16: 2.0**-11, tf.bfloat16: 2.0**-8}
# Two tables of 30 and 12 rows in one variable; the first has three vectors of a sample.
COLUMNS = {
    "hotness": (3, 1, 4, 2, 0),
    "row_offsets": (0, 0, 0, 30, 30),
    "num_rows": (30, 30, 30, 12, 12),
    "mean": (False, True, True, False, True),
}
ROWS = 42


@pytest.fixture
def generator():
    return np.random.default_rng(3)


def fixed_ids(generator, samples: int, dtype=np.int64) -> np.ndarray:
    parts = [
        generator.integers(0, rows, [samples, hotness])
        for hotness, rows in zip(COLUMNS["hotness"], COLUMNS["num_rows"], strict=True)
    ]
    return np.concatenate(parts, axis=1).astype(dtype)


def reference(table: np.ndarray, bags: Bags) -> np.ndarray:
    """Returns float64 [samples, vectors * dim]."""
    table, columns = table.astype(np.float64), bags.columns.values()
    ids = np.asarray(bags.ids)
    weights = np.ones(ids.shape) if bags.weights is None else np.asarray(bags.weights, np.float64)
    if bags.splits is not None:
        runs = list(zip(bags.splits[:-1], bags.splits[1:], strict=True))
    else:
        runs = [(None, None)] * len(ids)
    result = np.zeros([len(runs), len(bags.hotness), table.shape[1]])
    for sample, (begin, end) in enumerate(runs):
        start = 0
        for c, (hotness, offset, _, mean) in enumerate(zip(*columns, strict=True)):
            where = (sample, slice(start, start + hotness)) if begin is None else slice(begin, end)
            rows = table[ids[where] + offset] * weights[where][:, np.newaxis]
            result[sample, c] = rows.sum(axis=0) / (max(len(rows), 1) if mean else 1)
            start += hotness
    return result.reshape([len(runs), len(bags.hotness) * table.shape[1]])


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_fixed_ids(isa, generator, dim, dtype):
    table = tf.Variable(tf.cast(generator.normal(size=[ROWS, dim]), dtype))
    for output in DTYPES:
        for samples, id_dtype in ((37, np.int32), (1, np.int64), (0, np.int64)):
            bags = Bags(tf.constant(fixed_ids(generator, samples, id_dtype)), **COLUMNS)
            result = look_up(table, bags, output)
            assert result.dtype == output
            expected = reference(tf.cast(table, tf.float32).numpy(), bags)
            error = np.abs(tf.cast(result, tf.float64) - expected)
            assert np.all(error <= EPSILON[output] * (np.abs(expected) + 4))


@pytest.mark.parametrize("dim", [16, 24, 144])
def test_outputs_larger_than_the_caches(isa, generator, dim):
    table = tf.Variable(generator.normal(size=[ROWS, dim]).astype(np.float32))
    samples = 2**24 // (2 * 4 * dim) + 1
    ids = generator.integers(0, 12, [samples, 2])
    bags = Bags(tf.constant(ids), (1, 1), (0, 30), (12, 12), (False, False))
    expected = table.numpy()[(ids + [0, 30]).ravel()].reshape(samples, 2 * dim)
    np.testing.assert_array_equal(look_up(table, bags, tf.float32), expected)


@pytest.mark.parametrize("dim", [3, 16, 128])
@pytest.mark.parametrize("mean", [False, True])
def test_ragged_ids(isa, generator, dim, mean):
    table = tf.Variable(generator.normal(size=[ROWS, dim]).astype(np.float32))
    lengths = [0, 3, 1, 0, 0, 40, 7, 0]
    ids = tf.constant(generator.integers(0, ROWS, sum(lengths)), tf.int32)
    splits = embedding_bag.splits_of(tf.constant(lengths))
    weights = tf.constant(generator.normal(size=sum(lengths)), tf.float32)
    for factors in (None, weights):
        bags = Bags.single(ids, ROWS, mean, splits)._replace(weights=factors)
        result = look_up(table, bags, tf.float32)
        np.testing.assert_allclose(result, reference(table.numpy(), bags), rtol=1e-5, atol=1e-5)
        plain = embedding_bag.plain_look_up(table, bags, tf.float32)
        np.testing.assert_allclose(result, plain, rtol=1e-5, atol=1e-5)
        assert not np.any(result[0]) and not np.any(result[-1])


def test_weights_of_fixed_ids(isa, generator):
    table = tf.Variable(generator.normal(size=[ROWS, 20]).astype(np.float32))
    ids = fixed_ids(generator, 300)
    factors = tf.constant(generator.random(ids.shape), tf.float32)
    bags = Bags(tf.constant(ids), **COLUMNS, weights=factors)
    expected = reference(table.numpy(), bags)
    np.testing.assert_allclose(look_up(table, bags, tf.float32), expected, rtol=1e-5, atol=1e-5)
    plain = embedding_bag.plain_look_up(table, bags, tf.float32)
    np.testing.assert_allclose(plain, expected, rtol=1e-5, atol=1e-5)


def test_all_16_bit_numbers(isa):
    """A lookup of one id returns the row; other dtypes round to nearest, ties to even.

    -0 becomes 0, as in any sum. TensorFlow's threads flush subnormal numbers of float32, which are
    those of bfloat16, too.
    """
    bits = np.arange(2**16, dtype=np.uint16).reshape([-1, 16])
    ids = tf.range(len(bits))[:, tf.newaxis]
    bags = Bags.single(ids, len(bits))
    for dtype in (tf.float16, tf.bfloat16):
        numbers = bits.view(dtype.as_numpy_dtype).copy()
        numbers[np.abs(numbers.astype(np.float32)) < 2.0**-126] = 0
        is_number = ~np.isnan(numbers.astype(np.float32))
        same = look_up(tf.Variable(numbers), bags, dtype).numpy()
        np.testing.assert_array_equal(same[is_number], numbers[is_number])
        assert np.all(np.isnan(same.astype(np.float32)) == ~is_number)
        wide = look_up(tf.Variable(numbers), bags, tf.float32).numpy()
        np.testing.assert_array_equal(wide[is_number], numbers.astype(np.float32)[is_number])
        # Numbers half way between two, and their neighbours.
        for step in (-1, 0, 1):
            between = wide.view(np.uint32) + np.uint32(1 << (15 if dtype == tf.bfloat16 else 12))
            between = (between + np.uint32(step % 2**32)).view(np.float32)
            between[~np.isfinite(between) | (np.abs(between) < 2.0**-126)] = 0
            rounded = look_up(tf.Variable(between), bags, dtype).numpy()
            with np.errstate(over="ignore"):
                expected = between.astype(dtype.as_numpy_dtype)
            np.testing.assert_array_equal(rounded, expected)


@pytest.mark.parametrize("bad", [-1, 30, 2**31 - 1, -(2**31)])
def test_id_out_of_range(library, generator, bad):
    """The second table has 12 rows, the first 30: an id of one must not read the other."""
    table = tf.Variable(tf.ones([ROWS, 4]))
    for position in (0, 9):
        ids = fixed_ids(generator, 5, np.int32)
        ids[3, position] = bad
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=rf"id {bad} .* table of (30|12) rows"
        ):
            look_up(table, Bags(tf.constant(ids), **COLUMNS), tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not in .0, rows of its table"):
        look_up(table, Bags.single(tf.constant([[2**40]]), ROWS), tf.float32)


def test_checks_on_gpus(library, monkeypatch):
    """A GPU's operation reads zeros for a bad id: where a check is wanted, it comes before."""
    table = tf.Variable(tf.ones([ROWS, 4]))
    lookups = []

    def resource_embedding_bag(handle, ids, *_, **attributes):
        lookups.append(ids)
        return tf.zeros([len(ids), 4 * len(attributes["hotness"])])

    monkeypatch.setattr(kernels, "reason_for_fallback", lambda: None)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind=None: ["GPU:0"])
    operations = types.SimpleNamespace(resource_embedding_bag=resource_embedding_bag)
    monkeypatch.setattr(kernels, "library", lambda: operations)
    for bags in (
        Bags.single(tf.constant([[2**40]]), ROWS),
        Bags.single(tf.constant([3, -1]), ROWS, splits=tf.constant([0, 2], tf.int64)),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match="not in .0, rows of its table"):
            bag_gradients.look_up(table, bags, tf.float32, check=True)
        assert not lookups
        bag_gradients.look_up(table, bags, tf.float32)
        assert lookups.pop() is bags.ids


@pytest.mark.parametrize("splits", [[1, 2], [0, 4], [0, 3, 1, 3], [-1, 3], []])
def test_splits_that_do_not_fit(library, splits):
    table = tf.Variable(tf.ones([ROWS, 4]))
    bags = Bags.single(tf.constant([1, 2, 3]), ROWS, splits=tf.constant(splits, tf.int64))
    uses = [(bags, tf.ones([max(len(splits) - 1, 0), 4]))]
    if splits != [1, 2]:  # a lookup of a part of the ids is one
        with pytest.raises(tf.errors.InvalidArgumentError, match="splits"):
            look_up(table, bags, tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="splits"):
        embedding_bag.update(table, [], "sgd", tf.ones([6]), uses)
    np.testing.assert_array_equal(table, np.ones([ROWS, 4]))


def test_sizes_that_do_not_fit(library):
    table = tf.Variable(tf.ones([ROWS, 4]))
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match="ids must be"):
        look_up(table, Bags(tf.constant([[1, 2]]), **COLUMNS), tf.float32)
    with pytest.raises(
        (tf.errors.InvalidArgumentError, ValueError), match=r"ids must be \[samples"
    ):
        look_up(table, Bags.single(tf.constant([1]), ROWS), tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="lie in the table"):
        look_up(table, Bags.single(tf.constant([[1]]), ROWS + 1), tf.float32)
    use = (Bags.single(tf.constant([[1]]), ROWS), tf.ones([1, 3]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="gradient must be"):
        embedding_bag.update(table, [], "sgd", tf.ones([6]), [use])


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_gradient(library, generator, in_graph, dtype):
    """Against differences of the float64 lookup, which is linear in the table."""
    table = tf.Variable(tf.cast(generator.normal(size=[ROWS, 3]), dtype))
    bags = Bags(tf.constant(fixed_ids(generator, 23)), **COLUMNS)
    factors = tf.cast(generator.normal(size=[23, 15]), tf.float32)

    def gradient():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(look_up(table, bags, tf.float32) * factors)
        return tape.gradient(loss, table)

    slices = (tf.function(gradient) if in_graph else gradient)()
    assert np.all(np.diff(slices.indices) > 0) and slices.dtype == dtype
    zeros, expected = np.zeros([ROWS, 3]), np.zeros([ROWS, 3])
    for row, column in np.ndindex(ROWS, 3):
        moved = zeros.copy()
        moved[row, column] = 1.0
        expected[row, column] = np.sum(reference(moved, bags) * factors.numpy())
    summed = tf.cast(tf.convert_to_tensor(slices), tf.float64)
    np.testing.assert_allclose(summed, expected, rtol=2 * EPSILON[dtype], atol=1e-5)
