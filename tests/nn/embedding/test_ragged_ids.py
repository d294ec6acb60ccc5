"""The ranking model on features whose samples differ in their number of ids."""

import numpy as np
import pytest
import tensorflow as tf

from dataloading.pipeline.batch import Batch, Inputs, RaggedIds
from nn.ctr.model import CTRModel
from nn.ctr.sizes import CTRConfig
from nn.optim import optimizers
from nn.train.losses import binary_cross_entropy
from nn.train.trainer import Trainer

ROWS = ((1, 4, 4), (), (2,), (0, 3), (4,), ())  # of feature `many`; two have none


def model_of(interaction, dtype="float32"):
    config = CTRConfig(
        feature_names=("one", "many"),
        cardinalities=(6, 5),
        embedding_dims=(4, 4),
        num_numerical=2,
        bottom_mlp_dims=(4,),
        top_mlp_dims=(8, 1),
        interaction=interaction,
        num_cross_layers=1,
        cross_layer_projection_dim=2,
    )
    return CTRModel(config, seed=1, dtype=dtype)


def inputs(rows=ROWS) -> Inputs:
    ragged = tf.ragged.constant(rows, dtype=tf.int32, row_splits_dtype=tf.int32, ragged_rank=1)
    one = tf.range(len(rows))[:, tf.newaxis] % 6
    numerical = tf.random.stateless_normal([len(rows), 2], [0, 1])
    return Inputs(numerical, (one, RaggedIds(ragged.values, ragged.row_splits)))


@pytest.mark.parametrize("interaction", ["dot_tensorflow", "cross"])
def test_sums_of_samples(interaction):
    model = model_of(interaction)
    numerical, (one, many) = inputs()
    tables = {table.name: table for table in model.embedding.table_weights()}
    table = model.embedding([tf.range(5)[:, tf.newaxis] % 6, tf.range(5)[:, tf.newaxis]])[1].numpy()
    assert set(tables) == {"one", "many"}
    sums = np.stack([sum((table[i] for i in ids), np.zeros(4, np.float32)) for ids in ROWS])
    vectors = tf.concat([model.embedding([one, tf.zeros_like(one)])[0], sums], axis=1)
    expected = model.logits(numerical, vectors)
    np.testing.assert_allclose(model((numerical, (one, many))), expected, rtol=1e-5, atol=1e-6)
    compiled = tf.function(model)((numerical, (one, many)))
    np.testing.assert_allclose(compiled, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_training_with_equal_lengths(dtype):
    rows = ((1, 2), (3, 3), (0, 4), (2, 1))
    numerical, (one, many) = inputs(rows)
    labels = tf.constant([[1.0], [0.0], [0.0], [1.0]])
    losses = []
    for ids in (many, tf.constant(rows)):
        model = model_of("dot_tensorflow", dtype)
        batch = Batch(Inputs(numerical, (one, ids)), labels, tf.ones_like(labels))
        both = [
            optimizers.create("adagrad", variables, 0.1)
            for variables in (model.dense_variables, model.table_variables)
        ]

        def loss(model, batch):
            logits = model(batch.inputs)
            return binary_cross_entropy(batch.labels, logits, batch.weights), {}

        trainer = Trainer(model, loss, both)
        iterator = iter(tf.data.Dataset.from_tensors(batch).repeat(5))
        for _ in range(5):
            trainer.train_step(iterator)
        losses.append(trainer.progress().loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5 if dtype == "float32" else 1e-2)
    assert losses[0] < 0.69
