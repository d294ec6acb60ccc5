"""Keras optimizers, new and legacy, that average gradients over the ranks."""

import weakref
from collections.abc import Sequence

import tensorflow as tf

from distributed_embeddings.data_parallel.gradient_tape import (
    DistributedGradientTape,
    mark_gradients_of_horovod,
)
from distributed_embeddings.data_parallel.reduction import Reduction
from distributed_embeddings.exchange.gradients import Gradient, sum_duplicates
from distributed_embeddings.exchange.row_exchange import traced_graph, unique_name
from distributed_embeddings.keras import check_keras_2, keras
from distributed_embeddings.precision import precise

_EAGER = object()  # in place of a graph


class _ClippingOptimizer:
    """Mixin for an optimizer's class that computes `global_clipnorm` over all ranks.

    Keras would take the norm of the gradients that a rank has: each rank would move the
    copied weights by another factor. Keras also counts the gradients of a repeated row one by one.
    """

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        """Clips and applies gradients; every rank must call it."""
        pairs = list(grads_and_vars)
        if self.clipnorm:
            self._check_clipnorm([v for g, v in pairs if g is not None])
        if self.global_clipnorm:
            pairs = self._clip_by_global_norm(pairs)
        return super().apply_gradients(pairs, *args, **kwargs)

    def _check_clipnorm(self, variables) -> None:
        own = [v for v in variables if self._reduction.is_own(v) and v.shape.num_elements()]
        if own and self._reduction.world.size > 1:
            raise ValueError(
                f"clipnorm={self.clipnorm}: expected no clipping by variable, got {own[0].name}, "
                "which holds several tables, or slices of tables, of this rank: their norms depend "
                "on the number of ranks. Use global_clipnorm or clipvalue instead"
            )

    def _clip_by_global_norm(self, pairs):
        gradients, variables = zip(*pairs, strict=True) if pairs else ((), ())
        norm = _global_norm(gradients, variables, self._reduction)
        clipped, _ = tf.clip_by_global_norm(gradients, self.global_clipnorm, use_norm=norm)
        return list(zip(clipped, variables, strict=True))

    def _clip_gradients(self, grads):
        """Clips by value only: Keras' optimizers call it after `apply_gradients` has clipped."""
        return grads if self.global_clipnorm else super()._clip_gradients(grads)

    @property
    def _global_clipnorm_fn(self):
        """Function by which legacy optimizers clip pairs: none, `apply_gradients` has clipped."""
        return lambda pairs: pairs

    @_global_clipnorm_fn.setter
    def _global_clipnorm_fn(self, function):
        pass


class _OwnState:
    """Mixin for an optimizer's class: the state of a rank's own variable is the rank's own, too."""

    def add_variable_from_reference(self, model_variable, *args, **kwargs):
        """Adds state of a variable."""
        return self._like(model_variable, super().add_variable_from_reference, *args, **kwargs)

    def add_slot(self, var, *args, **kwargs):
        """Adds state of a variable, for Keras' legacy optimizers."""
        return self._like(var, super().add_slot, *args, **kwargs)

    def _like(self, variable, make, *args, **kwargs):
        state = make(variable, *args, **kwargs)
        if self._reduction.is_own(variable):
            state.de_local = True
        return state


class _ReducingOptimizer:
    """Mixin for an optimizer's class that makes `minimize` and `fit` reduce."""

    def register_local_var(self, variable: tf.Variable) -> None:
        """Treats a variable as the rank's own, as if it were marked."""
        self._reduction.own.add(variable.ref())

    def compute_gradients(self, loss, var_list, tape=None):
        """Returns (gradient of all ranks' mean loss, variable) pairs; every rank must call it."""
        compute = getattr(super(), "compute_gradients", None) or super()._compute_gradients
        return compute(loss, var_list, tape=self._reducing(tape))

    def _compute_gradients(self, loss, var_list, grad_loss=None, tape=None):
        """Reduces for `minimize` of Keras' legacy optimizers."""
        return super()._compute_gradients(loss, var_list, grad_loss, self._reducing(tape))

    def _reducing(self, tape):
        graph = traced_graph()
        self._reduced_in = _EAGER if graph is None else weakref.ref(graph)
        if isinstance(tape, DistributedGradientTape):
            return tape
        tape = tf.GradientTape() if tape is None else tape
        return DistributedGradientTape(tape, reduction=self._reduction)

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        """Applies gradients that `minimize`, `fit` or a distributed tape has reduced.

        The tape is `DistributedGradientTape`, or Horovod's own for variables that are copies.

        Raises:
            ValueError: they were not reduced; every rank would train a model of its own.
        """
        pairs = list(grads_and_vars)
        self._check_reduced(pairs)
        return super().apply_gradients(pairs, *args, **kwargs)

    def _check_reduced(self, pairs) -> None:
        """Own gradients count where they were computed, a tape's variables from then on."""
        graph, reduced_in = traced_graph(), self._reduced_in
        if graph is None and reduced_in is _EAGER:
            self._reduced_in = None
            return
        if graph is not None and isinstance(reduced_in, weakref.ref) and reduced_in() is graph:
            return
        missed = [
            variable.name
            for gradient, variable in pairs
            if gradient is not None and not getattr(variable, "de_reduced", False)
        ]
        if missed:
            raise ValueError(
                f"apply_gradients got gradients of {len(missed)} variables ({missed[0]}, ...) that "
                f"were not averaged over the {self._reduction.world.size} ranks: each would train "
                "a model of its own. Take them from dmp.DistributedGradientTape(tape).gradient("
                "...), or call minimize()"
            )


