"""Serving of DLRM and DCNv2: numerical features, ids of any hotness, one vector per feature."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import tensorflow as tf

from dataloading.pipeline.batch import Inputs, RaggedIds
from dataloading.spec import feature_spec as fs
from deployment.model.trained_model import TrainedModel, tables_of
from deployment.serving.interface import (
    ID_DTYPE,
    Interface,
    ServedFeature,
    ServedLookup,
    ServedTable,
    ServedTensor,
)
from nn.ctr.model import CTRModel
from nn.ctr.sizes import CTRConfig
from nn.layers.fused_op import DotImplementation

NUMERICAL, CATEGORICAL = "numerical_features", "categorical_features"

ORIGINAL_IDS = CATEGORICAL

# Fills rows of a padded feature with fewer ids.
PADDING = -1


def interface(trained: TrainedModel) -> Interface:
    """Returns the interface of DLRM and DCNv2, with a table per categorical feature."""
    names = trained.spec.channel(fs.CATEGORICAL_CHANNEL)
    return interface_with(trained, tables_of(trained), [(name, name, "sum") for name in names])


def interface_with(
    trained: TrainedModel,
    tables: tuple[ServedTable, ...],
    lookups: Sequence[tuple[str, str, str | None]],
) -> Interface:
    """Returns the interface of a ranking model.

    A request has one tensor of all numerical features and one of all ids, in the order of their
    channels. Rows of split TFRecords may have fewer ids than the feature's hotness, filled with -1.

    Args:
        trained: the trained model.
        tables: its tables.
        lookups: names of table and feature, and combiner, of each lookup.
    """
    spec = trained.spec
    names, hotness = spec.channel(fs.CATEGORICAL_CHANNEL), spec.hotnesses(fs.CATEGORICAL_CHANNEL)
    num_numerical = sum(spec.hotnesses(fs.NUMERICAL_CHANNEL))
    padded = trained.config.data.dataset_type == "split_tfrecords"
    features = [
        ServedFeature(name, NUMERICAL, start, count, None, False)
        for name, (start, count) in zip(
            spec.channel(fs.NUMERICAL_CHANNEL),
            _spans(spec.hotnesses(fs.NUMERICAL_CHANNEL)),
            strict=True,
        )
    ]
    spans = dict(zip(names, _spans(hotness), strict=True))
    for name, span in spans.items():
        rows = spec.cardinality(name)
        features.append(ServedFeature(name, CATEGORICAL, *span, rows, padded))
    inputs = []
    if num_numerical:
        inputs.append(ServedTensor(NUMERICAL, "float32", (num_numerical,)))
    if names:
        inputs.append(ServedTensor(CATEGORICAL, ID_DTYPE, (sum(hotness),)))
    return Interface(
        recipe=trained.recipe,
        inputs=tuple(inputs),
        features=tuple(features),
        lookups=tuple(
            ServedLookup(table, CATEGORICAL, *spans[feature], combiner)
            for table, feature, combiner in lookups
        ),
        tables=tables,
        dense_inputs=(NUMERICAL,) if num_numerical else (),
    )


def _spans(counts) -> list[tuple[int, int]]:
    counts = list(counts)
    return list(zip(accumulate(counts, initial=0), counts, strict=False))


def one_row_model(trained: TrainedModel, policy: str) -> CTRModel:
    """Builds the model with tables of one row and a dot interaction of few operations."""
    shape: CTRConfig = trained.shape
    is_cross = shape.interaction == "cross"
    interaction = "cross" if is_cross else DotImplementation.GATHER.value
    tables = (1,) * len(shape.cardinalities)
    return CTRModel(replace(shape, cardinalities=tables, interaction=interaction), dtype=policy)


def logits(
    model: CTRModel, embeddings: tf.Tensor | None, tensors: Mapping[str, tf.Tensor]
) -> tf.Tensor:
    """Returns logits [batch, 1] from vectors (None without tables) and numerical features."""
    if embeddings is not None:
        embeddings = tf.cast(embeddings, model.compute_dtype)
    return model.logits(tensors.get(NUMERICAL), embeddings)


def arrays(interface: Interface, inputs: Inputs) -> dict[str, np.ndarray]:
    """Converts the inputs of a loader's batch to the tensors of a request."""
    tensors = {NUMERICAL: np.asarray(inputs.numerical, np.float32)}
    if inputs.categorical:
        counts = [f.count for f in interface.features if f.input == CATEGORICAL]
        columns = []
        for ids, count in zip(inputs.categorical, counts, strict=True):
            if isinstance(ids, RaggedIds):
                ragged = tf.RaggedTensor.from_row_splits(ids.values, ids.row_splits)
                ids = ragged.to_tensor(PADDING, [None, count])
            columns.append(np.asarray(ids))
        dtype = interface.tensor(CATEGORICAL).dtype
        tensors[CATEGORICAL] = np.concatenate(columns, axis=1).astype(dtype)
    return {tensor.name: tensors[tensor.name] for tensor in interface.inputs}


def inputs_of(columns: Mapping[str, list[tf.Tensor]], num_samples: int) -> Inputs:
    """Returns the inputs of the model from the values of each feature, by input and in order."""
    numerical = columns.get(NUMERICAL) or [tf.zeros([num_samples, 0])]
    return Inputs(tf.concat(numerical, axis=1), tuple(columns.get(CATEGORICAL, ())))
