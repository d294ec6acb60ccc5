import itertools

import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.box import Box
from distributed_embeddings.collectives import World
from distributed_embeddings.exchange.gradients import sum_duplicates
from distributed_embeddings.keras import keras
from distributed_embeddings.layers.embedding import Embedding
from distributed_embeddings.layers.weights import TableUniform, TableWeight
from distributed_embeddings.merlin.distributed_embedding import DistributedEmbedding
from distributed_embeddings.optimizers.row_means import RowMeans
from distributed_embeddings.planner import Table
from embedding_testing.fake_world import run_threads
from embedding_testing.plans import plan_of
from embedding_testing.tables import built, counting, ids, tables, whole_table

pytestmark = pytest.mark.usefixtures("operations")


def layer_of(*shapes, combiner="sum", **options):
    return DistributedEmbedding(tables(*shapes, combiner=combiner), **options)


def test_one_hot_lookup_by_hand():
    layer = counting(layer_of((3, 2), (4, 2)))
    result = layer(ids([[2], [0]], [[1], [3]]), concatenate=True)
    np.testing.assert_array_equal(result, [[2, 2, 101, 101], [0, 0, 103, 103]])


@pytest.mark.parametrize(
    ("widths", "expected"),
    [((1, 2, 1), [2, 101, 101, 204]), ((1, 1, 2), [2, 101, 204, 204])],
    ids=["interleaved", "in order"],
)
def test_order_of_mixed_widths(widths, expected):
    layer = counting(DistributedEmbedding(tables(*zip((3, 4, 5), widths, strict=True))))
    result = layer(ids([[2]], [[1]], [[4]]), concatenate=True)
    np.testing.assert_array_equal(result, [expected])


@pytest.mark.parametrize("second", [[[3, 1]], [[3]]], ids=["equal hotness", "mixed hotness"])
def test_sums_of_several_ids(second):
    layer = counting(layer_of((3, 2), (4, 2)))
    result = layer(ids([[2, 1]], second), concatenate=True)
    expected = sum(100 + i for i in second[0])
    np.testing.assert_array_equal(result, [[3, 3, expected, expected]])


def test_empty_batch():
    layer = layer_of((3, 2), (4, 2))
    empty = ids(np.zeros([0, 1]), np.zeros([0, 1]))
    assert layer(empty, concatenate=True).shape == (0, 4)
    assert [output.shape for output in layer(empty)] == [(0, 2), (0, 2)]


@pytest.mark.parametrize(("policy", "row"), [("mixed_float16", 2049), ("mixed_bfloat16", 257)])
def test_float_ids_in_mixed_precision(policy, row):
    """Keras would cast the ids, 2049 and 257, to the compute dtype: to 2048 and 256."""
    layer = DistributedEmbedding([Embedding(4000, 1)], dtype=policy)
    (vector,) = layer([tf.constant([[float(row)]])])
    (table,) = layer.get_weights()
    np.testing.assert_allclose(float(vector[0, 0, 0]), table[row, 0], rtol=1e-2)


def test_xla_without_compiled_operations():
    layer = DistributedEmbedding(tables((3, 2), (4, 2)), use_custom_kernel=False)
    inputs = ids([[2], [0]], [[1], [3]])
    expected = layer(inputs, concatenate=True)
    compiled = tf.function(lambda *i: layer([*i], concatenate=True), jit_compile=True)
    np.testing.assert_array_equal(compiled(*inputs), expected)
    assert DistributedEmbedding.from_config(layer.get_config())._use_custom_kernel is False


def test_ids_of_two_dtypes():
    layer = counting(layer_of((3, 2), (4, 2)))
    inputs_value = (tf.constant([[2]], tf.int64), tf.constant([[1]], tf.int32))
    np.testing.assert_array_equal(layer(inputs_value, concatenate=True), [[2, 2, 101, 101]])


def uniform(name, rows, dim, seed):
    return Embedding(rows, dim, embeddings_initializer=TableUniform(seed, name), name=name)


def test_uniform_initial_values():
    layer = built([uniform("a", 10_000, 4, 7), uniform("b", 100, 4, 7)])
    first, second = layer.get_weights()
    for values in (first, second):
        limit = np.sqrt(1 / len(values))
        assert np.abs(values).max() <= limit
        assert values.std() == pytest.approx(limit / np.sqrt(3), rel=0.1)
    assert len(np.unique(first)) > 39_000


def test_initial_values_next_to_other_tables():
    (alone,) = built([uniform("b", 5000, 4, 3)]).get_weights()
    beside = built([uniform("a", 7, 4, 3), uniform("b", 5000, 4, 3)]).get_weights()
    np.testing.assert_array_equal(alone, beside[1])
    (other,) = built([uniform("b", 5000, 4, 4)]).get_weights()
    assert (alone[:9] != other[:9]).all()


