"""Gradient tape whose gradients are averaged over the ranks."""

import functools

import tensorflow as tf

from distributed_embeddings.collectives.horovod_modules import horovod_tensorflow
from distributed_embeddings.data_parallel.reduction import Reduction


class DistributedGradientTape(tf.GradientTape):
    """A tape whose `gradient` is that of the mean of all ranks' losses.

    Gradients of data-parallel tables stay `tf.IndexedSlices`, with every rank's rows.

    Args:
        gradtape: The tape that records or will record; both share the recording.
        *args, **kwargs: Horovod's options, see `Reduction`.
        reduction: The reduction of an optimizer, which checks that gradients are reduced.

    Example:
        with tf.GradientTape() as tape:
            loss = ...
        tape = dmp.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
    """

    def __init__(
        self, gradtape: tf.GradientTape, *args, reduction: Reduction | None = None, **kwargs
    ):
        # Without that of `tf.GradientTape`: `_inner` records.
        self._inner = getattr(gradtape, "_inner", gradtape)
        self._reduction = Reduction(*args, **kwargs) if reduction is None else reduction
        self._mark = reduction is None

    def __enter__(self):
        self._inner.__enter__()
        return self

    def __exit__(self, *args):
        return self._inner.__exit__(*args)

    def watch(self, tensor) -> None:
        """Watches a tensor or variable."""
        self._inner.watch(tensor)

    def stop_recording(self):
        """Returns a context in which nothing is recorded."""
        return self._inner.stop_recording()

    def reset(self) -> None:
        """Discards what was recorded."""
        self._inner.reset()

    def watched_variables(self):
        """Returns the variables that the recorded operations read."""
        return self._inner.watched_variables()

    def jacobian(self, *args, **kwargs):
        """Returns that of this rank alone."""
        return self._inner.jacobian(*args, **kwargs)

    def batch_jacobian(self, *args, **kwargs):
        """Returns that of this rank alone."""
        return self._inner.batch_jacobian(*args, **kwargs)

    def register_local_source(self, source: tf.Variable) -> None:
        """Treats a variable as the rank's own, as if it were marked."""
        self._reduction.own.add(source.ref())

    @tf.autograph.experimental.do_not_convert
    def gradient(
        self,
        target,
        sources,
        output_gradients=None,
        unconnected_gradients=tf.UnconnectedGradients.NONE,
        use_generic_names=True,  # of Horovod; names never depend on the graph
    ):
        """Returns the gradient over all ranks; every rank must call it."""
        flat = tf.nest.flatten(sources)
        gradients = self._inner.gradient(target, flat, output_gradients, unconnected_gradients)
        gradients = self._reduction.reduce(gradients, flat)
        if self._mark:
            _mark_reduced(flat)
        return tf.nest.pack_sequence_as(sources, gradients)

    def get_local_and_global_gradients(self, target, sources, output_gradients=None, **kwargs):
        """Returns (variable, gradient) pairs of the rank's own variables, and of the copies."""
        pairs = list(
            zip(sources, self.gradient(target, sources, output_gradients, **kwargs), strict=True)
        )
        own = [pair for pair in pairs if self._reduction.is_own(pair[0])]
        return own, [pair for pair in pairs if not self._reduction.is_own(pair[0])]


def _mark_reduced(sources) -> None:
    for source in sources:
        if isinstance(source, tf.Variable):
            source.de_reduced = True


@functools.cache
def mark_gradients_of_horovod() -> None:
    """Makes Horovod's tapes, from now on, mark the variables whose gradients they average.

    `DistributedOptimizer` accepts gradients of marked variables only.
    """
    tape = horovod_tensorflow()._DistributedGradientTape
    gradient = tape.gradient

    @functools.wraps(gradient)
    def marking(self, target, sources, *args, **kwargs):
        result = gradient(self, target, sources, *args, **kwargs)
        _mark_reduced(tf.nest.flatten(sources))
        return result

    tape.gradient = marking
