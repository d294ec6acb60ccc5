import numpy as np
import pytest
import tensorflow as tf

from nn.embedding_model import dense_bytes
from nn.sequence.loss import sequence_loss
from nn.sequence.model import SequenceModel
from nn.sequence.sizes import embedding_tables, hotnesses
from tests.nn.model_checks import check_gradients, check_two_ranks, optimizer_groups
from tests.nn.sequence.sequence_reference import Sample, log_loss
from tests.nn.sequence.sequence_rows import KINDS, a_config, a_model, reference_of, rows, samples_of

# Full, within the short history, just into the long one, empty, one item.
LENGTHS = (9, 3, 5, 0, 1, 7)

each_kind = pytest.mark.parametrize("kind", KINDS)


def gradients_of(model, batch):
    """(total loss, its gradient for each dense variable and, whole, each table, by name)."""
    variables = model.dense_variables
    (tables,) = model.table_variables  # of one width
    with tf.GradientTape() as tape:
        total, _ = sequence_loss(model, batch)
    *dense, rows_touched = tape.gradient(total, [*variables, tables])
    assert isinstance(rows_touched, tf.IndexedSlices)
    named = {model.name_of(v): np.array(g) for v, g in zip(variables, dense, strict=True)}
    whole = np.zeros(tables.shape)
    np.add.at(whole, np.array(rows_touched.indices), np.array(rows_touched.values))
    (group,) = model.embedding.plan.groups(0)
    for shard, offset in zip(group.shards, group.row_offsets, strict=True):
        name = embedding_tables(model.config)[shard.table][0]
        named[name] = whole[offset : offset + shard.rows]
    return total, named


@each_kind
def test_models_of_papers(kind):
    model, batch = a_model(kind), rows(LENGTHS)
    outputs = model.forward(batch.inputs, training=False)
    total, parts = sequence_loss(model, batch)
    reference = reference_of(model)
    expected = [reference.score(sample) for sample in samples_of(model, batch.inputs)]
    np.testing.assert_allclose(
        outputs.logits[:, 0], [score["logit"] for score in expected], rtol=1e-9
    )
    labels = np.array(batch.labels)[:, 0]
    losses = {
        "classification_loss": [
            log_loss(label, score["logit"]) for label, score in zip(labels, expected, strict=True)
        ]
    }
    if "gsu" in expected[0]:
        losses["gsu_loss"] = [
            log_loss(label, score["gsu"]) for label, score in zip(labels, expected, strict=True)
        ]
    if "aux" in expected[0]:
        losses["dien_aux_loss"] = [score["aux"] for score in expected]
    assert parts.keys() == losses.keys()
    for name, values in losses.items():
        np.testing.assert_allclose(parts[name], np.mean(values), rtol=1e-9, err_msg=name)
    np.testing.assert_allclose(total, sum(np.mean(values) for values in losses.values()))


def test_user_dropout():
    """In training, some samples are scored as if their user had a vector of zeros."""
    model, batch = a_model("din", changes={"user_dropout_rate": 0.5}), rows(LENGTHS)
    logits = model(batch.inputs).numpy()
    steps = np.stack([model(batch.inputs, training=True).numpy() for _ in range(8)])
    np.testing.assert_array_equal(model(batch.inputs), logits)
    for table in model.embedding.table_weights():
        if table.name in model.config.user_features:
            table.write(0, np.zeros(table.shape))
    without = model(batch.inputs).numpy()
    is_dropped = np.isclose(steps, without)
    assert (is_dropped | np.isclose(steps, logits)).all()
    assert 0.2 < is_dropped.mean() < 0.8 and (is_dropped[0] != is_dropped[1]).any()


@pytest.mark.quick("sim", "din unit")
@each_kind
def test_numeric_gradients(kind):
    model, batch = a_model(kind), rows(LENGTHS[:4])
    variables = [*model.dense_variables, *model.table_variables]
    check_gradients(lambda: sequence_loss(model, batch)[0], variables)