@pytest.mark.parametrize(
    "initializer",
    ["zeros", "ones", "uniform", "glorot_uniform", "identity", lambda s, dtype: tf.ones(s) * 3],
)
def test_any_initializer(initializer):
    """Initializers that draw parts of a table give the distribution of the whole table."""
    shape = (5, 5) if initializer == "identity" else (5000, 3)
    (got,) = built([Embedding(*shape, embeddings_initializer=initializer)]).get_weights()
    whole = keras.initializers.get(initializer)(shape, dtype="float32")
    assert got.mean() == pytest.approx(float(tf.reduce_mean(whole)), abs=0.01)
    assert got.std() == pytest.approx(float(tf.math.reduce_std(whole)), rel=0.1)


def test_rows_of_gradient():
    layer = layer_of((3, 2), (4, 2))
    with tf.GradientTape() as tape:
        output = layer(ids([[2], [2]], [[1], [3]]), concatenate=True)
        loss = tf.reduce_sum(output * [[1.0, 2.0, 3.0, 4.0]])
    gradient = tape.gradient(loss, layer.variables[0])
    assert isinstance(gradient, tf.IndexedSlices)
    summed = sum_duplicates(gradient)
    np.testing.assert_array_equal(summed.indices, [2, 4, 6])
    np.testing.assert_array_equal(summed.values, [[2, 4], [3, 4], [3, 4]])


def test_pieces_of_tables():
    weight = TableWeight("t", (1_000_000, 128), np.dtype("f"), World(), (), ())
    runs = list(weight.pieces())
    assert runs[0][0] == 0
    assert runs[-1][1] == 1_000_000
    assert all(a[1] == b[0] for a, b in itertools.pairwise(runs))
    assert all((last - first) * 512 <= 64 * 2**20 for first, last in runs)


def test_rows_of_table_weight():
    variable = tf.Variable(tf.zeros([6, 1]))
    weight = whole_table("t", 3, variable, offset=2)
    weight.write(1, np.array([[5.0], [6.0]], "f"))
    np.testing.assert_array_equal(variable[:, 0], [0, 0, 0, 5, 6, 0])
    np.testing.assert_array_equal(weight.gather_rows(0, 3), [[0], [5], [6]])
    np.testing.assert_array_equal(weight.read(Box(1, 3, 0, 1)), [[5], [6]])


def test_output_shapes_of_keras_embedding():
    dense = tf.constant([[[1, 2], [0, 1]]])  # [1, 2, 2]
    for combiner, shape in ((None, (1, 2, 2, 3)), ("sum", (1, 2, 3)), ("mean", (1, 2, 3))):
        layer = DistributedEmbedding([Embedding(4, 3, combiner=combiner)])
        assert layer([dense])[0].shape == shape
    layer = DistributedEmbedding([keras.layers.Embedding(4, 3)])
    assert layer([tf.constant([1, 2])])[0].shape == (2, 3)
    assert layer(tf.constant([1, 2]))[0].shape == (2, 3)


def test_ragged_and_sparse_ids_by_hand():
    ragged = tf.ragged.constant([[2, 0], [], [1]])
    sparse = tf.SparseTensor([[0, 3], [0, 9], [2, 0]], [2, 0, 1], [3, 10])
    for ids_ in (ragged, sparse):
        (total,) = counting(layer_of((3, 1)))([ids_])
        np.testing.assert_array_equal(total, [[2], [0], [1]])
        (mean,) = counting(layer_of((3, 1), combiner="mean"))([ids_])
        np.testing.assert_array_equal(mean, [[1], [0], [1]])
        (rows,) = counting(layer_of((3, 1), combiner=None))([ids_])
        assert rows.to_list() == [[[2], [0]], [], [[1]]]


def test_whole_tables_from_files(tmp_path):
    layer = built(tables((3, 2), (4, 1)))
    arrays = [np.arange(6, dtype="f").reshape(3, 2), np.ones([4, 1], "f")]
    for t, array in enumerate(arrays):
        np.save(tmp_path / f"{t}.npy", array)
    layer.set_weights([str(tmp_path / "0.npy"), tmp_path / "1.npy"], chunk=3, use_lock=True)
    for got, expected in zip(layer.get_weights(), arrays, strict=True):
        np.testing.assert_array_equal(got, expected)


def two_ranks(dim=2, **options):
    return layer_of((3, dim), world=World(0, 2), **options)


