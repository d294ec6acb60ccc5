"""Names, arguments and behaviour of the original library, see docs/original_api.md."""

import importlib
import inspect
import re
from pathlib import Path

import distributed_embeddings as dmp
import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.collectives import World
from distributed_embeddings.keras import keras
from distributed_embeddings.layers.embedding import Embedding
from distributed_embeddings.merlin.distributed_embedding import DistributedEmbedding
from distributed_embeddings.python.layers import dist_model_parallel
from distributed_embeddings.python.ops.embedding_lookup_ops import (
    embedding_lookup,
    integer_lookup,
    read_var_no_copy,
)
from embedding_testing.fake_world import run_threads

PAGE = Path(__file__).parent.parent / "docs" / "original_api.md"
TABLE = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


EXAMPLES = {
    "strategy": lambda: strategy([(3, 2)], 1),
    "layer": lambda: DistributedEmbedding([Embedding(3, 2)]),
    "lookup": lambda: dmp.IntegerLookup(3),
}


def rows_of_page() -> list[tuple[str, list[str]]]:
    """(dotted name, arguments) of every row that is not marked as not provided."""
    rows = []
    for line in PAGE.read_text().splitlines():
        match = re.match(r"\| `([\w.]+)(?:\((.*)\))?` \| (\w+)", line)
        if match and match[3] != "no":
            rows.append((match[1], re.findall(r"(?:^|, )\*{0,2}(\w+)", match[2] or "")))
    return rows


def resolve(name: str):
    """Imports the longest module of a dotted name; the rest are its attributes."""
    parts = name.split(".")
    if parts[0] in EXAMPLES:
        return getattr(EXAMPLES[parts[0]](), parts[1])
    for end in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            value = getattr(value, part)
        return value
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize(("name", "arguments"), rows_of_page())
def test_name_of_the_page(name, arguments):
    value = resolve(name)
    if arguments:
        parameters = inspect.signature(value).parameters
        assert [p for p in arguments if p not in parameters] == []


def test_page_has_the_names_of_the_package():
    names = [name for name, _ in rows_of_page()]
    assert len(names) > 50
    # The original has the first in its module only, and not the others.
    others = {"ConcatOneHotEmbedding", "LazyAdam", "RowWiseAdagrad", "keep_freed_memory"}
    for name in dmp.__all__:
        if name not in others:
            assert f"distributed_embeddings.{name}" in names


def test_tests_of_the_page():
    """Every test that the page names exists."""
    tests = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    folders = (PAGE.parent.parent / "tests", PAGE.parents[2] / "tests" / "ranks")
    text = "".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    assert {name for name in tests if f"def {name}(" not in text} == set()


def test_one_object_under_all_paths():
    assert dmp.dist_model_parallel is dist_model_parallel
    for name in dist_model_parallel.__all__:
        if name != "read_var_no_copy":
            assert getattr(dist_model_parallel, name) is getattr(dmp, name)


def test_embedding_lookup():
    ids = tf.constant([[0, 2], [1, 1]])
    np.testing.assert_array_equal(embedding_lookup(TABLE, ids, "sum"), [[6, 8], [6, 8]])
    np.testing.assert_array_equal(embedding_lookup(TABLE, ids), tf.gather(TABLE, ids))
    variable, ragged = tf.Variable(TABLE), tf.ragged.constant([[0, 2], [], [1]])
    with tf.GradientTape() as tape:
        total = embedding_lookup(variable, ragged, combiner="sum")
    np.testing.assert_array_equal(total, [[6, 8], [0, 0], [3, 4]])
    gradient = tape.gradient(total, variable)
    assert isinstance(gradient, tf.IndexedSlices)
    np.testing.assert_array_equal(tf.convert_to_tensor(gradient), [[1, 1]] * 3)
    sparse = tf.SparseTensor([[0, 1], [0, 5], [2, 0]], [0, 2, 1], [3, 9])
    mean = tf.function(embedding_lookup)(TABLE, sparse, "mean")
    np.testing.assert_array_equal(mean, [[3, 4], [0, 0], [3, 4]])
    assert embedding_lookup(TABLE, ragged).to_list() == [[[1, 2], [5, 6]], [], [[3, 4]]]


