"""Gradients of tables as the gradients of the vectors that were looked up in them.

They let an optimizer sum the gradients of a row and move the row in one pass, see
`distributed_embeddings.ops.embedding_bag.update`.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from distributed_embeddings.ops import embedding_bag, kernels
from distributed_embeddings.ops.embedding_bag import Bags, Use
from distributed_embeddings.ops.traced_uses import traced_uses, use_of

_active = threading.local()


class BagGradient:
    """Gradient of a variable: its lookups with the gradients of their outputs.

    Attributes:
        variable: The variable, [rows, dim].
        uses: Its lookups.
        factor: Factor on all gradients, a float or a float32 scalar.
    """

    def __init__(self, variable: tf.Variable, uses: Sequence[Use], factor: Any = 1.0):
        self.variable, self.uses, self.factor = variable, list(uses), factor

    @classmethod
    def of_slices(cls, variable: tf.Variable, slices: tf.IndexedSlices) -> "BagGradient":
        """Returns a gradient that a tape or an optimizer has as slices, see `traced_uses`."""
        return cls(variable, *traced_uses(slices, variable.shape[0]))

    def scaled(self, factor: Any) -> "BagGradient":
        """Returns the gradient times a factor."""
        return BagGradient(self.variable, self.uses, self.factor * factor)

    def is_finite(self) -> tf.Tensor:
        """Returns whether all gradients are finite, a bool scalar."""
        return tf.reduce_all(
            [tf.reduce_all(tf.math.is_finite(gradient)) for _, gradient in self.uses]
        )

    def summed(self) -> tf.IndexedSlices:
        """Returns the gradient of each row that occurs, rows ascending, in the variable's dtype."""
        slices = embedding_bag.summed_gradient(self.uses, self.variable.shape, self.variable.dtype)
        if isinstance(self.factor, float) and self.factor == 1.0:
            return slices
        values = slices.values * tf.cast(self.factor, slices.dtype)
        return tf.IndexedSlices(values, slices.indices, slices.dense_shape)

    def update(
        self,
        optimizer: str,
        slots: Sequence[tf.Variable],
        learning_rate: Any,
        decay_factor: Any,
        epsilon: float = 0.0,
        beta1: float = 0.0,
        beta2: float = 0.0,
        **attributes: bool,
    ) -> tf.Operation | None:
        """Moves the variable; see `embedding_bag.update`."""
        scalars = (self.factor, learning_rate, decay_factor, epsilon, beta1, beta2)
        values = tf.stack([tf.cast(value, tf.float32) for value in scalars])
        return embedding_bag.update(
            self.variable, slots, optimizer, values, self.uses, **attributes
        )


class LookupRecord:
    """Lookups of variables during a recording.

    Args:
        tape: The tape that records the operations on the looked-up vectors.
        variables: Variables whose lookups are recorded; the tape does not see them otherwise.
    """

    def __init__(self, tape: tf.GradientTape, variables: Sequence[tf.Variable]):
        self._tape = tape
        self._graph = tf.compat.v1.get_default_graph()
        self._variables = {v.ref() for v in variables}
        self._lookups: list[tuple[tf.Variable, Bags, tf.Tensor]] = []

    def look_up(self, variable: tf.Variable, bags: Bags, dtype: tf.DType) -> tf.Tensor | None:
        """Looks up and records; None in another graph, or for a variable of another program."""
        is_same_graph = tf.compat.v1.get_default_graph() is self._graph
        if not is_same_graph or variable.ref() not in self._variables:
            return None
        with self._tape.stop_recording():
            output = embedding_bag.look_up(variable, bags, dtype)
        self._tape.watch(output)
        self._lookups.append((variable, bags, output))
        return output

    def gradient(self, target: tf.Tensor, sources: Sequence[tf.Variable]) -> list:
        """Returns the gradient of each source: a tensor, IndexedSlices, BagGradient or None."""
        outputs = [output for _, _, output in self._lookups]
        results = self._tape.gradient(target, [*sources, *outputs])
        uses: dict[Any, list[Use]] = {}
        for (variable, bags, _), gradient in zip(
            self._lookups, results[len(sources) :], strict=True
        ):
            if gradient is not None:
                uses.setdefault(variable.ref(), []).append((bags, gradient))
        gradients = []
        for source, gradient in zip(sources, results[: len(sources)], strict=True):
            source_uses = uses.get(source.ref(), [])
            if source_uses and gradient is not None:  # looked up in another way, too
                slices = as_slices(gradient)
                source_uses.append(use_of(slices.values, slices.indices, source.shape[0]))
            gradients.append(BagGradient(source, source_uses) if source_uses else gradient)
        return gradients


def as_slices(gradient: tf.Tensor | tf.IndexedSlices) -> tf.IndexedSlices:
    """Returns the gradient of a table as slices: a dense one, as of a regularizer, has all rows."""
    if isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.IndexedSlices(gradient, tf.range(tf.shape(gradient)[0]))


@contextlib.contextmanager
def record_lookups(
    tape: tf.GradientTape, variables: Sequence[tf.Variable]
) -> Iterator[LookupRecord]:
    """Returns a context in which lookups of the variables are recorded.

    Example:
        with tf.GradientTape() as tape, record_lookups(tape, tables) as lookups:
            loss = ...
        gradients = lookups.gradient(loss, variables)
    """
    record = LookupRecord(tape, variables)
    outer, _active.record = getattr(_active, "record", None), record
    try:
        yield record
    finally:
        _active.record = outer


def look_up(
    variable, bags: Bags, dtype: tf.DType, check: bool = False, compiled: bool = True
) -> tf.Tensor:
    """Looks rows up: compiled and recorded where possible, otherwise with a gradient of its own.

    Args:
        variable: Table, a variable or tensor [rows, dim].
        bags, dtype: See `embedding_bag.look_up`, which checks ids on a CPU.
        check: Whether an id outside its table raises InvalidArgumentError.
        compiled: Whether the compiled operations may be used.
    """
    if not compiled or not kernels.support(variable) or dtype not in kernels.DTYPES:
        return embedding_bag.plain_look_up(variable, bags, dtype, check=check)
    if check and tf.config.get_visible_devices("GPU"):
        bags = bags.checked()
    record = getattr(_active, "record", None)
    output = None if record is None else record.look_up(variable, bags, dtype)
    return embedding_bag.look_up(variable, bags, dtype) if output is None else output
