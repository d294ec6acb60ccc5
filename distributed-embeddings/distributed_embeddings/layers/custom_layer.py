"""Embedding layers with code, a regularizer or a constraint of their own, as tables of a rank."""

import numpy as np
import tensorflow as tf

from distributed_embeddings.keras import keras
from distributed_embeddings.layers.table_spec import TableSpec, initial_values
from distributed_embeddings.planner.types import DATA_PARALLEL, Group


def build_custom_layer(
    spec: TableSpec, template: keras.layers.Layer, group: Group, trainable: bool, num_ranks: int
) -> keras.layers.Layer:
    """Creates a layer of the table's own class, with the columns of this rank.

    Args:
        template: The layer that describes the table.
        trainable: Whether the tables of all layers are.
    """
    config = {**spec.config, "output_dim": group.dim}
    layer = spec.layer_type.from_config(config)
    layer.trainable = trainable and spec.trainable
    for name in ("embeddings_regularizer", "activity_regularizer"):
        regularizer = getattr(layer, name, None)
        if group.kind != DATA_PARALLEL and regularizer is not None:
            # Gradients of the rank's own variables will be divided by the number of ranks.
            setattr(layer, name, _Scaled(regularizer, num_ranks))
    if not layer.built:
        layer.build([None, 1])
        layer.built = True
    (shard,) = group.shards
    values = initial_values(template)
    if values is not None:
        _set_values(layer, values, shard)
    return layer


def _set_values(layer: keras.layers.Layer, values: list, shard) -> None:
    """Sets a layer of a class of its own, with the columns of `shard`, from that of whole rows.

    Raises:
        ValueError: The values are not those of the layer.
    """
    arrays = [np.asarray(value) for value in values]
    parts = [
        array
        if array.ndim == 0 or array.shape == tuple(variable.shape)
        else array[..., shard.column_start : shard.column_end]
        for variable, array in zip(layer.weights, arrays, strict=False)
    ]
    shapes = [tuple(variable.shape) for variable in layer.weights]
    if len(arrays) != len(shapes) or [part.shape for part in parts] != shapes:
        raise ValueError(
            f"{type(layer).__name__} {layer.name}: expected values of shapes {shapes}, got "
            f"{[array.shape for array in arrays]}: pass `weights` in the order of the layer's"
        )
    layer.set_weights(parts)


class _Scaled(keras.regularizers.Regularizer):
    """A regularizer times a factor."""

    def __init__(self, regularizer, factor: float):
        self.regularizer, self.factor = regularizer, factor

    def __call__(self, x):
        return self.factor * self.regularizer(x)

    def get_config(self):
        return {"regularizer": self.regularizer, "factor": self.factor}


def holds_for_columns(layer: keras.layers.Layer) -> bool:
    """Returns whether constraint and regularizers of a layer hold for some of its columns."""
    sums = (type(None), keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
    return getattr(layer, "embeddings_constraint", None) is None and all(
        isinstance(getattr(layer, name, None), sums)
        for name in ("embeddings_regularizer", "activity_regularizer")
    )


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
