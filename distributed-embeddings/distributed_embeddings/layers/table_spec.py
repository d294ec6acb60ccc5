"""Tables that are described by Keras layers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from distributed_embeddings.keras import check_keras_2, keras
from distributed_embeddings.layers.embedding import Embedding, refuse_mask
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
        ValueError: It is not a layer of Keras 2, has no input_dim or output_dim, or has an argument
            that a table does not honor.
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
    name = f"embeddings[{t}] ({type(layer).__name__} {layer.name})"
    _check_arguments(layer, name)
    if known:
        _check_values(layer, name)
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


def _check_arguments(layer: keras.layers.Layer, name: str) -> None:
    """Raises ValueError for an argument that a table of a `DistributedEmbedding` does not honor."""
    if getattr(layer, "mask_zero", False):
        refuse_mask(name)
    if layer.dynamic:
        raise ValueError(f"{name}: expected dynamic=False, got dynamic=True: remove it")
    if not isinstance(layer, keras.layers.Embedding):
        return
    if getattr(layer, "sparse", False):
        raise ValueError(
            f"{name}: expected dense outputs, got sparse=True: remove it; sparse ids need "
            "distributed_embeddings.Embedding with a combiner"
        )
    if getattr(layer, "_use_one_hot_matmul", False):
        raise ValueError(
            f"{name}: expected rows that are gathered, got use_one_hot_matmul=True: remove it; the "
            "values are the same"
        )


def initial_values(layer: keras.layers.Layer) -> list | None:
    """Returns the values that a given layer starts with, None if its initializer draws them.

    These are the argument `weights`, else the variables of a built layer.
    """
    if layer._initial_weights is not None:  # until the layer's first call, as in Keras
        return layer._initial_weights
    return layer.weights if layer.built and layer.weights else None


def _check_values(layer: keras.layers.Layer, name: str) -> None:
    """Raises ValueError for another argument `weights` than one table of the layer's size."""
    values = layer._initial_weights
    if values is None:
        return
    is_list = isinstance(values, (list, tuple))
    shapes = [tuple(np.shape(value)) for value in values] if is_list else tuple(np.shape(values))
    shape = (layer.input_dim, layer.output_dim)
    if shapes != [shape]:
        raise ValueError(
            f"{name}: expected weights=[array] of shape {shape}, got "
            f"{'arrays' if is_list else 'an array'} of shape {shapes!s:.200}"
        )


class Untracked(list):
    """A list that Keras does not search for layers and weights."""
