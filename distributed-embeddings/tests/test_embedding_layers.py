"""Embedding and ConcatOneHotEmbedding, by hand on a table of three rows."""

import platform
from pathlib import Path

import distributed_embeddings as dmp
import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.keras import keras
from distributed_embeddings.ops import kernels
from distributed_embeddings.ops.embedding_bag import filled

pytestmark = pytest.mark.usefixtures("operations")

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
TABLE = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)
RAGGED = [[1, 2, 2], [], [0], []]  # ends with a sample without ids
SUMS = [[13.0, 16.0], [0.0, 0.0], [1.0, 2.0], [0.0, 0.0]]
MEANS = [[13 / 3, 16 / 3], [0.0, 0.0], [1.0, 2.0], [0.0, 0.0]]


def embedding(combiner=None, **kwargs) -> dmp.Embedding:
    layer = dmp.Embedding(3, 2, combiner=combiner, **kwargs)
    layer.build()
    layer.set_weights([TABLE])
    return layer


def sparse(ids) -> tf.SparseTensor:
    """Sparse ids whose columns have gaps."""
    places = [[r, 2 * c + r % 2] for r, row in enumerate(ids) for c in range(len(row))]
    values = [i for row in ids for i in row]
    return tf.SparseTensor(places, tf.constant(values, tf.int64), [len(ids), 9])


def ragged(ids, dtype=tf.int64) -> tf.RaggedTensor:
    return tf.ragged.constant(ids, dtype, ragged_rank=1)


@pytest.fixture(params=[False, True], ids=["eager", "graph"])
def call(request):
    """Calls a layer, in eager mode or in a `tf.function` that does not know the batch size."""

    def run(layer, ids):
        if not request.param:
            return layer(ids)
        if isinstance(ids, tf.RaggedTensor):
            spec = tf.RaggedTensorSpec([None, None], ids.dtype)
        elif isinstance(ids, tf.SparseTensor):
            spec = tf.SparseTensorSpec([None, None], ids.dtype)
        else:
            spec = tf.TensorSpec([None, *ids.shape[1:]], ids.dtype)
        return tf.function(layer.__call__, input_signature=[spec])(ids)

    return run


@pytest.mark.parametrize(
    ("combiner", "ids", "expected"),
    [
        (None, [0, 1, 0], [[1, 2], [3, 4], [1, 2]]),
        (None, [[0, 1], [2, 0]], [[[1, 2], [3, 4]], [[5, 6], [1, 2]]]),
        (None, [[[2], [1]]], [[[[5, 6]], [[3, 4]]]]),
        ("sum", [[0, 1], [2, 0]], [[4, 6], [6, 8]]),
        ("mean", [[0, 1], [2, 0]], [[2, 3], [3, 4]]),
        ("sum", [[2], [1]], [[5, 6], [3, 4]]),
        ("mean", [[[0, 1], [2, 0], [1, 2]]], [[[2, 3], [3, 4], [4, 5]]]),
        ("sum", [[1, 1, 1]], [[9, 12]]),
        (None, np.zeros([0, 2]), np.zeros([0, 2, 2])),
        ("sum", np.zeros([0, 2]), np.zeros([0, 2])),
        ("mean", np.zeros([0, 2]), np.zeros([0, 2])),
    ],
)
def test_dense_ids(call, combiner, ids, expected):
    output = call(embedding(combiner), tf.constant(ids, tf.int64))
    assert output.dtype == tf.float32
    assert output.shape == np.shape(expected)
    np.testing.assert_allclose(output, expected)


@pytest.mark.parametrize("make", [ragged, sparse])
@pytest.mark.parametrize(("combiner", "expected"), [("sum", SUMS), ("mean", MEANS)])
def test_ragged_and_sparse_ids(call, make, combiner, expected):
    output = call(embedding(combiner), make(RAGGED))
    np.testing.assert_allclose(output, expected, rtol=1e-6)


