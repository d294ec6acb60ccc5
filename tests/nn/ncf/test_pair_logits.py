"""Logits of all pairs of a block equal those of a batch of pairs."""

import numpy as np
import pytest
import tensorflow as tf

from dataloading.pipeline.batch import InteractionInputs
from nn.ncf.model import NCFModel
from nn.ncf.sizes import NCFConfig


@pytest.mark.parametrize("model_type", ["gmf", "mlp", "neumf"])
@pytest.mark.parametrize("layers", [(8, 6), (8, 6, 5, 3)])
def test_pairs_of_a_block(model_type, layers):
    config = NCFConfig(model_type, 30, 50, factors=4, layers=layers, dropout=0.5)
    model = NCFModel(config, seed=3)
    for weight in model.weights:
        if weight.dtype.is_floating:
            weight.assign(tf.random.stateless_normal(weight.shape, [1, len(weight.name)]))
    users, items = np.array([7, 3, 29], np.int32), np.arange(4, 50, 3, dtype=np.int32)
    pairs = InteractionInputs(
        tf.constant(np.repeat(users, len(items))), tf.constant(np.tile(items, len(users)))
    )
    expected = np.reshape(model(pairs), [len(users), len(items)])
    block = tf.function(lambda u, i: model.pair_logits(model.vectors_of(u, i)), autograph=False)
    logits = block(tf.constant(users), tf.constant(items))
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
