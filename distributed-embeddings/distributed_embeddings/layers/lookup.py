"""Lookup of ids in one tensor or variable."""

import tensorflow as tf

from distributed_embeddings.exchange import bag_gradients
from distributed_embeddings.exchange.ids import integer_ids, read_ids
from distributed_embeddings.ops.embedding_bag import Bags, combine_fixed, splits_of


def embedding_lookup(param, ids, combiner: str | None = None):
    """Looks up the rows of 2-D ids, and combines those of a sample.

    Args:
        param: Table, a tensor or variable [rows, dim].
        ids: int32 or int64 [batch, hotness], dense, ragged or sparse; columns of sparse ids do not
            matter.
        combiner: None, "sum" or "mean".

    Returns:
        In the dtype of `param`: [batch, dim], zeros for a sample without ids. Without combiner
        [batch, hotness, dim], ragged for ragged ids.

    Raises:
        TypeError: `param` is not a tensor.
        ValueError: `ids` are not 2-D, an unknown combiner, or sparse ids without one.
    """
    if not tf.is_tensor(param):
        raise TypeError(f"param must be a tensor or variable, got {type(param).__name__}")
    if ids.shape.rank != 2:
        raise ValueError(f"ids must be 2-D, [batch, hotness]; got {ids.shape}")
    if combiner not in (None, "sum", "mean"):
        raise ValueError(f"combiner: expected None, 'sum' or 'mean', got {combiner!r}")
    return look_up(param, ids, combiner, param.dtype, "embedding_lookup")


def look_up(
    table, ids, combiner: str | None, dtype: tf.DType, name: str, compiled: bool = True
) -> tf.Tensor | tf.RaggedTensor:
    """Looks up, and with a combiner pools, ids of one table, a tensor or variable [rows, dim].

    Args:
        ids: Dense [..., hotness], or ragged or sparse [batch, None].
        dtype: Of the result.
        name: Of the layer or function, for messages.
        compiled: Whether the compiled operations may be used.
    """
    if isinstance(ids, (tf.RaggedTensor, tf.SparseTensor)):
        if combiner is None and isinstance(ids, tf.SparseTensor):
            raise ValueError(
                f"{name}: sparse ids need a combiner: use combiner='sum' or 'mean', or give dense "
                "or ragged ids"
            )
        read = read_ids(ids, combiner, name)
        if combiner is None:
            return ids.with_values(tf.cast(tf.gather(table, read.values), dtype))
        bags = Bags.single(read.values, table.shape[0], combiner == "mean", splits_of(read.lengths))
        return bag_gradients.look_up(table, bags, dtype, compiled=compiled)
    ids = integer_ids(ids)
    if combiner is None:
        return tf.cast(tf.gather(table, ids), dtype)
    if ids.shape[-1] is None:
        return tf.cast(combine_fixed(tf.gather(table, ids), combiner), dtype)
    flat = tf.reshape(ids, [-1, ids.shape[-1]])
    bags = Bags(flat, (ids.shape[-1],), (0,), (table.shape[0],), (combiner == "mean",))
    pooled = bag_gradients.look_up(table, bags, dtype, compiled=compiled)
    shape = tf.concat([tf.shape(ids)[:-1], table.shape[1:]], axis=0)
    return tf.ensure_shape(tf.reshape(pooled, shape), [*ids.shape[:-1], table.shape[1]])


def read_var_no_copy(res_var):
    """Returns a variable's value, for reading only; gradients flow to the variable.

    TensorFlow returns the variable's own memory, without a copy, unless it was gathered from or
    written to by rows before: then it copies all of it once.
    """
    return res_var.read_value()
