import math
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from dataloading.pipeline.batch import Batch, InteractionInputs
from nn.embedding_model import dense_bytes
from nn.ncf import tower
from nn.ncf.model import NCFModel, ncf_loss
from nn.ncf.relu_dropout import ReluDropout
from nn.ncf.sizes import (
    GMF,
    MLP,
    NEUMF,
    NCFConfig,
    embedding_tables,
)
from nn.ncf.tower import product_over_batch
from tests.nn.model_checks import check_gradients, check_two_ranks


def a_config(model_type, **changes):
    sizes = {"num_users": 9, "num_items": 7, "factors": 3, "layers": (4, 6, 5), "dropout": 0.0}
    return NCFConfig(model_type, **(sizes | changes))


def a_model(model_type, dtype="float64", seed=3, **changes):
    """Weights of order 1, biases included: the initial tables' are too small to see anything."""
    model = NCFModel(a_config(model_type, **changes), dtype=dtype, seed=seed)
    rng = np.random.default_rng(11)
    for variable in model.dense_variables:
        variable.assign(rng.normal(size=variable.shape))
    model.embedding.set_weights(
        [rng.normal(size=(rows, dim)) for _, rows, dim in embedding_tables(model.config)]
    )
    return model


def rows(users=(1, 8, 1, 0, 1, 3), items=(6, 0, 0, 2, 6, 6), dtype=tf.int32):
    """Repeated users, repeated items, and a row that occurs twice."""
    labels = np.arange(len(users))[:, np.newaxis] % 2 * 1.0
    inputs = InteractionInputs(tf.constant(users, dtype), tf.constant(items, dtype))
    return Batch(inputs, tf.constant(labels, tf.float32), tf.ones([len(users), 1]))


def weights_of(model) -> dict[str, np.ndarray]:
    """By their names in checkpoints, without `dense/` and `sparse/`."""
    dense = {model.name_of(v): v.numpy() for v in model.dense_variables}
    names = [name for name, _, _ in embedding_tables(model.config)]
    return dense | dict(zip(names, model.embedding.get_weights(), strict=True))


def reference_logit(config, weights, user, item) -> float:
    """The paper's formulas, a row at a time."""
    logit = weights["output.bias"][0]
    if config.has_gmf:
        product = weights["mf_user"][user] * weights["mf_item"][item]
        logit += product @ weights["output.gmf_kernel"][:, 0]
    if config.has_mlp:
        x = np.concatenate([weights["mlp_user"][user], weights["mlp_item"][item]])
        for i in range(len(config.layers) - 1):
            z = x @ weights[f"mlp.dense_{i}.kernel"] + weights[f"mlp.dense_{i}.bias"]
            x = np.maximum(z, 0)
        logit += x @ weights["output.mlp_kernel"][:, 0]
    return logit


@pytest.mark.parametrize(
    ("model_type", "dtype"),
    [(NEUMF, tf.int32), (NEUMF, tf.int64), (GMF, tf.int32), (MLP, tf.int32)],
)
def test_models_of_paper(model_type, dtype):
    model, batch = a_model(model_type), rows(dtype=dtype)
    weights = weights_of(model)
    pairs = zip(batch.inputs.user.numpy(), batch.inputs.item.numpy(), strict=True)
    expected = [reference_logit(model.config, weights, user, item) for user, item in pairs]
    np.testing.assert_allclose(model(batch.inputs)[:, 0], expected, rtol=1e-12)
    labels = batch.labels.numpy()[:, 0]
    losses = np.log1p(np.exp(expected)) - labels * expected
    loss, parts = ncf_loss(model, batch)
    assert parts == {}
    np.testing.assert_allclose(loss, losses.mean(), rtol=1e-12)
    weights = np.array([2.0, 0.0, 1.0, 1.0, 0.0, 2.0], np.float32)
    loss, _ = ncf_loss(model, batch._replace(weights=tf.constant(weights[:, np.newaxis])))
    np.testing.assert_allclose(loss, (losses * weights).mean(), rtol=1e-12)


@pytest.mark.parametrize(
    ("model_type", "layers", "weights"),
    [
        (NEUMF, (4, 6, 5), 4 * 6 + 6 + 6 * 5 + 5 + 3 + 5 + 1),
        (GMF, (4, 6, 5), 3 + 1),
        (MLP, (4, 6, 5), 4 * 6 + 6 + 6 * 5 + 5 + 5 + 1),
        # Terabytes, of which none is allocated.
        (MLP, (10**6, 10**6), 10**12 + 10**6 + 10**6 + 1),
    ],
    ids=["neumf", "gmf", "mlp", "larger than memory"],
)
def test_bytes_of_dense_gradients(model_type, layers, weights):
    config = a_config(model_type, layers=layers, num_users=1, num_items=1)
    assert dense_bytes(lambda: NCFModel(config)) == 4 * weights


