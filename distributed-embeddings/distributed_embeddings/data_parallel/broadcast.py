"""Equal initial values of replicated variables on all ranks."""

import tensorflow as tf

from distributed_embeddings.collectives import current
from distributed_embeddings.exchange.row_exchange import unique_name
from distributed_embeddings.keras import keras


def broadcast_variables(model_vars, root_rank: int = 0) -> None:
    """Gives every rank the values of rank `root_rank`, except of each rank's own variables.

    Args:
        model_vars: Variables, the copies among them in the same order on every rank. State of a
            plain optimizer for a rank's own tables is not marked: leave it out, or use
            `DistributedOptimizer`.

    Raises:
        ValueError: No such rank, or (in eager mode) ranks with different variables.
    """
    world = current()
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
    alone: to resume from a checkpoint, load it on every rank. `device` is accepted and without
    effect.
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