@pytest.mark.quick("sim", "dien", "din unit")
@each_kind
def test_padding(kind):
    """Neither the content of row 0 nor the length of the padding changes losses and gradients."""
    model, batch = a_model(kind), rows(LENGTHS)
    total, gradients = gradients_of(model, batch)
    for name in model.config.item_features:
        np.testing.assert_array_equal(gradients[name][0], 0.0)

    for table in model.embedding.table_weights():
        if table.name in model.config.item_features:
            table.write(0, np.full([1, 3], 1e3))
    again, with_other_padding = gradients_of(model, batch)
    assert total == again
    for name, gradient in gradients.items():
        np.testing.assert_array_equal(gradient, with_other_padding[name], err_msg=name)

    more = {"history_length": 13, "long_seq_length": 9}
    longer = a_model(kind, changes=more)
    inputs = batch.inputs
    padded = {
        channel: tuple(tf.pad(ids, [[0, 0], [4, 0]]) for ids in getattr(inputs, channel))
        for channel in ("positive", "negative")
    }
    inputs = inputs._replace(**padded)
    np.testing.assert_allclose(
        longer(inputs), a_model(kind)(batch.inputs), rtol=1e-12, err_msg="longer padding"
    )
    again, of_longer = gradients_of(longer, batch._replace(inputs=inputs))
    np.testing.assert_allclose(again, total, rtol=1e-12)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(of_longer[name], gradient, atol=1e-12, err_msg=name)


@pytest.mark.quick("*-sim", "*-dien", "*-din unit")
@each_kind
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_precision(kind, dtype):
    """Logits and losses are float32; low precision stays near float64, also without a history."""
    exact, model = a_model(kind), a_model(kind, dtype)
    batch = rows(LENGTHS)
    logits = model(batch.inputs)
    assert logits.dtype == tf.float32
    scale = np.abs(exact(batch.inputs)).max()
    error = np.abs(np.array(logits) - np.array(exact(batch.inputs))).max() / scale
    assert error < {"float32": 1e-5, "mixed_bfloat16": 0.1, "mixed_float16": 0.01}[dtype]
    assert dtype == "float32" or error > 0
    total, gradients = gradients_of(model, batch)
    assert total.dtype == tf.float32
    assert all(np.isfinite(gradient).all() for gradient in gradients.values())
    nobody = rows([0, 0])
    total, gradients = gradients_of(model, nobody)
    assert np.isfinite(total)
    assert all(np.isfinite(gradient).all() for gradient in gradients.values())


@pytest.mark.parametrize(
    ("kind", "positions"), [("sim", 2), ("dien", 1), ("dien", 2), ("din", 1), ("din unit", 1)]
)
def test_short_histories(kind, positions):
    """With one step in the short history there is no pair for the auxiliary loss."""
    model = a_model(kind, changes={"history_length": positions, "long_seq_length": 1})
    batch = rows([0, 1, positions], positions)
    _, parts = sequence_loss(model, batch)
    assert ("dien_aux_loss" in parts) == (kind == "dien" and positions == 2)
    reference = reference_of(model)
    expected = [reference.score(entry)["logit"] for entry in samples_of(model, batch.inputs)]
    np.testing.assert_allclose(model(batch.inputs)[:, 0], expected, rtol=1e-9)


def test_numbers_of_features():
    """A model without user features and with one item feature."""
    changes = {"user_features": (), "user_cardinalities": ()}
    changes |= {"item_features": ("item",), "item_cardinalities": (30,)}
    model = a_model("sim", changes=changes)
    batch = rows(LENGTHS)
    inputs = batch.inputs._replace(
        user=(), **{name: getattr(batch.inputs, name)[:1] for name in batch.inputs._fields[1:]}
    )
    reference = reference_of(model)
    items = np.array(model.embedding.get_weights()[0])
    target, history = (items[np.array(entry[0])] for entry in (inputs.target, inputs.positive))
    full = Sample(np.zeros(0), target[0, 0], list(history[0, :5]), list(history[0, 5:]), [], [])
    assert float(model(inputs)[0, 0]) == pytest.approx(reference.score(full)["logit"])


def test_call_without_negatives():
    """`call` does not need negatives, int32 ids, or one integer dtype for all features."""
    model, batch = a_model("sim"), rows(LENGTHS)
    inputs = batch.inputs._replace(
        negative=(), positive=tuple(tf.cast(entry, tf.int64) for entry in batch.inputs.positive)
    )
    np.testing.assert_array_equal(model(inputs), model(batch.inputs))


def test_rows_of_weight_0():
    model, batch = a_model("sim"), rows(LENGTHS)
    weights = tf.constant([[1.5], [1.5], [0.0], [1.5], [0.0], [1.5]])
    total, _ = sequence_loss(model, batch._replace(weights=weights))
    kept = [0, 1, 3, 5]
    of_kept = tf.nest.map_structure(lambda of: tf.gather(of, kept), batch)
    expected, _ = sequence_loss(model, of_kept)
    np.testing.assert_allclose(total, expected, rtol=1e-12)


