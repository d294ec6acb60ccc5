"""Rows, models and references of the tests of sequential recommenders."""

import numpy as np
import tensorflow as tf

from dataloading.pipeline.batch import Batch, SequenceInputs
from nn.sequence.model import SequenceModel
from nn.sequence.sizes import SequenceModelConfig
from tests.nn.sequence.sequence_reference import Reference, Sample

USERS, ITEMS, CATEGORIES = 9, 30, 4

# Every kind of model, by what differs from the defaults.
KINDS = {
    "sim": {"model_type": "sim"},
    "sim hard": {"model_type": "sim", "gsu": "hard"},
    "dien": {"model_type": "dien"},
    "din": {"model_type": "din"},
    "din unit": {"model_type": "din", "attention": "unit"},
    "sim product": {"model_type": "sim", "history_product": True},
    "din product": {"model_type": "din", "history_product": True},
    "no history": {"model_type": "no_history"},
}


def a_config(kind: str, **changes) -> SequenceModelConfig:
    """A small model: 2 user and 2 item features, 9 positions, of which 5 are the long history."""
    sizes = {
        "user_features": ("user", "age"),
        "user_cardinalities": (USERS, 3),
        "item_features": ("item", "category"),
        "item_cardinalities": (ITEMS, CATEGORIES),
        "embedding_dim": 3,
        "history_length": 9,
        "long_seq_length": 5,
        "stage_one_mlp_dims": (5,),
        "stage_two_mlp_dims": (6, 4),
        "aux_mlp_dims": (5, 3),
        "top_k": 2,
    }
    return SequenceModelConfig(**{**sizes, **KINDS[kind], **changes})


def a_model(kind: str, dtype: str = "float64", changes=None, **options) -> SequenceModel:
    """The model with weights so large that everything matters."""
    model = SequenceModel(a_config(kind, **(changes or {})), dtype=dtype, **options)
    rng = np.random.default_rng(7)
    for variable in model.dense_variables:
        variable.assign(rng.normal(0, 0.6, variable.shape))
    for table in model.embedding.table_weights():
        table.write(0, rng.normal(0, 0.8, table.shape).astype(table.dtype))
    return model


def rows(lengths, positions: int = 9, seed: int = 1) -> Batch:
    """A batch with a sample for each length of a history, right-aligned."""
    rng = np.random.default_rng(seed)
    n = len(lengths)
    real = np.arange(positions) >= positions - np.array(lengths)[:, np.newaxis]

    def ids(cardinality, width=1):
        return rng.integers(1, cardinality, [n, width]).astype("i4")

    def history():
        return tuple(tf.constant(ids(c, positions) * real) for c in (ITEMS, CATEGORIES))

    def one_each(*cardinalities):
        return tuple(tf.constant(ids(cardinality)) for cardinality in cardinalities)

    labels = rng.integers(0, 2, [n, 1]).astype("f")
    return Batch(
        SequenceInputs(one_each(USERS, 3), one_each(ITEMS, CATEGORIES), history(), history()),
        tf.constant(labels),
        tf.ones([n, 1]),
    )


def reference_of(model) -> Reference:
    """The NumPy model with the same weights."""
    weights = {}
    for weight in model.weights_to_save():
        folder, name = weight.name.split("/")
        if folder == "dense":
            weights[name] = np.array(weight.variable)
    return Reference(model.config, weights)


def vectors_of(model, inputs) -> list[np.ndarray]:
    """User and target [batch, width], both histories [batch, steps, width]."""
    users, items = model.config.user_features, model.config.item_features
    tables = dict(zip(users + items, model.embedding.get_weights(), strict=True))

    def vectors(names, ids):
        parts = [tables[name][np.array(entry)] for name, entry in zip(names, ids, strict=True)]
        return np.concatenate(parts, axis=-1)

    user, target = vectors(users, inputs.user)[:, 0], vectors(items, inputs.target)[:, 0]
    return [user, target, vectors(items, inputs.positive), vectors(items, inputs.negative)]


def samples_of(model, inputs) -> list[Sample]:
    """Each sample of a batch, without its padding."""
    config, samples = model.config, []
    user, target, positive, negative = vectors_of(model, inputs)
    for i in range(len(user)):
        real = np.flatnonzero(np.array(inputs.positive[0][i]))
        old = [j for j in real if j < config.short_start]
        new = [j for j in real if j >= config.short_start]
        category = int(inputs.target[-1][i, 0])
        samples.append(
            Sample(
                user[i],
                target[i],
                [positive[i, j] for j in old],
                [positive[i, j] for j in new],
                [negative[i, j] for j in new],
                [int(inputs.positive[-1][i, j]) == category for j in old],
            )
        )
    return samples
