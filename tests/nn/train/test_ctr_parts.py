"""Optional parts of DLRM and DCNv2: bins, linear term, dropout, constant vector."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from config.sections.optimizer import OptimizerConfig
from nn.ctr.model import CTRModel
from nn.ctr.sizes import CTRConfig, embedding_tables
from nn.train.losses import click_loss

EDGES = [[0, 1, 2], [0, 1, 3, 5, 6], [-1, 1]]
PARTS = {"num_bins": 4, "is_wide": True, "dropout_rate": 0.5}


def shape(interaction="dot_tensorflow", tables=3, num_numerical=3, **parts):
    dims = (4, 2, 8) if interaction == "cross" and tables == 3 else (4,) * tables
    return CTRConfig(
        feature_names=tuple("abc"[:tables]),
        cardinalities=(5,) * tables,
        embedding_dims=dims,
        num_numerical=num_numerical,
        bottom_mlp_dims=(6, 4),
        top_mlp_dims=(5, 1),
        interaction=interaction,
        num_cross_layers=2,
        cross_layer_projection_dim=3,
        **parts,
    )


def model_of(config, **options):
    edges = EDGES if config.num_numerical and config.num_bins else None
    return CTRModel(config, edges=edges, seed=1, **options)


def batch_of(config, count=7):
    rng = np.random.default_rng(0)
    numerical = rng.normal(size=(count, config.num_numerical)).astype("f")
    ids = tuple(rng.integers(0, 5, (count, 2)) for _ in config.feature_names)
    labels = rng.integers(0, 2, (count, 1)).astype("f")
    return SimpleNamespace(inputs=(numerical, ids), labels=labels, weights=np.ones((count, 1), "f"))


@pytest.mark.quick("*-float32", "*-kinds0-*")
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("kinds", [(3, 3), (0, 3), (1, 3), (3, 0), (1, 0)])
@pytest.mark.parametrize("interaction", ["dot_tensorflow", "cross"])
@pytest.mark.parametrize("parts", [PARTS, {"is_wide": True}, {"num_bins": 4}])
def test_every_weight_is_trained(parts, interaction, kinds, dtype):
    config = shape(interaction, *kinds, **parts)
    model, batch = model_of(config, dtype=dtype), batch_of(config)
    assert config.num_dense_weights == sum(v.shape.num_elements() for v in model.dense_variables)
    with tf.GradientTape() as tape:
        loss, _ = click_loss(model, batch)
    gradients = tape.gradient(loss, [*model.dense_variables, *model.table_variables])
    assert all(gradient is not None for gradient in gradients)
    assert model(batch.inputs, training=True).shape == (7, 1)
    assert model(batch.inputs).shape == (7, 1)


def test_constant_vector():
    """Its products are a linear term of each embedding, which NVIDIA's model lacks."""
    config = shape(num_numerical=0)
    model = model_of(config)
    assert config.width == 16  # the vector, and 6 products of 4 vectors: a multiple of 8
    model.constant.assign([1, 0, 0, 0])
    batch = batch_of(config)
    seen = []
    model.top_mlp = lambda x, step: seen.append(x) or x[:, :1]
    model(batch.inputs)
    tables = [t.numpy() for t in model.embedding.variables]
    first = sum(tables[0].reshape(-1, 5, 4)[0, batch.inputs[1][0][:, i]] for i in (0, 1))
    np.testing.assert_allclose(seen[0][:, 4], first[:, 0], rtol=1e-5)
    nvidia = model_of(shape(num_numerical=0, variant="nvidia"))
    assert nvidia.constant is None and nvidia.config.width == 8


def test_single_table_with_constant_vector():
    config = shape(tables=1, num_numerical=0)
    assert model_of(config)(batch_of(config).inputs).shape == (7, 1)


@pytest.mark.parametrize("num_bins", [0, 4])
@pytest.mark.parametrize("interaction", ["dot_tensorflow", "cross"])
def test_linear_term(interaction, num_bins):
    config, plain = (shape(interaction, num_bins=num_bins, is_wide=wide) for wide in (True, False))
    assert [columns for *_, columns in embedding_tables(config)] == [
        dim + 1 for dim in plain.embedding_dims
    ]
    model, without, batch = model_of(config), model_of(plain), batch_of(config)
    # It starts at zero, and the other columns as those of a model without it.
    logits = without(batch.inputs)
    np.testing.assert_allclose(model(batch.inputs), logits, atol=1e-5)
    weights = {weight.name: weight for weight in model.weights_to_save()}
    weights["sparse/a"].write(0, np.arange(5, dtype="f")[:, np.newaxis], column=4)
    expected = batch.inputs[1][0].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model(batch.inputs) - logits, expected, atol=1e-4)


def test_dropout():
    """Each step drops different units, scoring drops none; test_ctr_parts_runs.py resumes."""
    config = shape(dropout_rate=0.5)
    batch, model, without = batch_of(config), model_of(config), model_of(shape())
    assert len({float(click_loss(model, batch)[0]) for _ in range(3)}) == 3
    np.testing.assert_array_equal(model(batch.inputs), without(batch.inputs))
    flags = OptimizerConfig()
    names = {w.name for w in without.optimizer_weights(without.create_optimizers(flags))}
    assert "dropout/steps_seen" not in names


def test_bottom_mlp_dims_that_are_not_read():
    sizes = {"embedding_dims": (4,), "num_numerical": 1, "top_mlp_dims": (1,)}
    names = {"feature_names": ("a",), "cardinalities": (3,), "interaction": "cross"}
    config = CTRConfig(**sizes, **names, bottom_mlp_dims=(), num_bins=2)
    assert config.width == 8
    with pytest.raises(ValueError, match="--bottom_mlp_dims is empty"):
        CTRConfig(**sizes, **names, bottom_mlp_dims=())
