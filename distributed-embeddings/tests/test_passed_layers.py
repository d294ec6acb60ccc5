"""Arguments and values of the layers that `DistributedEmbedding` takes: honored, or refused."""

import inspect

import distributed_embeddings as dmp
import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.collectives import World
from distributed_embeddings.keras import keras
from embedding_testing.fake_world import TensorWorld, run_threads

TABLE = np.arange(20, dtype="f").reshape(10, 2) / 10
IDS = np.array([[1, 2, 2], [0, 9, 3]])
HONORED = {
    "embeddings_initializer": "ones",
    "embeddings_regularizer": "l2",
    "activity_regularizer": "l2",
    "embeddings_constraint": "unit_norm",
    "input_length": 3,
    "input_shape": [3],
    "batch_input_shape": [2, 3],
    "batch_size": 2,
    "autocast": True,
    "implementation": 1,
    "trainable": False,
    "weights": [TABLE],
    "name": "cities",
}
REFUSED = {
    "mask_zero": "mask_zero=True: id 0 .* Remove it, and pass `tf.not_equal",
    "sparse": "sparse=True: remove it",
    "use_one_hot_matmul": "use_one_hot_matmul=True: remove it",
    "dynamic": "dynamic=True: remove it",
}


def trained(layer, call):
    """Outputs, losses of regularizers and weights after a step of training."""
    with tf.GradientTape() as tape:
        outputs = call(tf.constant(IDS))
        losses = list(layer.losses)
        loss = tf.reduce_sum(tf.square(outputs)) + sum(losses)
    variables = layer.trainable_variables
    if variables:
        gradients = tape.gradient(loss, variables)
        keras.optimizers.SGD(0.1).apply_gradients(zip(gradients, variables, strict=True))
    return [outputs, *losses, *layer.get_weights()]


@pytest.mark.parametrize("argument", HONORED)
def test_honored_arguments(argument):
    options = {argument: HONORED[argument]}
    if argument != "embeddings_initializer":
        options["weights"] = [TABLE]
    plain = keras.layers.Embedding(10, 2, **options)
    layer = dmp.DistributedEmbedding([keras.layers.Embedding(10, 2, **options)])
    actual = trained(layer, lambda ids: layer([ids])[0])
    for value, expected in zip(actual, trained(plain, plain), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5)


@pytest.mark.parametrize("argument", REFUSED)
def test_refused_arguments(argument):
    layer = keras.layers.Embedding(10, 2, **{argument: True})
    with pytest.raises(ValueError, match=r"embeddings\[0\] .*" + REFUSED[argument]):
        dmp.DistributedEmbedding([layer])


def test_all_arguments():
    known = {*HONORED, *REFUSED, "input_dim", "output_dim", "kwargs"}
    assert set(inspect.signature(keras.layers.Embedding).parameters) <= known


@pytest.mark.parametrize(
    ("dtype", "remedy"), [("float64", "float64"), ("mixed_bfloat16", "mixed_bfloat16")]
)
def test_dtype_of_a_layer(dtype, remedy):
    layer = keras.layers.Embedding(10, 2, dtype=dtype, weights=[TABLE])
    with pytest.raises(ValueError, match=f"pass dtype='{remedy}'"):
        dmp.DistributedEmbedding([layer])
    (output,) = dmp.DistributedEmbedding([layer], dtype=remedy)([tf.constant(IDS)])
    expected = layer(IDS)
    assert output.dtype == expected.dtype
    np.testing.assert_array_equal(output, expected)


def test_float16_table():
    (output,) = dmp.DistributedEmbedding(
        [keras.layers.Embedding(10, 2, dtype="float16", weights=[TABLE])]
    )([tf.constant([3])])
    assert output.dtype == tf.float32
    np.testing.assert_array_equal(output, TABLE[3:4].astype("float16").astype("f"))


class Shifted(keras.layers.Layer):
    """A program's own embedding: the row plus a vector."""

    def __init__(self, input_dim, output_dim, **options):
        super().__init__(**options)
        self.input_dim, self.output_dim = input_dim, output_dim

    def build(self, _):
        self.rows = self.add_weight("rows", [self.input_dim, self.output_dim])
        self.shift = self.add_weight("shift", [self.output_dim])

    def call(self, inputs):
        return tf.gather(self.rows, inputs) + self.shift

    def get_config(self):
        sizes = {"input_dim": self.input_dim, "output_dim": self.output_dim}
        return {**super().get_config(), **sizes}


