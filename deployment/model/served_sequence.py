"""Serving of SIM, DIEN and DIN: user, target item and history, with a vector per id."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import tensorflow as tf

from dataloading.histories.catalogue import read_catalogue
from dataloading.pipeline.batch import SequenceInputs
from dataloading.spec.history_channels import sequence_channels
from deployment.model.trained_model import TrainedModel, tables_of
from deployment.serving.interface import (
    ID_DTYPE,
    Interface,
    ServedFeature,
    ServedLookup,
    ServedTensor,
)
from nn.sequence.model import SequenceModel
from nn.sequence.sizes import HARD, SIM, SequenceModelConfig

USER, TARGET, HISTORY = "user_features", "target_features", "positive_history"
CANDIDATE_INPUT = TARGET


def interface(trained: TrainedModel) -> Interface:
    """Returns the interface of SIM, DIEN and DIN.

    Tables are named after the target's features, which share them with the history.
    """
    shape = trained.shape
    channels = sequence_channels(trained.spec, with_labels=False, with_negatives=False)
    length, num_items = shape.num_positions, len(shape.item_features)
    inputs, features, lookups = [], [], []
    if shape.user_features:
        inputs.append(ServedTensor(USER, ID_DTYPE, (len(shape.user_features),)))
    inputs.append(ServedTensor(TARGET, ID_DTYPE, (num_items,)))
    if length:
        inputs.append(ServedTensor(HISTORY, ID_DTYPE, (num_items, length)))
    for i, (name, rows) in enumerate(
        zip(shape.user_features, shape.user_cardinalities, strict=True)
    ):
        features.append(ServedFeature(name, USER, i, 1, rows, False))
        lookups.append(ServedLookup(name, USER, i, 1, None))
    for i, (table, rows) in enumerate(
        zip(shape.item_features, shape.item_cardinalities, strict=True)
    ):
        features.append(ServedFeature(table, TARGET, i, 1, rows, False))
        lookups.append(ServedLookup(table, TARGET, i, 1, None))
        if length:
            name = channels.positive[i]
            features.append(ServedFeature(name, HISTORY, i * length, length, rows, False))
            lookups.append(ServedLookup(table, HISTORY, i * length, length, None))
    dense_inputs = (HISTORY,) if length else ()
    if shape.model_type == SIM and shape.gsu == HARD:
        dense_inputs = (TARGET, HISTORY)
    return Interface(
        recipe=trained.recipe,
        inputs=tuple(inputs),
        features=tuple(features),
        lookups=tuple(lookups),
        tables=tables_of(trained),
        dense_inputs=dense_inputs,
        histories=(HISTORY,) if length else (),
    )


def one_row_model(trained: TrainedModel, policy: str) -> SequenceModel:
    """Builds the model with tables of one row, of a Keras dtype policy."""
    shape: SequenceModelConfig = trained.shape
    one_row = replace(
        shape,
        user_cardinalities=(1,) * len(shape.user_cardinalities),
        item_cardinalities=(1,) * len(shape.item_cardinalities),
    )
    return SequenceModel(one_row, dtype=policy)


def logits(
    model: SequenceModel, embeddings: tf.Tensor, tensors: Mapping[str, tf.Tensor]
) -> tf.Tensor:
    """Returns logits [batch, 1] from vectors, history ids, and target ids for hard search."""
    history = target = ()
    if HISTORY in tensors:
        history = tuple(tf.unstack(tensors[HISTORY], axis=1))
    if TARGET in tensors:
        target = tuple(tf.split(tensors[TARGET], len(model.config.item_features), axis=1))
    inputs = SequenceInputs((), target, history, ())
    return model.logits(tf.cast(embeddings, model.compute_dtype), inputs)


def arrays(interface: Interface, inputs: SequenceInputs) -> dict[str, np.ndarray]:
    """Converts the inputs of a loader's batch to the tensors of a request."""
    tensors = {
        USER: lambda: np.concatenate(inputs.user, axis=1),
        TARGET: lambda: np.concatenate(inputs.target, axis=1),
        HISTORY: lambda: np.stack(inputs.positive, axis=1),
    }
    return {tensor.name: tensors[tensor.name]().astype(tensor.dtype) for tensor in interface.inputs}


def candidates(trained: TrainedModel) -> np.ndarray:
    """Returns the catalogue of the data set, int64 [items, item features].

    Raises:
        ValueError: the data set is gone.
    """
    trained.require_data_set("the items that a recommender searches, with their features,")
    return np.stack(read_catalogue(trained.spec).features, axis=1)


def inputs_of(columns: Mapping[str, list[tf.Tensor]], num_samples: int) -> SequenceInputs:
    """Returns the inputs of the model from the values of each feature, by input and in order."""
    parts = {name: tuple(tensors) for name, tensors in columns.items()}
    return SequenceInputs(parts.get(USER, ()), parts[TARGET], parts.get(HISTORY, ()), ())
