"""Tables that are described by Keras layers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from distributed_embeddings.keras import check_keras_2, keras
from distributed_embeddings.layers.embedding import Embedding, warn_of_mask
from distributed_embeddings.planner import Table


@dataclass(frozen=True)
class TableSpec:
    """Table of an embedding layer.

    Attributes:
        fused: Whether it is looked up together with others.
        layer_type: Class of the layer that holds it; `original_type` is that of the given layer.
    """

    table: Table
    dtype: tf.DType
    combiner: str | None
    initializer: Any
    trainable: bool
    fused: bool
    layer_type: type
    original_type: type
    config: dict[str, Any]

    @property
    def shape(self) -> tuple[int, int]:
        return self.table.rows, self.table.dim


def read_table(t: int, layer: keras.layers.Layer) -> TableSpec:
    """Returns the table of the layer at position `t`.

    Raises:
        ValueError: It is not a layer of Keras 2, or has no input_dim or output_dim.
    """
    check_keras_2(layer, (keras.layers.Layer,), f"embeddings[{t}]")
    config = layer.get_config()
    sizes = config.get("input_dim"), config.get("output_dim")
    if not all(isinstance(size, (int, np.integer)) for size in sizes):
        raise ValueError(
            f"embeddings[{t}] ({type(layer).__name__} {layer.name}) must have input_dim and "
            f"output_dim in its get_config(), got {sizes[0]} and {sizes[1]}"
        )
    known = type(layer) in (keras.layers.Embedding, Embedding)
    if known and config.get("mask_zero"):
        warn_of_mask(layer.name)
    extras = ("embeddings_regularizer", "embeddings_constraint", "activity_regularizer")
    fused = known and not any(config.get(extra) for extra in extras)
    dtype = tf.as_dtype(layer.variable_dtype or "float32")
    key = f"{dtype.name}/{layer.trainable}" if fused else f"table {t}"
    return TableSpec(
        table=Table(layer.name, int(sizes[0]), int(sizes[1]), dtype.size, key),
        dtype=dtype,
        combiner=getattr(layer, "combiner", None),
        initializer=getattr(layer, "embeddings_initializer", None),
        trainable=layer.trainable,
        fused=fused,
        layer_type=Embedding if known else type(layer),
        original_type=type(layer),
        config=config,
    )


class Untracked(list):
    """A list that Keras does not search for layers and weights."""


class Scaled(keras.regularizers.Regularizer):
    """A regularizer times a factor."""

    def __init__(self, regularizer, factor: float):
        self.regularizer, self.factor = regularizer, factor

    def __call__(self, x):
        return self.factor * self.regularizer(x)

    def get_config(self):
        return {"regularizer": self.regularizer, "factor": self.factor}


def matrix_of(layer, group) -> tf.Variable:
    """Returns the table of a custom layer: its only weight of that shape."""
    shape = (group.rows, group.dim)
    matrices = [v for v in layer.weights if tuple(v.shape) == shape]
    if len(matrices) != 1:
        raise ValueError(
            f"{type(layer).__name__} {layer.name} should have one weight of shape {list(shape)}, "
            f"has {[list(v.shape) for v in layer.weights]}: its table cannot be read or set as one"
        )
    return matrices[0]
