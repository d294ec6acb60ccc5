"""Training on several ranks with Keras; names, arguments and defaults are those of Horovod.

A variable marked `de_local = True` is a rank's own: a table that `DistributedEmbedding` placed
there. The backward pass has already brought it every rank's part: its gradient is divided by the
number of ranks, and it is never broadcast. All other variables are copies, whose gradients are
averaged. With the mean over a rank's samples as the loss and batches of one size, N ranks take the
step that one rank would take with all samples. On one process all of this is the identity.
"""

import weakref

import tensorflow as tf

from nn.embedding.exchange.table_wise import traced_graph, unique_name
from nn.embedding.merlin_api.clipping import ClippingOptimizer
from nn.embedding.merlin_api.reduction import Reduction
from nn.keras import keras
from runtime.cluster import distributed

_EAGER = object()  # in place of a graph


class DistributedGradientTape(tf.GradientTape):
    """A tape whose `gradient` is that of the mean of all ranks' losses.

    Gradients of data-parallel tables stay `tf.IndexedSlices`, with every rank's rows.

    Args:
        gradtape: The tape that records or will record; both share the recording.
        *args, **kwargs: Horovod's options, see `nn.embedding.merlin_api.reduction.Reduction`.
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
            for source in flat:
                if isinstance(source, tf.Variable):
                    source.de_reduced = True
        return tf.nest.pack_sequence_as(sources, gradients)

    def get_local_and_global_gradients(self, target, sources, output_gradients=None, **kwargs):
        """Returns (variable, gradient) pairs of the rank's own variables, and of the copies."""
        pairs = list(
            zip(sources, self.gradient(target, sources, output_gradients, **kwargs), strict=True)
        )
        own = [pair for pair in pairs if self._reduction.is_own(pair[0])]
        return own, [pair for pair in pairs if not self._reduction.is_own(pair[0])]


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
        """Applies gradients that `minimize`, `fit` or `DistributedGradientTape` has reduced.

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

    def add_variable_from_reference(self, model_variable, *args, **kwargs):
        """Adds state of a variable; that of a rank's own variable is its own, too."""
        return self._like(model_variable, super().add_variable_from_reference, *args, **kwargs)

    def add_slot(self, var, *args, **kwargs):
        """Adds state of a variable, for Keras' legacy optimizers."""
        return self._like(var, super().add_slot, *args, **kwargs)

    def _like(self, variable, make, *args, **kwargs):
        state = make(variable, *args, **kwargs)
        if self._reduction.is_own(variable):
            state.de_local = True
        return state


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
    `apply_gradients` alone averages nothing, and raises an error.

    `global_clipnorm` is the norm of the gradients of all ranks' variables: N ranks clip as one. An
    optimizer that is not wrapped clips by the gradients that a rank has, so that copied weights
    drift apart.

    Args:
        optimizer: returned itself, with its class extended. It must not have state yet.
        name, average_aggregated_gradients: accepted and without effect.
        backward_passes_per_step: 1.
        **kwargs: Horovod's options, see `nn.embedding.merlin_api.reduction.Reduction`.

    Raises:
        ValueError: an option that is not supported, or an optimizer with state. When gradients are
            applied: `clipnorm`, on several ranks that have tables of their own.
    """
    if backward_passes_per_step != 1:
        raise ValueError(
            f"backward_passes_per_step={backward_passes_per_step} is not supported: add gradients "
            "up in a loop of your own and hand their sum to apply_gradients"
        )
    reduction = Reduction(**kwargs)
    if isinstance(optimizer, _ReducingOptimizer):
        return optimizer
    innermost = getattr(optimizer, "inner_optimizer", optimizer)  # of loss scaling
    if reduction.world.size == 1:
        if getattr(innermost, "global_clipnorm", None):
            _extend(innermost, ClippingOptimizer, reduction)
        return optimizer
    if any(variable.shape.rank for variable in optimizer.variables()):
        raise ValueError(
            "the optimizer has state already, of which it is not known what belongs to this rank's "
            "own tables: wrap it before its first step, then restore it"
        )
    _extend(innermost, ClippingOptimizer, reduction)
    _extend(optimizer, _ReducingOptimizer, reduction)
    object.__setattr__(optimizer, "_reduced_in", None)
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


def broadcast_variables(model_vars, root_rank: int = 0) -> None:
    """Gives every rank the values of rank `root_rank`, except of each rank's own variables.

    Args:
        model_vars: Variables, the copies among them in the same order on every rank. State of a
            plain optimizer for a rank's own tables is not marked: leave it out, or use
            `DistributedOptimizer`.

    Raises:
        ValueError: No such rank, or (in eager mode) ranks with different variables.
    """
    world = distributed.current()
    if not 0 <= root_rank < world.size:
        raise ValueError(f"root_rank must be one of the {world.size} ranks, got {root_rank}")
    copies = [variable for variable in model_vars if not getattr(variable, "de_local", False)]
    if world.size == 1:
        return
    if tf.executing_eagerly():
        world.check_agreement(
            {f"variable {i}": [v.shape.as_list(), v.dtype.name] for i, v in enumerate(copies)}
        )
    values = world.broadcast(copies, unique_name("data_parallel.variables"), root_rank)
    for variable, value in zip(copies, values, strict=True):
        variable.assign(value)


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Gives every rank the model and the optimizer of one, before and after the first batch of fit.

    Layers without weights before their first call take their first step with each rank's initial
    values: build the model, or give every rank the same seed. Each rank's own variables are left
        alone:
    to resume from a checkpoint, load it on every rank. `device` is accepted and without effect.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables=None):
        super().__init__()
        self.root_rank = root_rank
        self.broadcast_done = False
        variables = [] if local_variables is None else tf.nest.flatten(local_variables)
        self.local_variables = {variable.ref() for variable in variables}

    def register_local_var(self, variable: tf.Variable) -> None:
        """Leaves a variable alone, as if it were marked."""
        self.local_variables.add(variable.ref())

    def on_train_begin(self, logs=None):
        if self.broadcast_done:
            return
        try:
            variables = self.model.variables
        except ValueError:  # Keras: the weights are not created yet
            return
        self._broadcast(variables)

    def on_batch_end(self, batch, logs=None):
        # Once more, for the variables that the step has made: the optimizer's state among them.
        if not self.broadcast_done:
            self._broadcast([*self.model.variables, *self.model.optimizer.variables()])
            self.broadcast_done = True

    def _broadcast(self, variables) -> None:
        copies = [variable for variable in variables if variable.ref() not in self.local_variables]
        broadcast_variables(copies, self.root_rank)
