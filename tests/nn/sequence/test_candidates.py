"""Logits of candidates of users equal those of samples of the same users, items and histories."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from dataloading.pipeline.batch import SequenceInputs
from nn.sequence.candidate_logits import CandidateScorer
from nn.sequence.model import SequenceModel
from nn.sequence.sizes import SequenceModelConfig

ITEMS, CATEGORIES, LENGTH = 30, 5, 7
SHAPES = [
    {"model_type": "sim", "long_seq_length": 4, "top_k": 2},
    {"model_type": "sim", "long_seq_length": 4, "top_k": 2, "gsu": "hard"},
    {"model_type": "sim", "long_seq_length": 4, "top_k": 2, "variant": "nvidia"},
    {"model_type": "dien"},
    {"model_type": "dien", "variant": "nvidia"},
    {"model_type": "din"},
    {"model_type": "din", "attention": "unit", "variant": "nvidia"},
    {"model_type": "no_history"},
]


def make_model(**shape):
    user = ("user", "city")[: shape.pop("num_user", 1)]
    config = SequenceModelConfig(
        user_features=user,
        user_cardinalities=(9, 4)[: len(user)],
        item_features=("item", "category"),
        item_cardinalities=(ITEMS, CATEGORIES),
        embedding_dim=4,
        history_length=LENGTH,
        stage_one_mlp_dims=(6,),
        stage_two_mlp_dims=(8, 5),
        aux_mlp_dims=(3,),
        **shape,
    )
    model = SequenceModel(config, seed=1)
    for weight in model.weights:
        if weight.dtype.is_floating:
            seed = [3, len(weight.name)]
            weight.assign(0.5 * tf.random.stateless_normal(weight.shape, seed))
    return model


@pytest.mark.quick("2-sim-4-2", "2-sim-4-2-nvidia", "0-din", "2-no_history")  # SIM has a DIEN
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape.values())))
@pytest.mark.parametrize("num_user", [0, 2])
def test_candidates(shape, num_user):
    model = make_model(num_user=num_user, **shape)
    rng = np.random.default_rng(0)
    items = rng.integers(1, ITEMS, [3, LENGTH])
    items[0, :5], items[1] = 0, 0  # a short history and an empty one
    categories = np.where(items, 1 + items % (CATEGORIES - 1), 0)
    users = [np.array([[1], [8], [3]]), np.array([[2], [0], [3]])][:num_user]
    targets = np.arange(2, ITEMS, 3)
    features = [targets, 1 + targets % (CATEGORIES - 1)]

    def tensors(arrays):
        return [tf.constant(array, tf.int32) for array in arrays]

    scorer = CandidateScorer(model)
    histories = scorer.histories(tensors(users), tensors([items, categories]))
    logits = tf.function(scorer.logits)(histories, tensors(features)).numpy()
    pairs = np.array(list(itertools.product(range(3), range(len(targets)))))
    inputs = SequenceInputs(
        tuple(tensors(user[pairs[:, 0]] for user in users)),
        tuple(tensors(feature[pairs[:, 1], None] for feature in features)),
        tuple(tensors(history[pairs[:, 0]] for history in (items, categories))),
        (),
    )
    expected = model(inputs).numpy().reshape(logits.shape)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    assert np.ptp(expected) > 0.01