def DistributedOptimizer(
    optimizer,
    name=None,
    *,
    backward_passes_per_step=1,
    average_aggregated_gradients=False,
    **kwargs,
):
    """Makes a Keras optimizer, new or legacy, average gradients in `fit` and `minimize`.

    In a loop of your own use `DistributedGradientTape`, with this or with a plain optimizer:
    `apply_gradients` alone averages nothing, and raises an error. Gradients of Horovod's own tape
    are accepted, too.

    `global_clipnorm` is the norm of the gradients of all ranks' variables: N ranks clip as one. An
    optimizer that is not wrapped clips by the gradients that a rank has, so that copied weights
    drift apart.

    Args:
        optimizer: returned itself, with its class extended. It must not have state yet.
        name, average_aggregated_gradients: accepted and without effect.
        backward_passes_per_step: 1.
        **kwargs: Horovod's options, see `Reduction`.

    Raises:
        ValueError: an option that is not supported, an optimizer with state, or one of Keras 3.
            When gradients are applied: `clipnorm`, on several ranks that have tables of their own.
    """
    if backward_passes_per_step != 1:
        raise ValueError(
            f"backward_passes_per_step={backward_passes_per_step} is not supported: add gradients "
            "up in a loop of your own and hand their sum to apply_gradients"
        )
    kinds = (keras.optimizers.Optimizer, keras.optimizers.legacy.Optimizer)
    check_keras_2(optimizer, kinds, "optimizer")
    reduction = Reduction(**kwargs)
    if isinstance(optimizer, _ReducingOptimizer):
        return optimizer
    innermost = getattr(optimizer, "inner_optimizer", optimizer)  # of loss scaling
    if reduction.world.size == 1:
        if getattr(innermost, "global_clipnorm", None):
            _extend(innermost, _ClippingOptimizer, reduction)
        return optimizer
    if any(variable.shape.rank for variable in optimizer.variables()):
        raise ValueError(
            "the optimizer has state already, of which it is not known what belongs to this rank's "
            "own tables: wrap it before its first step, then restore it"
        )
    _extend(innermost, _ClippingOptimizer, reduction)
    _extend(innermost, _OwnState, reduction)
    _extend(optimizer, _ReducingOptimizer, reduction)
    object.__setattr__(optimizer, "_reduced_in", None)
    mark_gradients_of_horovod()
    return optimizer


def _extend(optimizer, extension: type, reduction: Reduction) -> None:
    """Adds a mixin to an optimizer's class.

    It keeps name and module, so that a saved model loads without this one.
    """
    if isinstance(optimizer, extension):
        return
    base = type(optimizer)
    extended = type(base.__name__, (extension, base), {"__module__": base.__module__})
    object.__setattr__(optimizer, "__class__", extended)
    object.__setattr__(optimizer, "_reduction", reduction)


def _global_norm(
    gradients: Sequence[Gradient], variables: Sequence, reduction: Reduction
) -> tf.Tensor:
    """Returns the norm of all ranks' gradients, counting copies once; collective."""
    copied, own = [tf.zeros([])], [tf.zeros([])]
    for gradient, variable in zip(gradients, variables, strict=True):
        if gradient is not None:
            squares = own if reduction.is_own(variable) else copied
            squares.append(_sum_of_squares(gradient))
    (total,) = reduction.world.all_reduce(
        [tf.add_n(own)], "sum", unique_name("data_parallel.global_norm")
    )
    return tf.sqrt(total + tf.add_n(copied))


def _sum_of_squares(gradient: Gradient) -> tf.Tensor:
    if isinstance(gradient, tf.IndexedSlices):
        gradient = sum_duplicates(gradient).values
    return tf.cast(tf.reduce_sum(tf.square(precise(gradient))), tf.float32)
