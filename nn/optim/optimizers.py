"""Optimizers for dense weights and for embedding tables.

Each has a dense and a sparse update. The sparse one touches only the rows that occur in the batch
(`Adam` excepted, whose definition decays the moments of every row) and reads and writes tables by
gather and scatter only, so that no step costs a pass over a table.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf
from distributed_embeddings.exchange.bag_gradients import BagGradient
from distributed_embeddings.exchange.gradients import Gradient, sum_duplicates
from distributed_embeddings.ops.embedding_bag import filled
from distributed_embeddings.optimizers.row_steps import move_by_adagrad, move_by_adam

from nn.optim.learning_rate import WarmupPolynomialDecay

LearningRate: TypeAlias = float | Callable[[tf.Tensor], tf.Tensor]


class Optimizer(tf.Module):
    """Moves variables along their gradients. A subclass has the name `kind` of `--optimizer`.

    Args:
        variables: Variables to move.
        learning_rate: Learning rate of all steps, or a function that returns that of a step (an
            integer scalar, 0 first) as a float32 scalar.

    Attributes:
        state: one variable per variable, for each kind of state.
        by_row: the kinds that have one number per row.
        weight_decay: share of a weight, times the learning rate, that a step takes away before it
            moves the weight (Loshchilov and Hutter, 2019); of a table only from rows with a
            gradient.
        scalars: state that all variables share, by name.
        row_means: means over whole rows where columns of one table are stored by several ranks,
            `distributed_embeddings.optimizers.row_means.RowMeans`; None: no table is cut.
    """

    kind: str

    def __init__(self, variables: Sequence[tf.Variable], learning_rate: LearningRate):
        super().__init__(name=type(self).__name__)
        self.variables_to_move = list(variables)
        if not callable(learning_rate):
            learning_rate = WarmupPolynomialDecay(learning_rate)
        self.learning_rate = learning_rate
        self.state: dict[str, list[tf.Variable]] = {}
        self.by_row: set[str] = set()
        self.scalars: dict[str, tf.Variable] = {}
        self.weight_decay = 0.0
        self.independent_decay = False
        self.row_means = None

    def slots(self, kind: str, initial: float = 0.0, by_row: bool = False) -> list[tf.Variable]:
        """Creates one state variable per variable: of its shape, or [rows] with `by_row`."""
        slots = []
        for v in self.variables_to_move:
            with tf.device(v.device):  # tables in host memory have their state there
                shape = v.shape[:1] if by_row else v.shape
                start = filled(shape, initial)
                name = f"{v.name.split(':')[0]}/{kind}"
                slots.append(tf.Variable(start, trainable=False, name=name))
        self.state[kind] = slots
        if by_row:
            self.by_row.add(kind)
        return slots

    def scalar(self, name: str, initial: float) -> tf.Variable:
        """Creates a float32 state variable that all variables share."""
        self.scalars[name] = tf.Variable(initial, trainable=False, name=name)
        return self.scalars[name]

    def apply(self, gradients: Sequence[Gradient | None], step: tf.Tensor) -> None:
        """Applies one gradient per variable, in the order of `variables_to_move`.

        Args:
            gradients: tensors of the variables' shapes, `tf.IndexedSlices` with rows to change
                (duplicates are summed), `BagGradient`, or None for a variable that the loss did not
                depend on.
            step: number of the step, 0 first, an integer scalar.
        """
        learning_rate = self.learning_rate(step)
        factor = self.decay_factor(learning_rate)
        pairs = zip(self.variables_to_move, gradients, strict=True)
        for i, (variable, gradient) in enumerate(pairs):
            if gradient is None:
                continue
            if isinstance(gradient, BagGradient):
                scalars = (learning_rate, factor)
                if not self._decays_all_rows and self.apply_bags(i, gradient, *scalars):
                    continue
                gradient = gradient.summed()
            if self.weight_decay:
                self.decay(variable, gradient, factor)
            if isinstance(gradient, tf.IndexedSlices):
                self.apply_sparse(i, variable, gradient, learning_rate)
            elif variable.shape.num_elements():
                self.apply_dense(i, variable, gradient, learning_rate)
            else:  # the anchor of `distributed_embeddings.exchange.row_exchange.RowExchange`
                variable.assign_sub(gradient)

    def decay(self, variable, gradient, factor) -> None:
        """Takes the weight decay from a variable, of a table from the rows with a gradient."""
        if isinstance(gradient, tf.IndexedSlices) and not self._decays_all_rows:
            rows, _ = tf.unique(gradient.indices)
            variable.scatter_update(tf.IndexedSlices(tf.gather(variable, rows) * factor, rows))
        else:
            variable.assign(variable * factor)

    def apply_bags(self, i: int, gradient: BagGradient, learning_rate, factor) -> bool:
        """Sums gradients by row and moves variable number i in one pass, weight decay included.

        Args:
            factor: that of `decay_factor`.

        Returns:
            False if nothing was done: the optimizer needs the sums by themselves.
        """
        return False

    def decay_factor(self, learning_rate) -> tf.Tensor:
        """Returns the share of a weight that the weight decay leaves."""
        return 1.0 - (1.0 if self.independent_decay else learning_rate) * self.weight_decay

    @property
    def _decays_all_rows(self) -> bool:
        return self.independent_decay and self.weight_decay > 0

    def apply_dense(self, i, variable, gradient, learning_rate) -> None:
        """Moves variable number i along a dense gradient."""
        raise NotImplementedError

    def apply_sparse(self, i, variable, gradient, learning_rate) -> None:
        """Moves the rows of variable number i that `gradient` (tf.IndexedSlices) names."""
        raise NotImplementedError


class SGD(Optimizer):
    """w -= lr * g. Linear in g, so duplicate rows need no summing first."""

    kind = "sgd"

    def apply_dense(self, i, variable, gradient, learning_rate):
        tf.raw_ops.ResourceApplyGradientDescent(
            var=variable.handle, alpha=learning_rate, delta=gradient
        )

    def apply_sparse(self, i, variable, gradient, learning_rate):
        variable.scatter_sub(tf.IndexedSlices(learning_rate * gradient.values, gradient.indices))

    def apply_bags(self, i, gradient, learning_rate, factor):
        gradient.update(self.kind, [], learning_rate, factor)
        return True


class Adagrad(Optimizer):
    """a += g^2; w -= lr * g / (sqrt(a) + epsilon)  (Duchi et al., 2011)."""

    kind = "adagrad"
    slot, slot_by_row = "accumulator", False

    def __init__(
        self, variables, learning_rate, initial_accumulator: float = 0.1, epsilon: float = 1e-7
    ):
        super().__init__(variables, learning_rate)
        self.epsilon = epsilon
        self.accumulators = self.slots(self.slot, initial_accumulator, self.slot_by_row)

    def apply_dense(self, i, variable, gradient, learning_rate):
        tf.raw_ops.ResourceApplyAdagradV2(
            var=variable.handle,
            accum=self.accumulators[i].handle,
            lr=learning_rate,
            epsilon=self.epsilon,
            grad=gradient,
        )

    def apply_sparse(self, i, variable, gradient, learning_rate):
        gradient = sum_duplicates(gradient)
        self.move(i, gradient, tf.square(gradient.values), learning_rate)

    def move(self, i, gradient, squares, learning_rate) -> None:
        """Moves the rows of variable number i; squares: what their accumulators get."""
        table, accumulator = self.variables_to_move[i], self.accumulators[i]
        move_by_adagrad(table, accumulator, gradient, squares, learning_rate, self.epsilon)

    def apply_bags(self, i, gradient, learning_rate, factor):
        gradient.update(self.kind, [self.accumulators[i]], learning_rate, factor, self.epsilon)
        return True


class RowWiseAdagrad(Adagrad):
    """Adagrad with one accumulator per row.

        a_r += mean(g_r^2);  w_r -= lr * g_r / (sqrt(a_r) + epsilon)

    A table's state is 1 / dim of its size (Gupta et al., "Training Recommender Systems at Scale",
    2020). For tables: a dense gradient is an error.
    """

    kind = "rowwise_adagrad"
    slot, slot_by_row = "row_accumulator", True

    def apply_dense(self, i, variable, gradient, learning_rate):
        raise ValueError(
            f"row-wise Adagrad is for embedding tables, but {variable.name} has a dense gradient: "
            "use adagrad for dense weights"
        )

    def apply_sparse(self, i, variable, gradient, learning_rate):
        gradient = sum_duplicates(gradient)
        if self.row_means is None:
            squares = tf.reduce_mean(tf.square(gradient.values), axis=1)
            self.move(i, gradient, squares, learning_rate)
        else:
            order = tf.argsort(gradient.indices)
            values, rows = (tf.gather(x, order) for x in (gradient.values, gradient.indices))
            self._waiting[i] = tf.IndexedSlices(values, rows)

    def apply_bags(self, i, gradient, learning_rate, factor):
        return self.row_means is None and super().apply_bags(i, gradient, learning_rate, factor)

    def apply(self, gradients, step):
        self._waiting: dict[int, tf.IndexedSlices] = {}  # by the number of the variable
        super().apply(gradients, step)
        if self.row_means is None:
            return
        means = self.row_means(  # collective
            [self.variables_to_move[i] for i in self._waiting],
            [gradient.indices for gradient in self._waiting.values()],
            [tf.reduce_sum(tf.square(g.values), axis=1) for g in self._waiting.values()],
        )
        for (i, gradient), mean in zip(self._waiting.items(), means, strict=True):
            self.move(i, gradient, mean, self.learning_rate(step))
        self._waiting = {}


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015, the reordered form at the end of section 2).

        m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
        w -= lr sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + epsilon)

    With a sparse gradient the rows that do not occur have g = 0: their moments decay and they move,
    so that a step costs a pass over the table. `LazyAdam` leaves them alone.
    """

    kind = "adam"

    def __init__(self, variables, learning_rate, beta1=0.9, beta2=0.999, epsilon=1e-7):
        super().__init__(variables, learning_rate)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.first = self.slots("first_moment")
        self.second = self.slots("second_moment")
        self.beta1_power = self.scalar("beta1_power", 1.0)
        self.beta2_power = self.scalar("beta2_power", 1.0)

    def decay(self, variable, gradient, factor):
        """Decays every row, as every row moves."""
        variable.assign(variable * factor)

    def apply(self, gradients, step):
        self.beta1_power.assign(self.beta1_power * self.beta1)
        self.beta2_power.assign(self.beta2_power * self.beta2)
        super().apply(gradients, step)

    def bias_corrected(self, learning_rate):
        """Returns the learning rate with both bias corrections in it."""
        return learning_rate * tf.sqrt(1.0 - self.beta2_power) / (1.0 - self.beta1_power)

    def apply_dense(self, i, variable, gradient, learning_rate):
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self.first[i].handle,
            v=self.second[i].handle,
            beta1_power=self.beta1_power,
            beta2_power=self.beta2_power,
            lr=learning_rate,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            grad=gradient,
        )

    def apply_sparse(self, i, variable, gradient, learning_rate):
        gradient = sum_duplicates(gradient)
        rows, g = gradient.indices, gradient.values
        first, second = self.first[i], self.second[i]
        first.assign(first * self.beta1)
        first.scatter_add(tf.IndexedSlices((1 - self.beta1) * g, rows))
        second.assign(second * self.beta2)
        second.scatter_add(tf.IndexedSlices((1 - self.beta2) * tf.square(g), rows))
        variable.assign_sub(
            self.bias_corrected(learning_rate) * first / (tf.sqrt(second) + self.epsilon)
        )

    def apply_bags(self, i, gradient, learning_rate, factor):
        rate = self.bias_corrected(learning_rate)
        scalars = (rate, factor, self.epsilon, self.beta1, self.beta2)
        gradient.update(self.kind, [self.first[i], self.second[i]], *scalars)
        return True


