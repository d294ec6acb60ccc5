"""Keeps collectives in compiled functions, which TensorFlow optimises on each rank alone.

Horovod's operations are not stateful: a `tf.function` drops a collective that none of its results
needs on this rank, while the other ranks wait for it, and computes a collective of constants while
it optimises the function, and never again.

Every collective therefore gets an input whose value or shape is not known before the function runs,
and feeds a stateful operation. In eager mode nothing is added.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType

import tensorflow as tf

_names_in_graph: weakref.WeakKeyDictionary[tf.Graph, Counter[str]] = weakref.WeakKeyDictionary()


def numbered(name: str) -> str:
    """Returns the name, with a number from its second use in the function being traced.

    Horovod ignores the name scopes by which TensorFlow distinguishes the uses.
    """
    if tf.executing_eagerly():
        return name
    names = _names_in_graph.setdefault(tf.compat.v1.get_default_graph(), Counter())
    names[name] += 1
    return name if names[name] == 1 else f"{name}.{names[name]}"


def variable_shape(tensor: tf.Tensor, hvd: ModuleType, world_size: int) -> tf.Tensor:
    """Returns the tensor, without a copy, with a shape that TensorFlow cannot compute in advance.

    In compiled functions it gets a last dimension of 1 (a scalar two): TensorFlow computes the size
    of a single unknown dimension from the others. `fixed_shape` removes what was added.
    """
    if tf.executing_eagerly():
        return tensor
    shape = [1, 1] if tensor.shape.rank == 0 else tf.concat([tf.shape(tensor), [1]], axis=0)
    return tf.reshape(tensor, shape + unknown_zero(hvd, world_size))


def fixed_shape(result: tf.Tensor, shape: tf.TensorShape | Sequence[int | None]) -> tf.Tensor:
    """Returns the result of a collective of `variable_shape`, without a copy, with `shape`."""
    if tf.executing_eagerly():
        return result
    axis = [0, 1] if tf.TensorShape(shape).rank == 0 else [-1]
    return tf.ensure_shape(tf.squeeze(result, axis), shape)


def keep(result: tf.Tensor) -> None:
    """Makes a compiled function execute the collective of this result on every rank.

    The assertion, which is stateful, depends on data: TensorFlow also drops an operation that has
    nothing but control dependencies on it. The host knows the size without waiting for a GPU.
    """
    if not tf.executing_eagerly():
        size = tf.size(result)
        _run_independently(tf.raw_ops.Assert(condition=size >= 0, data=[size]))


def run(
    collective: Callable[[tf.Tensor], tf.Tensor],
    tensor: tf.Tensor,
    shape: tf.TensorShape | Sequence[int | None],
    hvd: ModuleType,
    world_size: int,
) -> tf.Tensor:
    """Returns the result, of `shape`, of a collective of one tensor of any dtype."""
    result = collective(variable_shape(to_wire(tensor), hvd, world_size))
    keep(result)
    return from_wire(fixed_shape(result, shape), tensor.dtype)


def to_wire(tensor: tf.Tensor) -> tf.Tensor:
    """Returns 16-bit integers for bfloat16, which Horovod does not support."""
    return tf.bitcast(tensor, tf.uint16) if tensor.dtype == tf.bfloat16 else tensor


def from_wire(tensor: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Returns what `to_wire` made of a tensor of `dtype`, converted back."""
    return tf.bitcast(tensor, tf.bfloat16) if dtype == tf.bfloat16 else tensor


def unknown_zero(hvd: ModuleType, world_size: int) -> tf.Tensor:
    """Returns a scalar 0 that TensorFlow cannot compute in advance."""
    size = hvd.size_op()  # stateful, therefore never computed in advance
    _run_independently(size.op)
    return size - world_size


def _run_independently(operation: tf.Operation) -> None:
    """Exempts a stateful operation from the sequence in which functions execute those.

    Otherwise each collective waits for the one before it. The next call of the function waits for
    it all the same: both use the same names. TensorFlow records that except for gradients.
    """
    graph = tf.compat.v1.get_default_graph()
    manager = getattr(graph, "experimental_acd_manager", None)
    if manager is not None:
        manager.run_independently(operation)
    elif hasattr(graph, "control_outputs"):
        graph.control_outputs.append(operation)