@pytest.mark.parametrize("combiner", ["sum", "mean"])
@pytest.mark.parametrize("num_rows", [0, 1, 3])
def test_batches_without_ids(call, combiner, num_rows):
    empty = tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int32), [0] * num_rows)
    output = call(embedding(combiner), empty)
    np.testing.assert_array_equal(output, np.zeros([num_rows, 2]))


def test_ragged_ids_without_combiner(call):
    output = call(embedding(), ragged(RAGGED))
    assert isinstance(output, tf.RaggedTensor)
    assert output.to_list() == [[[3, 4], [5, 6], [5, 6]], [], [[1, 2]], []]


@pytest.mark.parametrize("ids_dtype", [tf.float32, tf.uint8, tf.int16, tf.float64])
def test_ids_of_other_dtypes(ids_dtype):
    np.testing.assert_array_equal(embedding()(tf.constant([2, 0], ids_dtype)), [[5, 6], [1, 2]])
    by_row = tf.ragged.constant([[2, 0], [1]], ids_dtype)
    np.testing.assert_array_equal(embedding("sum")(by_row), [[6, 8], [3, 4]])


@pytest.mark.parametrize(
    ("policy", "table_dtype", "output_dtype"),
    [
        ("float32", tf.float32, tf.float32),
        ("float64", tf.float64, tf.float64),
        ("float16", tf.float16, tf.float16),
        ("bfloat16", tf.bfloat16, tf.bfloat16),
        ("mixed_float16", tf.float32, tf.float16),
        ("mixed_bfloat16", tf.float32, tf.bfloat16),
    ],
)
@pytest.mark.parametrize("combiner", [None, "sum", "mean"])
def test_dtypes(policy, table_dtype, output_dtype, combiner):
    layer = embedding(combiner, dtype=policy)
    assert layer.embeddings.dtype == table_dtype
    forms = [(tf.constant([[1, 2]]), [3.0, 4.0, 5.0, 6.0])]
    if combiner:
        expected = [8.0, 10.0] if combiner == "sum" else [4.0, 5.0]
        forms = [(form, expected) for form in (forms[0][0], ragged([[1, 2]]), sparse([[1, 2]]))]
    for ids, expected in forms:
        with tf.GradientTape() as tape:
            output = layer(ids)
        assert output.dtype == output_dtype
        assert tf.reshape(output, [-1]).numpy().tolist() == expected
        gradient = tape.gradient(output, layer.embeddings)
        assert isinstance(gradient, tf.IndexedSlices) and gradient.values.dtype == table_dtype


@pytest.mark.parametrize(
    ("combiner", "ids", "expected"),
    [
        (None, tf.constant([[0, 2, 0]]), [[2, 2], [0, 0], [1, 1]]),
        ("sum", tf.constant([[0, 2, 0]]), [[2, 2], [0, 0], [1, 1]]),
        ("mean", tf.constant([[0, 2, 0, 1]]), [[0.5, 0.5], [0.25, 0.25], [0.25, 0.25]]),
        ("sum", ragged([[], [0, 2, 0]]), [[2, 2], [0, 0], [1, 1]]),
        ("mean", ragged([[1], [], [0, 2]]), [[0.5, 0.5], [1, 1], [0.5, 0.5]]),
        ("mean", sparse([[1], [], [0, 2]]), [[0.5, 0.5], [1, 1], [0.5, 0.5]]),
    ],
    ids=["none", "dense sum", "dense mean", "ragged sum", "ragged mean", "sparse mean"],
)
def test_rows_of_gradients(combiner, ids, expected):
    layer = embedding(combiner)

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            output = tf.reduce_sum(layer(ids))
        return tape.gradient(output, layer.embeddings)

    actual = gradient()
    assert isinstance(actual, tf.IndexedSlices)
    np.testing.assert_allclose(tf.convert_to_tensor(actual), expected)