@pytest.mark.parametrize(
    ("error", "arguments", "message"),
    [
        (TypeError, ([[1.0]], tf.constant([[0]])), "must be a tensor or variable, got list"),
        (ValueError, (TABLE, tf.constant([0])), r"must be 2-D, \[batch, hotness\]; got \(1,\)"),
        (ValueError, (TABLE, tf.constant([[0]]), "max"), "expected None, 'sum' or 'mean'"),
        (ValueError, (TABLE, tf.sparse.eye(2)), "sparse ids need a combiner"),
    ],
)
def test_errors_of_lookup(error, arguments, message):
    with pytest.raises(error, match=message):
        embedding_lookup(*arguments)


def test_value_of_a_variable():
    variable = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        value = read_var_no_copy(variable)
    assert value.numpy().tolist() == [1, 2]
    assert tape.gradient(value, variable).numpy().tolist() == [1, 1]


@pytest.mark.parametrize("compiled", [False, True])
def test_integer_lookup(compiled):
    table = tf.Variable(tf.zeros([2 * 6], tf.int64))
    count = tf.Variable(tf.constant([1, 0, 0, 0], tf.uint32))
    run = tf.function(integer_lookup) if compiled else integer_lookup
    results = [
        run(table, count, tf.constant(keys, tf.int64), 4).numpy().tolist()
        for keys in ([[70, 20]], [[20, 0]], [[5, 70]])
    ]
    assert results == [[[1, 2]], [[2, 3]], [[0, 1]]]
    assert count.numpy().tolist() == [2, 2, 2, 1]


def test_custom_kernel_in_configs():
    assert Embedding(3, 2).use_custom_kernel is True
    layer = Embedding(3, 2, combiner="sum", use_custom_kernel=False)
    config = layer.get_config()
    assert config["use_custom_kernel"] is False
    assert Embedding.from_config(config).use_custom_kernel is False
    del config["use_custom_kernel"]  # as older versions saved it
    assert Embedding.from_config(config).use_custom_kernel is True


def strategy(sizes, world_size, **options):
    layers = [keras.layers.Embedding(*size, name=f"t{t}") for t, size in enumerate(sizes)]
    return dmp.DistEmbeddingStrategy(layers, world_size, **options)


def test_strategy_class():
    got = strategy(
        [(2, 4), (20, 4), (10, 8), (91, 4), (12, 4)], 2, strategy="memory_balanced",
        input_table_map=[1, 0, 4, 3, 2, 1], data_parallel_threshold=8, row_slice_threshold=300,
        column_slice_threshold=79, gpu_embedding_size=40,
    )  # fmt: skip
    assert got.strategy == "memory_balanced" and got.table_groups == [[0], [1, 2, 4], [3]]
    assert got.column_slice_threshold == 79 and got.row_slice_threshold == 300
    assert got.data_parallel_threshold == 8 and got.gpu_embedding_size == 40
    assert [c["input_dim"] for c in got.global_configs] == [2, 20, 10, 91, 12]
    assert {c["layer_type"] for c in got.global_configs} == {keras.layers.Embedding}
    assert [(c["name"], c["input_dim"]) for c in got.dp_configs] == [("t0", 2)]
    assert [[c["input_dim"] for c in rank] for rank in got.row_sliced_configs] == [[46], [45]]
    assert got.row_inputs_offsets == [[0], [-46]]
    for configs, offsets in zip(got.local_configs, got.local_weight_offsets, strict=True):
        assert [c["input_dim"] for c in configs] == [bounds[-1] for bounds in offsets]
        assert any(c["cpu_offload"] for c in configs)


