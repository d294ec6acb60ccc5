"""Sums in bfloat16 and float16 models: those of float32, but for the rounding of the result."""

import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.collectives import World
from distributed_embeddings.exchange.gradients import expand, sum_duplicates, sum_over_ranks
from distributed_embeddings.layers.embedding import Embedding
from distributed_embeddings.merlin.distributed_embedding import DistributedEmbedding
from distributed_embeddings.planner import Table
from embedding_testing.fake_world import TensorWorld, run_threads
from embedding_testing.plans import plan_of

from nn.sequence import gru
from nn.sequence.attention import ActivationUnit, add_to_each
from nn.sequence.gru import GRU

DTYPES = ("bfloat16", "float16")
ROUNDING = {"bfloat16": 2**-8, "float16": 2**-11}  # relative, of one value
REPEATS = 8192


def positive(*shape, seed=0):
    return np.random.default_rng(seed).uniform(0.5, 1, shape).astype(np.float32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_ids", [1000, 5000])
@pytest.mark.parametrize("combiner", ["sum", "mean"])
@pytest.mark.parametrize("form", ["fixed", "ragged"])
@pytest.mark.parametrize("kind", ["Embedding", "DistributedEmbedding"])
def test_pooling_of_many_ids(kind, form, combiner, num_ids, dtype):
    table = positive(50, 4)
    ids = np.random.default_rng(1).integers(0, 50, [2, num_ids])
    expected = getattr(table[ids].astype(np.float64), combiner)(axis=1)
    policy = f"mixed_{dtype}"
    layer = Embedding(50, 4, combiner=combiner, name="t", dtype=policy)
    layer.build()
    layer.embeddings.assign(table)
    features = tf.constant(ids)
    if form == "ragged":
        features = tf.RaggedTensor.from_tensor(features)
    if kind == "DistributedEmbedding":
        single = layer
        layer = DistributedEmbedding([single], world=World(), dtype=policy)
        layer.build()
        layer.set_weights([table])
        (pooled,) = layer([features])
    else:
        pooled = layer(features)
    assert pooled.dtype == dtype
    np.testing.assert_allclose(pooled.numpy().astype("f"), expected, rtol=ROUNDING[dtype])


PLACEMENTS = {
    "tables": {"strategy": "basic"},
    "columns": {"strategy": "memory_balanced", "column_slice_threshold": 12},
    "rows": {"row_slice_threshold": 1},
    "copies": {"data_parallel_threshold": 1000},
}


def repeated_gradient(world, whole, dtype, ids):
    """Gradient [3, 8] of the table for this rank's ids, of the mean of all its ranks' outputs."""
    policy = f"mixed_{dtype}"
    layer = DistributedEmbedding(
        [Embedding(9, 8, combiner="sum", name="t", dtype=policy), Embedding(9, 8, name="u")],
        input_table_map=[0, 0],
        plan=whole,
        world=world,
        dtype=policy,
    )
    layer.build()
    layer.set_weights([np.zeros([9, 8], "f"), np.zeros([9, 8], "f")])
    variables = layer.trainable_variables
    with tf.GradientTape() as tape:
        outputs = layer([ids[:, tf.newaxis], ids[:, tf.newaxis]])
        # 3 * 2**-15: exact in 16 bits, the sums over the ranks' samples are not.
        loss = tf.add_n([tf.reduce_sum(tf.cast(output, tf.float32)) for output in outputs])
        loss *= 3 / 2**15
    gradients = tape.gradient(loss, variables)
    gradients = sum_over_ranks(world, gradients, variables, "gradients")
    for variable, gradient in zip(variables, gradients, strict=True):
        if isinstance(gradient, tf.IndexedSlices):
            variable.scatter_sub(gradient)
        elif gradient is not None:
            variable.assign_sub(gradient)
    return -layer.get_weights(all_ranks=True)[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_gradient_of_a_repeated_id(placement, size, dtype):
    """Each sample adds 2 * 3 / 2**15 to the row of its id; id 4 occurs 8,192 times."""
    if size == 1 and placement != "tables":
        pytest.skip("one rank has one placement")
    tables = [Table("t", 9, 8), Table("u", 9, 8)]
    whole = plan_of(
        tables,
        size,
        input_table_map=[0, 0],
        hotness=[1, 1],
        combined=[True, True],
        **PLACEMENTS[placement],
    )
    ids = np.array([4] * REPEATS + [1] * 300)
    np.random.default_rng(0).shuffle(ids)

    def run(world):
        mine = tf.constant(np.array_split(ids, size)[world.rank])
        return repeated_gradient(TensorWorld(world) if size > 1 else world, whole, dtype, mine)

    expected = np.zeros([9, 8])
    expected[4], expected[1] = REPEATS * 6 / 2**15, 300 * 6 / 2**15
    for gradient in run_threads(size, run) if size > 1 else [run(World())]:
        assert not isinstance(gradient, ValueError), gradient
        np.testing.assert_allclose(gradient, expected, rtol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_duplicates_of_a_table_in_16_bits(dtype):
    values = tf.cast(positive(REPEATS, 4), dtype)
    gradient = sum_duplicates(tf.IndexedSlices(values, tf.zeros([REPEATS], tf.int32), [9, 4]))
    expected = values.numpy().astype(np.float64).sum(axis=0)
    assert gradient.values.dtype == dtype
    np.testing.assert_allclose(
        gradient.values.numpy().astype("f")[0], expected, rtol=ROUNDING[dtype]
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_of_a_spread_vector(dtype):
    """The distinct users and items of NCF, of which one is in every row."""
    upstream = tf.cast(positive(REPEATS, 4), dtype)
    vectors = tf.zeros([2, 4], dtype)
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        rows = expand(vectors, tf.ones([REPEATS], tf.int32))
    gradient = tape.gradient(rows, vectors, output_gradients=upstream)
    expected = upstream.numpy().astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(gradient.numpy().astype("f")[1], expected, rtol=ROUNDING[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_of_a_vector_added_to_each_row(dtype):
    fixed, rows = tf.zeros([2, 3], dtype), tf.zeros([2, 3000, 3], dtype)
    upstream = tf.cast(positive(2, 3000, 3), dtype)
    with tf.GradientTape() as tape:
        tape.watch(fixed)
        added = add_to_each(fixed, rows)
    gradient = tape.gradient(added, fixed, output_gradients=upstream)
    expected = upstream.numpy().astype(np.float64).sum(axis=1)
    np.testing.assert_allclose(gradient.numpy().astype("f"), expected, rtol=ROUNDING[dtype])


def weight_gradients(make, dtype, *inputs):
    """Gradients of the sum of a layer's outputs."""
    layer = make(dtype)
    inputs = [tf.constant(x) for x in inputs]

    @tf.function(autograph=False)
    def gradients():
        cast = [x if x.dtype == tf.bool else tf.cast(x, layer.compute_dtype) for x in inputs]
        with tf.GradientTape() as tape:
            outputs = layer(*cast)
            # Scaled, so that float16 has no subnormal gradients.
            loss = 1024 * tf.reduce_mean(tf.cast(outputs, tf.float32))
        return tape.gradient(loss, layer.trainable_variables)

    gradients()  # builds the layer
    return [gradient.numpy() for gradient in gradients()]


LAYERS = {
    "activation unit": (
        lambda dtype: ActivationUnit(seed=1, name="unit", dim=6, dtype=dtype),
        (positive(2000, 4), positive(2000, 5, 4, seed=1), np.ones([2000, 5], bool)),
    ),
    "looped GRU, many samples": (
        lambda dtype: GRU(3, seed=1, name="gru", dtype=dtype),
        (positive(5000, 5, 4) / 8, np.ones([5000, 5], bool)),
    ),
    "looped GRU, many steps": (
        lambda dtype: GRU(3, seed=1, name="gru", dtype=dtype),
        (positive(4, 400, 4) / 8, np.ones([4, 400], bool)),
    ),
}


@pytest.mark.quick("activation unit")
@pytest.mark.parametrize("kind", LAYERS)
def test_gradients_of_weights_in_bfloat16(kind, monkeypatch):
    """TensorFlow's products of float16 on a CPU are themselves sums in float16."""
    monkeypatch.setattr(gru, "MOST_UNROLLED", 0)
    make, inputs = LAYERS[kind]
    wanted = weight_gradients(make, "float32", *inputs)
    low = weight_gradients(make, "mixed_bfloat16", *inputs)
    for gradient, expected in zip(low, wanted, strict=True):
        error = np.linalg.norm(gradient - expected) / np.linalg.norm(expected)
        assert error < 8 * ROUNDING["bfloat16"]