def test_initial_values_of_keras():
    layer = dmp.Embedding(1000, 4)
    layer.build()
    values = layer.embeddings.numpy()
    assert np.abs(values).max() <= 0.05 and values.std() == pytest.approx(0.05 / 3**0.5, rel=0.05)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: dmp.Embedding(0, 2), "must be positive, got 0 and 2"),
        (lambda: dmp.Embedding(2, -1), "must be positive, got 2 and -1"),
        (lambda: dmp.Embedding(2, 2, combiner="max"), "'sum' or 'mean', got 'max'"),
        (lambda: embedding("sum")(tf.constant([0, 1])), "one sample, or one id a sample"),
        (lambda: embedding()(sparse([[1]])), "sparse ids need a combiner"),
        (lambda: embedding("sum")(tf.ragged.constant([[[1]], [[2, 1]]])), "nested ones are not"),
        (lambda: embedding()(tf.ragged.constant([[[1]], [[2, 1]]])), "nested ones are not"),
        (lambda: dmp.ConcatOneHotEmbedding([3, 0], 2), r"must be positive, got \[3, 0\] and 2"),
        (lambda: dmp.ConcatOneHotEmbedding([], 2), r"must be positive, got \[\] and 2"),
        (lambda: dmp.ConcatOneHotEmbedding([3, 2], 2)(tf.constant([[1]])), r"must be \[batch, 2\]"),
    ],
)
def test_errors(make, match):
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.parametrize("bad", [3, -1])
def test_id_beyond_table_on_cpu(bad):
    with tf.device("CPU:0"), pytest.raises(tf.errors.InvalidArgumentError, match="not in"):
        embedding()(tf.constant([0, bad]))


@pytest.mark.parametrize("combiner", [None, "sum"])
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("bad", [2**32 + 1, 2**63 + 1])
def test_id_beyond_32_bits(combiner, compiled, bad):
    """The id 2^32 + 1 is not row 1; unsigned ids are not cut either."""
    layer = dmp.Embedding(5, 2, combiner=combiner, use_custom_kernel=compiled)
    with pytest.raises(tf.errors.InvalidArgumentError):
        layer(tf.constant([[bad]], tf.uint64 if bad > 2**62 else tf.int64))


def test_sparse_ids_in_another_order():
    layer = dmp.Embedding(5, 2, combiner="sum")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"tf\.sparse\.reorder"):
        layer(tf.SparseTensor([[1, 0], [0, 0], [1, 1]], [1, 2, 3], [2, 4]))


def test_config_round_trip():
    layer = dmp.Embedding(
        3,
        2,
        embeddings_initializer="ones",
        embeddings_regularizer=keras.regularizers.L2(0.5),
        activity_regularizer="l1",
        embeddings_constraint="non_neg",
        combiner="mean",
        name="table",
        dtype="mixed_bfloat16",
    )
    copy = dmp.Embedding.from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()
    assert (copy.combiner, copy.name, copy.compute_dtype) == ("mean", "table", "bfloat16")
    copy.build()
    np.testing.assert_array_equal(copy.embeddings, np.ones([3, 2]))
    assert float(copy.losses[0]) == 3.0  # 0.5 * the squares of six ones
    assert isinstance(copy.embeddings.constraint, keras.constraints.NonNeg)


def test_config_of_keras_embedding():
    config = keras.layers.Embedding(3, 2, input_length=4, name="stock").get_config()
    layer = dmp.Embedding.from_config(config)
    assert (layer.input_dim, layer.output_dim, layer.name) == (3, 2, "stock")
    assert "mask_zero" in config, "the caller's config is left alone"
    with pytest.raises(ValueError, match="stock: .* got mask_zero=True"):
        dmp.Embedding.from_config({**config, "mask_zero": True})