class LazyAdam(Adam):
    """Adam that leaves rows alone which do not occur in the batch; t counts all steps."""

    kind = "lazy_adam"
    decay = Optimizer.decay

    def apply_sparse(self, i, variable, gradient, learning_rate):
        gradient = sum_duplicates(gradient)
        scalars = (self.bias_corrected(learning_rate), self.epsilon, self.beta1, self.beta2)
        move_by_adam(variable, (self.first[i], self.second[i]), gradient, *scalars)


# Optimizers by the name that flags give them.
KINDS = {cls.kind: cls for cls in (SGD, Adagrad, RowWiseAdagrad, Adam, LazyAdam)}


def create(
    name: str,
    variables: Sequence[tf.Variable],
    learning_rate: LearningRate,
    *,
    weight_decay: float = 0.0,
    independent_decay: bool = False,
    row_means=None,
    **options,
) -> Optimizer:
    """Creates the optimizer of a flag's name, a key of `KINDS`.

    Args:
        name: The flag's name.
        variables, learning_rate: See `Optimizer`.
        weight_decay: Share of a weight that each step takes off, times the learning rate.
        independent_decay: Whether the decay is not multiplied by the learning rate, and takes all
            rows of a table.
        row_means: See `Optimizer`.
        options: Those of the optimizer's class.

    Raises:
        ValueError: the name is unknown.
    """
    if name not in KINDS:
        raise ValueError(f"unknown optimizer {name!r}: choose one of {', '.join(KINDS)}")
    optimizer = KINDS[name](variables, learning_rate, **options)
    optimizer.weight_decay = weight_decay
    optimizer.independent_decay = independent_decay
    optimizer.row_means = row_means
    return optimizer


def create_optimizers(
    options,
    dense: Sequence[tf.Variable],
    tables: Sequence[tf.Variable],
    row_means=None,
    independent_decay: bool = False,
) -> list[Optimizer]:
    """Creates the optimizers of the dense variables and of the tables.

    Args:
        options: `config.OptimizerConfig`.
        dense, tables: variables with dense and with sparse gradients.
        row_means: see `Optimizer`.
        independent_decay: see `create`.
    """
    table_rate = options.embedding_learning_rate
    if table_rate is None:
        table_rate = options.learning_rate
    table_decay = options.embedding_weight_decay
    if table_decay is None:
        table_decay = options.weight_decay
    return [
        create(
            name,
            variables,
            WarmupPolynomialDecay(
                rate,
                options.warmup_steps,
                options.decay_start_step,
                options.decay_steps,
                options.decay_power,
            ),
            weight_decay=decay,
            independent_decay=independent_decay,
            row_means=means,
            **options.options_of(name),
        )
        for name, variables, rate, decay, means in (
            (options.optimizer, dense, options.learning_rate, options.weight_decay, None),
            (options.sparse_optimizer, tables, table_rate, table_decay, row_means),
        )
    ]