def test_strategy_of_a_layer():
    tables = [Embedding(8, 2), Embedding(4, 2)]
    layer = DistributedEmbedding(tables, world=World(1, 2), column_slice_threshold=9)
    got = layer.strategy
    assert isinstance(got, dmp.DistEmbeddingStrategy) and got.plan is layer.plan
    alone = dmp.DistEmbeddingStrategy(tables, 2, column_slice_threshold=9)
    assert alone.table_ids == got.table_ids and alone.plan == got.plan
    assert strategy([(3, 2)], 1, strategy="memory_balanced").strategy == "basic"
    with pytest.raises(ValueError, match="strategy is one of"):
        strategy([(3, 2)], 2, strategy="best")


def test_one_variable_for_eight_tables():
    def weights(world):
        sizes = [(10, 2), (11, 2), (4, 2), (4, 2)] * 2
        layers = [keras.layers.Embedding(*size) for size in sizes]
        layer = DistributedEmbedding(
            layers, strategy="memory_balanced", dp_input=False, world=world
        )
        layer.build(None)
        return [tuple(v.shape) for v in layer.weights]

    assert run_threads(2, weights) == [[(29, 2)], [(29, 2)]]


MIXED = {
    "strategy": "memory_balanced",
    "data_parallel_threshold": 8,
    "row_slice_threshold": 90,
    "column_slice_threshold": 40,
}
SIZES = [(2, 4), (20, 4), (7, 4), (31, 3), (5, 4)]


def test_layers_and_slices_of_all_kinds():
    whole = [np.random.default_rng(t).normal(size=s).astype("f") for t, s in enumerate(SIZES)]

    def check(world):
        layer = DistributedEmbedding(
            [Embedding(*size, combiner="sum") for size in SIZES], world=world, **MIXED
        )
        unbuilt = [len(layer.dp_layers), len(layer.local_embedding_layers), len(layer.row_layers)]
        layer.build(None)
        layer.set_weights(whole)
        kinds = [layer.dp_layers, layer.local_embedding_layers, layer.row_layers]
        assert [len(layers) for layers in kinds] == unbuilt
        parts = [of_kind.weights[0] for layers in kinds for of_kind in layers]
        assert {v.ref() for v in parts} == {v.ref() for v in layer.weights}
        _, tables, rows = layer.strategy.table_groups
        own = layer.set_col_slice_weights([whole[t] for t in tables])
        for value, of_kind in zip(own, kinds[1], strict=True):
            np.testing.assert_array_equal(value, of_kind.embeddings)
        runs = layer.set_row_slice_weights([whole[t] for t in rows])
        for value, of_kind in zip(runs, kinds[2], strict=True):
            np.testing.assert_array_equal(value, of_kind.get_weights()[0])
        for t, value in zip(rows, layer.get_row_sliced_weights(runs), strict=True):
            np.testing.assert_array_equal(value, whole[t])
        everywhere = layer.get_col_sliced_weights(own, all_ranks=True)
        for t, value in zip(tables, everywhere, strict=True):
            np.testing.assert_array_equal(value, whole[t])
        with pytest.raises(ValueError, match="expected 3 table_parallel tables, got 0"):
            layer.set_col_slice_weights([])
        with pytest.raises(ValueError, match="row_sliced variables, got 0"):
            layer.get_row_sliced_weights([])
        return len(layer.get_col_sliced_weights(own))

    assert run_threads(2, check) == [3, 0]


def test_lookup_in_a_layer_of_the_rank():
    layer = DistributedEmbedding([Embedding(3, 2), Embedding(4, 2)])
    layer.build(None)
    (table,) = layer.local_embedding_layers
    offset = layer.strategy.local_weight_offsets[0][0][1]
    np.testing.assert_array_equal(table(tf.constant([offset])), layer.get_weights()[1][:1])


