"""DLRM and DCNv2 as served: numericals, ids of any hotness, one vector a feature."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

import numpy as np
import tensorflow as tf

from dataloading.pipeline.batch import Inputs, RaggedIds
from dataloading.spec import feature_spec as fs
from deployment.model.serving_spec import ID_DTYPE, ServingSpec
from deployment.model.trained_model import TrainedModel, tables_of
from deployment.serving.interface import ServedFeature, ServedLookup, ServedTensor
from nn.ctr.config import RankingConfig
from nn.ctr.model import RankingModel
from nn.layers.interaction import SPLIT

NUMERICAL, CATEGORICAL = "numerical_features", "categorical_features"

# Where a row of a padded feature has no id.
PADDING = -1


def serving_spec(trained: TrainedModel) -> ServingSpec:
    """The parts of DLRM and DCNv2.

    A request has all numericals of a row side by side, and all its ids, features in the order of
    their channel. Rows of split TFRecords may have fewer ids than the feature's hotness: there -1
    fills the rest.
    """
    spec = trained.spec
    names, hotness = spec.channel(fs.CATEGORICAL_CHANNEL), spec.hotnesses(fs.CATEGORICAL_CHANNEL)
    padded = trained.config.data.dataset_type == "split_tfrecords"
    features = [
        ServedFeature(name, NUMERICAL, start, count, None, False)
        for name, (start, count) in zip(
            spec.channel(fs.NUMERICAL_CHANNEL),
            _spans(spec.hotnesses(fs.NUMERICAL_CHANNEL)),
            strict=True,
        )
    ]
    lookups = []
    for name, (start, count) in zip(names, _spans(hotness), strict=True):
        rows = spec.cardinality(name)
        features.append(ServedFeature(name, CATEGORICAL, start, count, rows, padded))
        lookups.append(ServedLookup(name, CATEGORICAL, start, count, "sum"))
    inputs = []
    if trained.shape.num_numerical:
        inputs.append(ServedTensor(NUMERICAL, "float32", (trained.shape.num_numerical,)))
    if names:
        inputs.append(ServedTensor(CATEGORICAL, ID_DTYPE, (sum(hotness),)))
    return ServingSpec(
        inputs=tuple(inputs),
        features=tuple(features),
        lookups=tuple(lookups),
        tables=tuple(tables_of(trained)),
        dense_inputs=(NUMERICAL,) if trained.shape.num_numerical else (),
    )


def _spans(counts) -> list[tuple[int, int]]:
    """(start, count) of pieces that stand side by side."""
    counts = list(counts)
    return list(zip(accumulate(counts, initial=0), counts, strict=False))


def one_row_model(shape: RankingConfig, policy: str) -> RankingModel:
    """The model with tables of one row, its dot interaction in few operations of TensorFlow.

    Args:
        policy: Keras dtype policy.
    """
    interaction = shape.interaction if shape.interaction == "cross" else SPLIT
    tables = (1,) * len(shape.cardinalities)
    return RankingModel(replace(shape, cardinalities=tables, interaction=interaction), dtype=policy)


def logits(
    model: RankingModel, embeddings: tf.Tensor | None, tensors: Mapping[str, tf.Tensor]
) -> tf.Tensor:
    """[batch, 1] from vectors, of which a model without tables has none, and numericals."""
    if embeddings is not None:
        embeddings = tf.cast(embeddings, model.compute_dtype)
    return model.logits(tensors.get(NUMERICAL), embeddings)


def arrays(serving_spec: ServingSpec, inputs: Inputs) -> dict[str, np.ndarray]:
    """The tensors of a request from what a loader yields."""
    found = {NUMERICAL: np.asarray(inputs.numerical, np.float32)}
    if inputs.categorical:
        counts = [f.count for f in serving_spec.features if f.input == CATEGORICAL]
        columns = [
            _padded(ids, count) if isinstance(ids, RaggedIds) else np.asarray(ids)
            for ids, count in zip(inputs.categorical, counts, strict=True)
        ]
        dtype = serving_spec.tensor(CATEGORICAL).dtype
        found[CATEGORICAL] = np.concatenate(columns, axis=1).astype(dtype)
    return {tensor.name: found[tensor.name] for tensor in serving_spec.inputs}


def _padded(ids: RaggedIds, count: int) -> np.ndarray:
    """[rows, count]: a row's ids, and -1 behind them."""
    values, splits = np.asarray(ids.values), np.asarray(ids.row_splits)
    there = np.arange(count) < np.diff(splits)[:, None]
    filled = np.full(there.shape, PADDING, values.dtype)
    filled[there] = values
    return filled