@pytest.mark.quick("neumf", "one*")
@pytest.mark.parametrize(
    ("model_type", "users", "items", "dropout"),
    [
        (NEUMF, (1, 8, 1, 0, 1, 3), (6, 0, 0, 2, 6, 6), 0.4),
        (NEUMF, (5,), (2,), 0.0),
        (GMF, (1, 8, 1, 0, 1, 3), (6, 0, 0, 2, 6, 6), 0.4),
        (MLP, (1, 8, 1, 0, 1, 3), (6, 0, 0, 2, 6, 6), 0.0),
        (MLP, (4, 4, 4), (1, 0, 1), 0.4),
    ],
    ids=["neumf", "one row", "gmf", "mlp", "one user"],
)
def test_numeric_gradients(model_type, users, items, dropout):
    """With fixed dropped units."""
    model, batch = a_model(model_type, dropout=dropout), rows(users, items)

    def loss():
        model.steps_seen.assign(7)
        return ncf_loss(model, batch)[0]

    check_gradients(loss, [*model.dense_variables, *model.table_variables])


def test_unique_rows_of_table_gradients():
    model, batch = a_model(NEUMF), rows()
    with tf.GradientTape() as tape:
        total, _ = ncf_loss(model, batch)
    for gradient in tape.gradient(total, model.table_variables):
        touched = gradient.indices.numpy()
        assert len(set(touched)) == len(touched) == 4 + 3  # users and items of the batch


@pytest.mark.parametrize("num_rows", [0, 3, 4, 11])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_product_over_batch(monkeypatch, num_rows, dtype):
    """By blocks of 4 rows: less than one, exactly one, two and a rest."""
    monkeypatch.setattr(tower, "_BLOCK_ROWS", 4)
    rng = np.random.default_rng(0)
    x, y = (tf.cast(rng.normal(size=(num_rows, n)), dtype) for n in (3, 5))
    actual = product_over_batch(x, y)
    assert actual.dtype == dtype
    expected = tf.cast(x, "float64").numpy().T @ tf.cast(y, "float64").numpy()
    error = {"float64": 1e-13, "float32": 1e-5, "bfloat16": 0.03}[dtype]
    np.testing.assert_allclose(tf.cast(actual, "float64"), expected, atol=error)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_precision(dtype):
    """Logits and losses are float32; gradients of low precision stay near those of float64."""
    exact, model = a_model(NEUMF, dropout=0.5), a_model(NEUMF, dtype, dropout=0.5)
    batch = rows()
    logits = model(batch.inputs)
    assert logits.dtype == tf.float32
    scale = np.abs(exact(batch.inputs)).max()
    error = np.abs(logits.numpy() - exact(batch.inputs).numpy()).max() / scale
    bound = {"float32": 1e-5, "mixed_bfloat16": 0.03, "mixed_float16": 0.004}[dtype]
    assert error < bound
    assert dtype == "float32" or error > 0
    actual = []
    for entry in (exact, model):
        entry.steps_seen.assign(1)
        with tf.GradientTape() as tape:
            total, _ = ncf_loss(entry, batch)
        variables = [*entry.dense_variables, *entry.table_variables]
        gradients = tape.gradient(total, variables)
        actual.append([np.array(tf.convert_to_tensor(g), np.float64) for g in gradients])
    assert total.dtype == tf.float32
    for variable, expected, got in zip(variables, *actual, strict=True):
        np.testing.assert_allclose(
            got, expected, atol=4 * bound * np.abs(expected).max(), err_msg=variable.name
        )


def test_distinct_scores_in_low_precision():
    """Hidden units are bfloat16, logits are not rounded to it."""
    model = a_model(NEUMF, "mixed_bfloat16", num_items=200)
    logits = model(rows([2] * 200, range(200)).inputs).numpy()
    assert len(np.unique(logits)) == 200


