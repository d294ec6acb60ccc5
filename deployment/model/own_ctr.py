"""Serving of a ranking model of one's own (`Definition.build_model`): its `call`, in which vectors
that were looked up before stand for those of its layer `embedding`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf
from distributed_embeddings.collectives import World

from dataloading.pipeline.batch import Inputs
from dataloading.spec import feature_spec as fs
from deployment.model.served_ctr import NUMERICAL, arrays, inputs_of, interface_with
from deployment.model.trained_model import TrainedModel, table_name
from deployment.serving.interface import Interface, ServedTable
from runtime.hardware.device import Device

__all__ = ["arrays", "inputs_of", "interface", "logits", "one_row_model"]


class _GivenVectors:
    """Stands for the layer `embedding` in a call of the model.

    Args:
        layer: that layer.
        ids: those that the model gets, integers [batch, ids per sample] of each feature.
        vectors: [batch, width of all lookups]; None: zeros.

    Attributes:
        features: number of the feature of each lookup of the call.
    """

    def __init__(self, layer: Any, ids: Sequence[tf.Tensor], vectors: tf.Tensor | None):
        self._layer, self._ids, self._vectors = layer, ids, vectors
        self.features: list[int] = []

    def __call__(self, inputs: Any, concatenate: bool = False) -> Any:
        shapes, numbers = [], {id(ids): number for number, ids in enumerate(self._ids)}
        for ids, lookup in zip(inputs, self._layer.plan.features, strict=True):
            if id(ids) not in numbers:
                raise ValueError(
                    "expected a model that calls its layer `embedding` with the ids of features as "
                    "it gets them, got another tensor: only lookups of features are served"
                )
            self.features.append(numbers[id(ids)])
            dim = self._layer.plan.tables[lookup.table].dim
            shapes.append([dim] if lookup.combined else [ids.shape[1], dim])
        widths = [tf.TensorShape(shape).num_elements() for shape in shapes]
        vectors = self._vectors
        if vectors is None:
            vectors = tf.zeros([tf.shape(self._ids[0])[0], sum(widths)])
        vectors = tf.cast(vectors, self._layer.compute_dtype)
        if concatenate:
            return vectors
        parts = tf.split(vectors, widths, axis=1)
        return [tf.reshape(part, [-1, *shape]) for part, shape in zip(parts, shapes, strict=True)]


class OneRowModel:
    """A model whose tables have one row each.

    Args:
        model: see above.
        spec: feature spec of its samples.

    Attributes:
        embedding: its layer of tables.
    """

    def __init__(self, model: Any, spec: fs.FeatureSpec):
        self.embedding, self.weights_to_save = model.embedding, model.weights_to_save
        self._model, self._hotnesses = model, spec.hotnesses(fs.CATEGORICAL_CHANNEL)
        self._num_numerical = sum(spec.hotnesses(fs.NUMERICAL_CHANNEL))

    def logits(
        self, vectors: tf.Tensor | None, numerical: tf.Tensor | None
    ) -> tuple[tf.Tensor, list[int]]:
        """Returns logits [batch, 1], and the number of the feature of each lookup.

        Args:
            vectors: of the lookups, [batch, width]; None: zeros.
            numerical: [batch, numerical features]; None without any, and for zeros.
        """
        some = numerical if vectors is None else vectors
        batch = 1 if some is None else tf.shape(some)[0]
        ids = tuple(tf.zeros([batch, hotness], tf.int64) for hotness in self._hotnesses)
        if numerical is None:
            numerical = tf.zeros([batch, self._num_numerical])
        self._model.embedding = lookups = _GivenVectors(self.embedding, ids, vectors)
        try:
            return self._model(Inputs(numerical, ids)), lookups.features
        finally:
            self._model.embedding = self.embedding


def one_row_model(trained: TrainedModel, policy: str) -> OneRowModel:
    """Builds the model with tables of one row, of a Keras dtype policy."""
    spec, build = trained.spec, trained.config.definition.build_model
    assert build is not None
    names = spec.channel(fs.CATEGORICAL_CHANNEL)
    features = {
        name: {**keys, "cardinality": 1} if name in names else keys
        for name, keys in spec.feature_spec.items()
    }
    device = Device("CPU", policy, 1.0)
    model = build(trained.config, replace(spec, feature_spec=features), World(), device)
    return OneRowModel(model, spec)


def interface(trained: TrainedModel) -> Interface:
    """Returns the interface of DLRM and DCNv2, with the tables and lookups of the model.

    Raises:
        ValueError: the model looks up something else than features, or the mean of several ids.
    """
    model, spec = one_row_model(trained, "float32"), trained.spec
    _, features = model.logits(None, None)
    plan, configs = model.embedding.plan, model.embedding.strategy.global_configs
    tables, lookups = dict[str, ServedTable](), []
    for number, lookup in zip(features, plan.features, strict=True):
        table, combiner = plan.tables[lookup.table].name, configs[lookup.table].get("combiner")
        feature = spec.channel(fs.CATEGORICAL_CHANNEL)[number]
        if combiner == "mean" and spec.hotness(feature) > 1:
            raise ValueError(
                f"table {table}: expected the combiner 'sum' or none for the "
                f"{spec.hotness(feature)} ids of '{feature}', got 'mean', which is not served"
            )
        rows, dim = trained.index.weights[table_name(table)].shape
        tables[table] = ServedTable(table, rows, dim)
        lookups.append((table, feature, "sum" if combiner == "mean" else combiner))
    return interface_with(trained, tuple(tables.values()), lookups)


def logits(
    model: OneRowModel, embeddings: tf.Tensor | None, tensors: Mapping[str, tf.Tensor]
) -> tf.Tensor:
    """Returns logits [batch, 1] from vectors (None without tables) and numerical features."""
    return model.logits(embeddings, tensors.get(NUMERICAL))[0]
