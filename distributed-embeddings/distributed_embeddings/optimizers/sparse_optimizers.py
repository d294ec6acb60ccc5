"""Optimizers for embedding tables, as Keras optimizers."""

import tensorflow as tf

from distributed_embeddings.exchange.bag_gradients import as_slices
from distributed_embeddings.keras import keras
from distributed_embeddings.ops.embedding_bag import filled
from distributed_embeddings.optimizers.fused_steps import FORMULAS, Step, adam_step
from distributed_embeddings.optimizers.row_steps import move_by_adagrad, move_by_adam


@keras.utils.register_keras_serializable(package="distributed_embeddings")
class RowWiseAdagrad(keras.optimizers.Adagrad):
    """Adagrad with one accumulator per row of an embedding table; other variables as in Keras.

        a_r += mean(g_r^2);  w_r -= learning_rate * g_r / (sqrt(a_r) + epsilon)

    A table's state is 1 / output_dim of its size (Gupta et al., "Training Recommender Systems at
    Scale", 2020). Tables are those of this package's layers. Arguments are those of Keras'
    `Adagrad`; weights without a table take its step.

    Raises:
        ValueError: When it is built: a table in column slices, whose rows are not whole on a rank.

    Example:
        model.compile(dmp.DistributedOptimizer(dmp.RowWiseAdagrad(0.05)), "mse")
    """

    def build(self, var_list):
        """Creates the accumulators, [rows] of a table."""
        keras.optimizers.Optimizer.build(self, var_list)
        if getattr(self, "_built", False):
            return
        self._built = True
        self._accumulators = [
            self.add_variable_from_reference(
                variable,
                "accumulator",
                initial_value=filled(
                    self._state_shape(variable), self.initial_accumulator_value, variable.dtype
                ),
            )
            for variable in var_list
        ]

    @staticmethod
    def _state_shape(variable) -> tf.TensorShape:
        mark = getattr(variable, "de_table", None)
        if mark is not None and not mark.whole_rows:
            raise ValueError(
                f"RowWiseAdagrad: expected tables of whole rows, got {variable.name} with column "
                "slices: their means depend on the number of ranks. Use Adagrad, a larger "
                "column_slice_threshold, or row_slice_threshold"
            )
        return variable.shape if mark is None else variable.shape[:1]

    def update_step(self, grad, variable):
        """Moves a variable, of a table the rows with a gradient."""
        accumulator = self._accumulators[self._index_dict[self._var_key(variable)]]
        if accumulator.shape == variable.shape:
            super().update_step(grad, variable)
            return
        slices = as_slices(grad)
        squares = tf.reduce_mean(tf.square(slices.values), axis=1)
        rate = tf.cast(self.learning_rate, variable.dtype)
        move_by_adagrad(variable, accumulator, slices, squares, rate, self.epsilon)


def _row_wise_adagrad_step(optimizer, i: int) -> Step:
    slots = (optimizer._accumulators[i],)
    return Step("rowwise_adagrad", slots, optimizer.learning_rate, optimizer.epsilon)


@keras.utils.register_keras_serializable(package="distributed_embeddings")
class LazyAdam(keras.optimizers.Adam):
    """Adam that moves only the rows of a table that have a gradient; the step counts all steps.

    Keras' `Adam` moves every row of a table in every step. Dense gradients take its step. Arguments
    are those of Keras' `Adam`.

    Raises:
        ValueError: `amsgrad` is True.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.amsgrad:
            raise ValueError("LazyAdam: expected amsgrad=False, got amsgrad=True")

    def update_step(self, gradient, variable):
        """Moves a variable, with a sparse gradient its rows."""
        if not isinstance(gradient, tf.IndexedSlices):
            super().update_step(gradient, variable)
            return
        step = adam_step(self, self._index_dict[self._var_key(variable)])
        scalars = (step.learning_rate, step.epsilon, step.beta1, step.beta2)
        scalars = (tf.cast(scalar, variable.dtype) for scalar in scalars)
        move_by_adam(variable, step.slots, gradient, *scalars)


def _lazy_adam_step(optimizer, i: int) -> Step | None:
    return adam_step(optimizer, i, "lazy_adam")


FORMULAS[RowWiseAdagrad.update_step] = _row_wise_adagrad_step
FORMULAS[LazyAdam.update_step] = _lazy_adam_step
