"""Lookups that made the gradient of a table, as the graph of a function shows them.

A tape sums the gradients of a lookup (`EmbeddingBagGradient`) before an optimizer gets them. The
update of a table sums them itself: where it takes the lookups in place of the sums, TensorFlow
removes the operation that made the sums from the function.
"""

from typing import Any

import tensorflow as tf

from distributed_embeddings.ops.embedding_bag import COLUMNS, Bags, Use


def traced_uses(slices: tf.IndexedSlices, num_rows: int) -> tuple[list[Use], Any]:
    """Returns the lookups of a gradient, and the factor on their gradients, a float or a scalar.

    In eager mode, and where the slices were changed in another way than by scalar factors, each
    slice is a lookup of one id.

    Args:
        slices: Gradient of a table; rows may repeat.
        num_rows: Rows of the table.
    """
    return _uses(slices.values, slices.indices, num_rows)


def use_of(values: tf.Tensor, rows: tf.Tensor, num_rows: int) -> Use:
    """Returns gradients [n, dim] of rows [n] as a lookup of one id per sample."""
    return Bags.single(rows[:, tf.newaxis], num_rows), values


def _uses(values: tf.Tensor, indices: tf.Tensor, num_rows: int) -> tuple[list[Use], Any]:
    if tf.is_symbolic_tensor(values) and tf.is_symbolic_tensor(indices):
        inputs = values.op.inputs
        match values.op.type:
            case "EmbeddingBagGradient":
                return _uses_of_operation(values.op), 1.0
            case "Identity" | "IdentityN":
                return _uses(inputs[values.value_index], indices, num_rows)
            case "Mul" if 0 in (inputs[0].shape.rank, inputs[1].shape.rank):
                scalar, rest = sorted(inputs, key=lambda x: x.shape.rank != 0)
                uses, factor = _uses(rest, indices, num_rows)
                return uses, factor * tf.cast(scalar, tf.float32)
            case "UnsortedSegmentSum" if inputs[1].op is indices.op and indices.op.type == "Unique":
                return _uses(inputs[0], indices.op.inputs[0], num_rows)  # Keras sums repeated rows
            case "ConcatV2" if indices.op.type == "ConcatV2":  # of several lookups
                pairs = zip(inputs[:-1], indices.op.inputs[:-1], strict=True)
                parts = [_uses(*pair, num_rows) for pair in pairs]
                if all(isinstance(factor, float) for _, factor in parts):
                    return [use for uses, _ in parts for use in uses], 1.0
    return [use_of(values, indices, num_rows)], 1.0


def _uses_of_operation(operation: tf.Operation) -> list[Use]:
    count = operation.get_attr("num_uses")
    ids, splits, weights, gradients = (
        operation.inputs[i * count : (i + 1) * count] for i in range(4)
    )
    ragged, num_columns = operation.get_attr("ragged"), operation.get_attr("num_columns")
    columns = {name: operation.get_attr(name) for name in COLUMNS}
    uses, first = [], 0
    for u in range(count):
        own = slice(first, first + num_columns[u])
        first = own.stop
        part = {name: tuple(values[own]) for name, values in columns.items()}
        bags = Bags(ids[u], **part, splits=splits[u] if ragged[u] else None, weights=weights[u])
        uses.append((bags, gradients[u]))
    return uses