def test_dropped_units():
    """A unit in `rate` of all is 0, the others are scaled; seeds, names and steps drop others."""
    x = tf.constant(np.random.default_rng(1).normal(size=(4000, 50)), tf.float64)
    relu = np.maximum(x, 0)

    def units(step=1, rate=0.3, seed=5, name="dense_0", terms=(x,)):
        drop = ReluDropout(rate, seed=seed, name=name)
        return drop(terms, tf.constant(step, tf.int64)).numpy()

    actual = units()
    kept = actual > 0
    np.testing.assert_allclose(actual[kept], relu[kept] / 0.7, rtol=1e-12)
    positive = relu > 0
    assert not kept[~positive].any()
    deviation = math.sqrt(0.3 * 0.7 / positive.sum())
    assert abs(kept[positive].mean() - 0.7) < 4 * deviation
    for axis in (0, 1):  # no column and no row has its own rate
        counts = positive.sum(axis=axis)
        shares = np.where(positive, kept, 0).sum(axis=axis) / counts
        assert (np.abs(shares - 0.7) < 6 * np.sqrt(0.21 / counts)).all()
    # Neighbours, and units a power of two apart, are dropped independently of each other.
    dropped = (units(terms=(tf.ones_like(x),)) == 0).ravel() - 0.3
    for distance in (1, 2, 50, 64, 4096, 2**16):
        correlation = (dropped[distance:] * dropped[:-distance]).mean() / 0.21
        assert abs(correlation) < 4 / math.sqrt(dropped.size - distance)

    np.testing.assert_array_equal(units(), actual)
    np.testing.assert_array_equal(units(terms=(x / 4, x * 3 / 4)), actual)
    for other in ({"step": 2}, {"seed": 6}, {"name": "dense_1"}):
        both = (kept & (units(**other) > 0))[positive].mean()
        assert abs(both - 0.49) < 4 * math.sqrt(0.49 * 0.51 / positive.sum()), other
    assert (units(rate=1 - 1e-12) == 0).all()
    # Without XLA, as on a GPU, it is the same function.
    drop, keys = ReluDropout(0.3, seed=5, name="dense_0"), tf.constant([1, 2**31], tf.uint32)
    np.testing.assert_array_equal(drop._forward_pass((x,), keys), drop._forward((x,), keys))


def test_dropout_of_a_training():
    """Each step drops different units, scoring drops none; tests/recipes/test_ncf.py resumes."""
    model, batch = a_model(NEUMF, dropout=0.5), rows()
    without = a_model(NEUMF)
    np.testing.assert_array_equal(model(batch.inputs), without(batch.inputs))
    assert int(model.steps_seen) == 0
    losses = [float(ncf_loss(model, batch)[0]) for _ in range(3)]
    assert len(set(losses)) == 3
    assert int(model.steps_seen) == 3
    assert ncf_loss(model, batch, training=False)[0] == ncf_loss(without, batch)[0]
    ncf_loss(without, batch)
    assert int(without.steps_seen) == 0
    assert float(ncf_loss(a_model(NEUMF, dropout=0.5, seed=4), batch)[0]) != losses[0]
    ranks = [
        NCFModel(a_config(NEUMF, dropout=0.5), world=SimpleNamespace(rank=rank, size=2), seed=4)
        for rank in (0, 1)
    ]
    seeds = [{drop.seed for drop in model.tower.dropouts} for model in ranks]
    assert len(seeds[0] | seeds[1]) == 4  # of two layers on two ranks


def test_batches_of_any_size():
    """One graph for all batch sizes: rows generated within a step have no static size."""
    model = a_model(NEUMF, dropout=0.5)
    ids = tf.TensorSpec([None], tf.int32)

    @tf.function(input_signature=[ids, ids], autograph=False)
    def forward(user, item):
        return model.forward(InteractionInputs(user, item), training=True)

    for batch in (rows(), rows([3], [1]), rows([1] * 5, [2] * 5)):
        model.steps_seen.assign(0)
        expected = model.forward(batch.inputs, training=True)
        model.steps_seen.assign(0)
        np.testing.assert_allclose(forward(*batch.inputs), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "placement",
    [
        {"strategy": "memory_balanced", "column_slice_threshold": 12},
        {"strategy": "basic"},
        {"row_slice_threshold": 17, "data_parallel_threshold": 14},
        {"data_parallel_threshold": 1000},
    ],
    ids=["columns", "tables", "rows and copies", "copies"],
)
def test_ranks_against_one(placement):
    config, batch = a_config(NEUMF), tf.nest.map_structure(lambda of: of[:5], rows())
    tables = embedding_tables(config)
    check_two_ranks(NCFModel, ncf_loss, config, tables, batch, **placement)