def test_thresholds_with_model_parallel_input():
    options = {"row_slice_threshold": 5, "data_parallel_threshold": 1}
    with pytest.warns(UserWarning, match="are ignored with dp_input=False") as caught:
        layer = DistributedEmbedding(
            [Embedding(4, 2), Embedding(4, 2)], dp_input=False, world=World(0, 2), **options
        )
    assert len(caught) == 1
    assert layer.row_slice_threshold is None and layer.data_parallel_threshold is None
    assert layer.strategy.table_groups == [[], [0, 1], []]


class Model(keras.Model):
    """Tables and a dense layer, as the original's examples have them."""

    def __init__(self):
        super().__init__()
        tables = [Embedding(9, 4, combiner="sum"), keras.layers.Embedding(5, 3)]
        self.tables = dmp.DistributedEmbedding(tables)
        self.dense = keras.layers.Dense(1)

    def call(self, inputs):
        return self.dense(tf.concat(self.tables(inputs), axis=1))


BATCH = [np.array([[1, 2], [3, 3], [0, 8], [4, 1]]), np.array([0, 1, 2, 4])]


@pytest.mark.parametrize(
    ("eager", "file"), [(False, "model.weights.h5"), (False, "old.h5"), (True, "checkpoint")]
)
def test_fit_and_weights(tmp_path, eager, file):
    model = Model()
    optimizer = dmp.DistributedOptimizer(keras.optimizers.Adagrad(0.5))
    model.compile(optimizer, "mse", run_eagerly=eager)
    callback = dmp.BroadcastGlobalVariablesCallback(0)
    history = model.fit(BATCH, np.ones(4), epochs=5, verbose=0, callbacks=[callback]).history
    assert callback.broadcast_done and history["loss"][-1] < history["loss"][0]
    model.save_weights(tmp_path / file)
    other = Model()
    other(BATCH)
    other.load_weights(tmp_path / file)
    np.testing.assert_array_equal(other(BATCH), model(BATCH))


def test_checkpoint_read_before_the_first_call(tmp_path):
    model, other = Model(), Model()
    outputs = model(BATCH)
    tf.train.Checkpoint(model).write(tmp_path / "checkpoint")
    status = tf.train.Checkpoint(other).read(tmp_path / "checkpoint")
    np.testing.assert_array_equal(other(BATCH), outputs)
    status.assert_consumed()


@pytest.mark.parametrize("file", ["model.keras", "model.h5", "folder"])
def test_saved_models(tmp_path, file):
    tables = [
        Embedding(9, 4, combiner="sum", use_custom_kernel=False),
        keras.layers.Embedding(5, 3),
    ]
    inputs = [keras.Input([2], dtype="int64"), keras.Input([], dtype="int64")]
    outputs = dmp.DistributedEmbedding(tables, name="tables")(inputs)
    model = keras.Model(inputs, keras.layers.Concatenate()(outputs))
    model.save(tmp_path / file)
    loaded = keras.models.load_model(tmp_path / file)
    assert isinstance(loaded.get_layer("tables"), DistributedEmbedding)
    np.testing.assert_array_equal(loaded(BATCH), model(BATCH))


def test_config_of_distributed_embedding():
    arguments = {
        "strategy": "memory_optimized",
        "column_slice_threshold": 20,
        "row_slice_threshold": 30,
        "dp_input": True,
        "input_table_map": [1, 0, 1],
        "data_parallel_threshold": 3,
        "gpu_embedding_size": 12,
        "exchange_dtype": "float16",
        "check_ids": False,
    }
    tables = [Embedding(9, 4, combiner="mean"), keras.layers.Embedding(5, 3, name="b")]
    layer = DistributedEmbedding(tables, name="tables", **arguments)
    config = layer.get_config()
    assert {name: config[name] for name in arguments} == arguments
    again = DistributedEmbedding.from_config(config)
    assert again.get_config() == config and again.plan == layer.plan
    planned = DistributedEmbedding(tables, plan=layer.plan)
    with pytest.raises(NotImplementedError, match="made from a plan, which has no config"):
        planned.get_config()
