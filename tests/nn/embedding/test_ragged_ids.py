"""The ranking model on features whose samples differ in their number of ids."""

import numpy as np
import pytest
import tensorflow as tf

from dataloading.pipeline.batch import Inputs, RaggedIds
from nn.ctr.model import CTRModel
from nn.ctr.sizes import CTRConfig

ROWS = ((1, 4, 4), (), (2,), (0, 3), (4,), ())  # of feature `many`; two have none


def model_of(interaction):
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
    return CTRModel(config, seed=1)


def inputs() -> Inputs:
    ragged = tf.ragged.constant(ROWS, dtype=tf.int32, row_splits_dtype=tf.int32, ragged_rank=1)
    one = tf.range(len(ROWS))[:, tf.newaxis] % 6
    numerical = tf.random.stateless_normal([len(ROWS), 2], [0, 1])
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
