"""Serving of NeuMF, GMF and MLP: a user and an item, with a vector per branch."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import tensorflow as tf

from dataloading.pipeline.batch import InteractionInputs
from dataloading.spec import feature_spec as fs
from deployment.model.trained_model import TrainedModel, tables_of
from deployment.serving.interface import (
    ID_DTYPE,
    Interface,
    ServedFeature,
    ServedLookup,
    ServedTensor,
)
from nn.ncf.model import NCFModel
from nn.ncf.sizes import embedding_tables
from recipes.original_ids import original_ids

USER, ITEM = "user", "item"
CANDIDATE_INPUT = ITEM


def interface(trained: TrainedModel) -> Interface:
    """Returns the interface of NeuMF, GMF and MLP."""
    shape, spec = trained.shape, trained.spec
    (user,), (item,) = spec.channel(fs.USER_CHANNEL), spec.channel(fs.ITEM_CHANNEL)
    tables = tables_of(trained)
    inputs_of_tables = [USER, ITEM] * (len(tables) // 2)
    return Interface(
        recipe=trained.recipe,
        inputs=tuple(ServedTensor(name, ID_DTYPE, (1,)) for name in (USER, ITEM)),
        features=(
            ServedFeature(user, USER, 0, 1, shape.num_users, False),
            ServedFeature(item, ITEM, 0, 1, shape.num_items, False),
        ),
        lookups=tuple(
            ServedLookup(table.name, source, 0, 1, None)
            for table, source in zip(tables, inputs_of_tables, strict=True)
        ),
        tables=tables,
        dense_inputs=(),
    )


def one_row_model(trained: TrainedModel, policy: str) -> NCFModel:
    """Builds the model with tables of one row, of a Keras dtype policy."""
    return NCFModel(replace(trained.shape, num_users=1, num_items=1), dtype=policy)


def logits(model: NCFModel, embeddings: tf.Tensor, tensors: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns logits [batch, 1] from vectors; ids are not used."""
    dims = [dim for _, _, dim in embedding_tables(model.config)]
    return model.logits(tf.split(tf.cast(embeddings, model.compute_dtype), dims, axis=1))


def arrays(interface: Interface, inputs: InteractionInputs) -> dict[str, np.ndarray]:
    """Converts the inputs of a loader's batch to the tensors of a request."""
    ids = {USER: inputs.user, ITEM: inputs.item}
    return {
        t.name: np.asarray(ids[t.name]).reshape(-1, 1).astype(t.dtype) for t in interface.inputs
    }


def candidates(trained: TrainedModel) -> np.ndarray:
    """Returns all items of the data set, int64 [items, 1]."""
    (item,) = trained.spec.channel(fs.ITEM_CHANNEL)
    items, _ = original_ids(trained.spec, item, trained.shape.num_items)
    return items.ids[:, np.newaxis]


def inputs_of(columns: Mapping[str, list[tf.Tensor]], num_samples: int) -> InteractionInputs:
    """Returns the inputs of the model from the values of each feature, by input and in order."""
    (user,), (item,) = columns[USER], columns[ITEM]
    return InteractionInputs(user[:, 0], item[:, 0])