def test_saved_model(tmp_path):
    """No custom_objects needed: the classes are registered under names that are not Keras'."""
    ids = keras.Input([2], dtype=tf.int64)
    joined = [dmp.Embedding(3, 2, combiner="sum")(ids)]
    joined.append(keras.layers.Flatten()(dmp.ConcatOneHotEmbedding([3, 3], 2)(ids)))
    model = keras.Model(ids, keras.layers.Concatenate()(joined))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    batch = tf.constant([[0, 1], [2, 2]], tf.int64)
    np.testing.assert_array_equal(loaded(batch), model(batch))


@pytest.mark.parametrize("kind", ["ragged", "sparse"])
def test_functional_model_with_weights(kind):
    ids = keras.Input([None], dtype=tf.int64, **{kind: True})
    layer = dmp.Embedding(3, 2, combiner="mean", weights=[TABLE])
    model = keras.Model(ids, layer(ids))
    batch = {"ragged": ragged, "sparse": sparse}[kind](RAGGED)
    np.testing.assert_allclose(model.predict(batch, verbose=0), MEANS, rtol=1e-6)


def test_output_shapes():
    assert dmp.Embedding(3, 2).compute_output_shape([None, 7]).as_list() == [None, 7, 2]
    pooled = dmp.Embedding(3, 2, combiner="sum")
    assert pooled.compute_output_shape([5, 4, 7]).as_list() == [5, 4, 2]


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.int16])
def test_concat_one_hot_embedding(dtype):
    layer = dmp.ConcatOneHotEmbedding([2, 3], 2)
    assert layer.params.shape == [5, 2] and layer.embedding_width == 2
    assert layer.offsets.dtype == tf.int32 and layer.offsets.numpy().tolist() == [0, 2, 5]
    layer.set_weights([np.arange(10.0).reshape(5, 2)])
    with tf.GradientTape() as tape:
        output = layer(tf.constant([[0, 0], [1, 2]], dtype))
    np.testing.assert_array_equal(output, [[[0, 1], [4, 5]], [[2, 3], [8, 9]]])
    assert tape.gradient(output, layer.params).indices.numpy().tolist() == [0, 2, 1, 4]
    assert layer(tf.zeros([0, 2], dtype)).shape == [0, 2, 2]


def test_import_without_tensorflow(run_script):
    code = (
        "import sys, distributed_embeddings as dmp, distributed_embeddings.planner; "
        "assert 'IntegerLookup' in dir(dmp); "
        "assert 'tensorflow' not in sys.modules and 'horovod' not in sys.modules"
    )
    done = run_script("-c", code)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_memory(run_script):
    code = """
import resource
import distributed_embeddings as dmp

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(b"x") * 2**27
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

assert faults() > 10_000 and faults() > 10_000
assert dmp.keep_freed_memory()
faults()
assert faults() < 1_000
"""
    done = run_script("-c", code)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not HUGE_PAGES.exists(), reason="the system has no transparent huge pages")
@pytest.mark.parametrize(("dtype", "value"), [(tf.float32, 0.1), (tf.bfloat16, 0.0)])
def test_tables_in_huge_pages(dtype, value):
    if "[never]" in HUGE_PAGES.read_text() or kernels.reason_for_fallback():
        pytest.skip("no huge pages, or no compiled operations")
    rows = 2**22 + 1
    before = advised_bytes()
    small = [filled([2**14], value, dtype) for _ in range(8)]
    assert advised_bytes() == before and len(small) == 8
    tensor = filled([rows, 8], value, dtype)
    assert advised_bytes() - before > rows * 8 * dtype.size * 0.9
    with kernels.disabled():
        expected = filled([rows, 8], value, dtype)
    assert tensor.dtype == dtype
    np.testing.assert_array_equal(tensor, expected)


def advised_bytes() -> int:
    """Returns the memory of this process that is advised to lie in huge pages."""
    total = size = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.startswith("Size:"):
            size = int(line.split()[1]) * 1024
        elif line.startswith("VmFlags:") and "hg" in line.split():
            total += size
    return total


def test_unknown_name():
    with pytest.raises(AttributeError, match="embeddings' has no attribute 'Embeding'"):
        dmp.Embeding  # noqa: B018