MIXED = [Embedding(3, 2), Embedding(3, 2, dtype="float16")]
SHARED = plan_of([Table("a", 3, 2), Table("b", 3, 2)], 1)
COPIED = plan_of([Table("t0", 3, 2)], 2, data_parallel_threshold=10)
RAGGED = [tf.ragged.constant([[1]])]
NESTED_SPARSE = tf.SparseTensor([[0, 0, 0]], [1], [1, 1, 1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DistributedEmbedding([keras.layers.Dense(3)]), r"embeddings\[0\].*None and None"),
        (lambda: layer_of((3, 2), exchange_dtype="int8"), "exchange_dtype.*'int8'"),
        (lambda: layer_of((3, 2), plan=COPIED), "plan is of 1 tables on 2 ranks"),
        (lambda: layer_of((3, 2), strategy="best"), "strategy"),
        (lambda: layer_of((3, 2)).get_weights(), "no weights"),
        (lambda: built(tables((3, 2))).set_weights([]), "set_weights got 0"),
        (lambda: built(tables((3, 2))).set_weights([np.zeros([3, 3])]), r"t0 .*got \[3, 3\]"),
        (lambda: layer_of((3, 2))([tf.constant([1])]), r"feature 0 \(t0\).*'sum'"),
        (lambda: layer_of((3, 2))([tf.constant(1)]), r"ids must be .*got \(\)"),
        (lambda: layer_of((3, 2))([tf.ragged.constant([[[1]]])]), "nested"),
        (lambda: layer_of((3, 2))([NESTED_SPARSE]), "sparse ids"),
        (lambda: layer_of((3, 2), (4, 2))(ids([[0]])), "2 features, got 1"),
        (lambda: layer_of((3, 2), (3, 2))(ids([[1], [2]], [[1]])), "feature 0 has 2 and feature 1"),
        (lambda: built(MIXED, plan=SHARED), "differ in dtype"),
        (lambda: two_ranks(dp_input=False)(ids([[1], [2], [0]])), "feature 0 .*2 ranks"),
        (lambda: two_ranks(dp_input=False, plan=COPIED), "dp_input=True"),
        (lambda: two_ranks(dp_input=False, strategy="basic", dim=1), r"ranks \[1\] hold no table"),
        (lambda: layer_of((3, 2), combiner=None)(RAGGED, concatenate=True), "feature 0 is ragged"),
    ],
)
def test_misuse_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("wrong", [-1, 3])
def test_id_outside_its_table(wrong):
    layer = layer_of((3, 2), (4, 2))
    with pytest.raises(tf.errors.InvalidArgumentError, match="not in .0, rows of its table"):
        layer(ids([[wrong]], [[0]]))


def test_unknown_hotness():
    """[batch, None] in a tf.function, with a combiner only."""
    layer = counting(layer_of((3, 1)))
    spec = [tf.TensorSpec([None, None], tf.int32)]
    (result,) = tf.function(lambda x: layer([x]), input_signature=spec)(tf.constant([[1, 2]]))
    np.testing.assert_array_equal(result, [[3]])
    layer = DistributedEmbedding(tables((3, 1), combiner=None))
    with pytest.raises(
        ValueError, match="need a static shape above 0 after the batch, or a combiner"
    ):
        tf.function(lambda x: layer([x]), input_signature=spec)(tf.constant([[1, 2]]))


@pytest.mark.long  # 5 GiB of memory
def test_a_table_of_more_than_2_to_the_31_elements():
    rows, dim = 2**31 // 128 + 1000, 128
    table = Embedding(rows, dim, embeddings_initializer="zeros", combiner="sum", dtype="float16")
    layer = built([table, Embedding(5, dim, combiner="sum", dtype="float16")])
    weight, other = layer.table_weights()
    weight.write(rows - 1, np.full([1, dim], 3.0, np.float16))
    other.write(0, np.full([5, dim], 7.0, np.float16))
    last = tf.constant([[rows - 1]])
    with tf.GradientTape() as tape:
        first, second = layer([last, tf.constant([[4]])])
        loss = tf.reduce_sum(first)
    assert float(first[0, 0]) == 3 and float(second[0, 0]) == 7
    (variable,) = layer.trainable_variables
    assert variable.shape.num_elements() > 2**31
    gradient = tape.gradient(loss, variable)
    variable.scatter_sub(tf.IndexedSlices(gradient.values, gradient.indices))
    np.testing.assert_array_equal(weight.gather_rows(rows - 2, rows)[:, 0], [0, 2])


def test_bitwise_equal_row_means():
    """A checkpoint stores the state of one holder of a row and restores it on all holders."""
    whole = plan_of([Table("t", 500, 8)], 4, column_slice_threshold=1000)
    assert len(whole.column_slices[0]) == 4

    def means(world):
        (group,) = whole.groups(world.rank)
        stored = tf.Variable(tf.zeros([group.rows, group.dim]))
        sums = np.random.default_rng(world.rank).lognormal(0, 3, 500).astype("f")
        return RowMeans(world, whole, [stored], "means")([stored], [tf.range(500)], [sums])[
            0
        ].numpy()

    first, *others = run_threads(4, means)
    for other in others:
        np.testing.assert_array_equal(first, other)