SIZES = [(6, 4), (20, 4), (7, 4), (31, 3), (20, 4)]
VALUES = [np.random.default_rng(t).normal(size=size).astype("f") for t, size in enumerate(SIZES)]
SHIFT = np.array([1, 2, 3, 4], "f")
PLANS = {
    "data parallel": {"data_parallel_threshold": 1000},
    "table-wise": {"strategy": "memory_balanced"},
    "column slices": {"column_slice_threshold": 40},
    "row-wise": {"row_slice_threshold": 1},
    "all": {
        "data_parallel_threshold": 24,
        "row_slice_threshold": 90,
        "column_slice_threshold": 40,
    },
}


def passed_layers(form, own_class):
    """Layers with VALUES: as an argument, by an earlier call, or set after it."""
    layers = []
    for t, (size, value) in enumerate(zip(SIZES, VALUES, strict=True)):
        make, values = keras.layers.Embedding, [value]
        if t % 2:
            make = dmp.Embedding
        if own_class and t == 4:
            make, values = Shifted, [value, SHIFT]
        options = {"weights": values} if form != "set" else {}
        layer = make(*size, trainable=False, name=f"t{t}", **options)
        if form != "weights":
            layer(tf.constant([0]))
        if form == "set":
            layer.set_weights(values)
        layers.append(layer)
    return layers


@pytest.mark.parametrize("form", ["weights", "called", "set"])
@pytest.mark.parametrize("plan", PLANS)
def test_values_on_several_ranks(plan, form):
    """Outputs are those of the layers alone; two features share table 1."""
    own_class = "row_slice_threshold" not in PLANS[plan]
    features = [0, 1, 2, 3, 4, 1]

    def outputs(world):
        layer = dmp.DistributedEmbedding(
            passed_layers(form, own_class),
            input_table_map=features,
            world=TensorWorld(world),
            **PLANS[plan],
        )
        ids = tf.constant([[1, 5 - world.rank]])
        return layer([ids] * len(features)), len(layer.trainable_variables)

    for rank, (actual, num_trainable) in enumerate(run_threads(2, outputs)):
        assert num_trainable == 0
        for t, output in zip(features, actual, strict=True):
            expected = VALUES[t][[1, 5 - rank]] + (SHIFT if own_class and t == 4 else 0)
            np.testing.assert_array_equal(output, [expected])


def test_trainable_is_kept():
    layers = [keras.layers.Embedding(3, 2, weights=[TABLE[:3]]) for _ in range(2)]
    layers[1].trainable = False
    layer = dmp.DistributedEmbedding(layers)
    layer.build(None)
    assert [v.trainable for v in layer.variables] == [True, False]


def test_changed_after_the_constructor():
    embedding = keras.layers.Embedding(10, 2)
    layer = dmp.DistributedEmbedding([embedding])
    embedding.build(None)
    embedding.set_weights([TABLE])
    np.testing.assert_array_equal(layer([tf.constant([3])])[0], TABLE[3:4])


def test_weights_of_the_whole_layer():
    layer = dmp.DistributedEmbedding([dmp.Embedding(10, 2)], weights=[TABLE])
    np.testing.assert_array_equal(layer([tf.constant([3])])[0], TABLE[3:4])


def test_saved_model(tmp_path):
    """The config has no values, as that of Keras; the file has them."""
    ids = keras.Input([3], dtype="int64")
    layer = dmp.DistributedEmbedding([keras.layers.Embedding(10, 2, weights=[TABLE])])
    model = keras.Model(ids, layer([ids]))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(IDS), TABLE[IDS])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: [dmp.Embedding(9, 2, weights=[TABLE])], r"shape \(9, 2\), got .*\(10, 2\)"),
        (lambda: [dmp.Embedding(10, 2, weights=TABLE)], r"got an array of shape \(10, 2\)"),
        (lambda: [dmp.Embedding(10, 2, weights=[])], r"got arrays of shape \[\]"),
        (
            lambda: [dmp.Embedding(10, 2)] * 2,
            r"\[1\] is the layer embeddings\[0\].*input_table_map",
        ),
        (lambda: [Shifted(10, 2, weights=[TABLE])], r"Shifted .*expected values of shapes"),
        (lambda: [Shifted(30, 2)], "Shifted.*row slices"),
    ],
)
def test_refused_values(make, message):
    with pytest.raises(ValueError, match=message):
        dmp.DistributedEmbedding(make(), world=World(0, 2), row_slice_threshold=50).build(None)


@pytest.mark.parametrize(
    "options",
    [
        {"embeddings_constraint": "unit_norm"},
        {"embeddings_regularizer": keras.regularizers.OrthogonalRegularizer()},
    ],
)
def test_column_slices_of_whole_rows(options):
    layer = dmp.Embedding(10, 2, **options)
    with pytest.raises(ValueError, match="does not hold for column slices: raise the threshold"):
        dmp.DistributedEmbedding([layer], world=World(0, 2), column_slice_threshold=10)