def test_dropout():
    """Each step drops different units, scoring drops none; tests/recipes/test_sim.py resumes."""
    changes = {"dropout_rate": 0.5}
    model, batch = a_model("sim", changes=changes), rows(LENGTHS)
    without = a_model("sim")
    np.testing.assert_array_equal(model(batch.inputs), without(batch.inputs))
    assert int(model.steps_seen) == 0
    losses = [float(sequence_loss(model, batch)[0]) for _ in range(3)]
    assert len(set(losses)) == 3
    assert int(model.steps_seen) == 3
    assert sequence_loss(model, batch, training=False)[0] == sequence_loss(without, batch)[0]
    other = a_model("sim", changes=changes, seed=1)
    assert float(sequence_loss(other, batch)[0]) != losses[0]


@pytest.mark.quick("sim", "din unit")
@each_kind
def test_checkpoint_content(kind):
    """Every trained weight is saved under a unique name; the seed determines its values."""
    config = a_config(kind)
    model = SequenceModel(config, seed=5)
    weights = {weight.name: weight for weight in model.weights_to_save()}
    assert len(weights) == len(model.weights_to_save())
    assert [name for name in weights if name.startswith("sparse/")] == [
        f"sparse/{name}" for name in config.user_features + config.item_features
    ]
    count = sum(np.prod(weight.shape) for weight in weights.values())
    assert count == sum(np.prod(variable.shape) for variable in model.trainable_variables)
    dense = sum(np.prod(variable.shape) for variable in model.dense_variables)
    assert dense_bytes(lambda: SequenceModel(config)) == 4 * dense
    assert len(weights) == len(model.dense_variables) + 4
    state = {weight.name for weight in model.optimizer_weights(optimizer_groups(model))}
    assert {"sparse.first_moment/item", "dense.scalars/beta1_power", "dropout/steps_seen"} <= state

    same, other = SequenceModel(config, seed=5), SequenceModel(config, seed=6)
    differ = 0
    for a, b, c in zip(*(m.weights_to_save() for m in (model, same, other)), strict=True):
        if a.name.startswith("dense/"):
            np.testing.assert_array_equal(a.variable, b.variable, err_msg=a.name)
            differ += bool((np.array(a.variable) != np.array(c.variable)).any())
    kernels = [name for name in weights if "kernel" in name and name.startswith("dense/")]
    assert differ >= len(kernels)


COMMON_NAMES = {
    *(f"auxiliary_mlp.dense_{i}" for i in range(3)),
    *("interest_evolution.augru", "interest_evolution.gru"),
    *("stage_one_mlp.dense_0", "stage_one_mlp.dense_1", "stage_one_mlp.prelu_0"),
    *(f"stage_two_mlp.dense_{i}" for i in range(3)),
    *(f"stage_two_mlp.prelu_{i}" for i in range(2)),
}
OWN_NAMES = {
    "paper": {
        *("interest_evolution.attention", "long_history.exact_search", "long_history.search"),
    },
    "nvidia": {
        *(f"interest_evolution.attention.mlp.dense_{i}" for i in range(3)),
        *("interest_evolution.target_dense", "interest_evolution.target_prelu"),
    },
}


@pytest.mark.parametrize("variant", OWN_NAMES)
def test_stable_names(variant):
    """The names of weights in checkpoints are fixed, and unique."""
    names = [
        weight.name for weight in a_model("sim", changes={"variant": variant}).weights_to_save()
    ]
    assert len(set(names)) == len(names)
    of_dense = {name.split("/")[1].rsplit(".", 1)[0] for name in names if "dense/" in name}
    assert of_dense == COMMON_NAMES | OWN_NAMES[variant]


@pytest.mark.quick("columns-sim", "rows and copies-*")
@pytest.mark.parametrize("kind", ["sim", "din unit"])
@pytest.mark.parametrize(
    "placement",
    [
        {"strategy": "memory_balanced", "column_slice_threshold": 40},
        {"row_slice_threshold": 80, "data_parallel_threshold": 15},
    ],
    ids=["columns", "rows and copies"],
)
def test_ranks_against_one(kind, placement):
    config = a_config(kind)
    tables, batch = embedding_tables(config), rows(LENGTHS[:5])
    placement = {"hotness": hotnesses(config), **placement}
    check_two_ranks(SequenceModel, sequence_loss, config, tables, batch, **placement)
