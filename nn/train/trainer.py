"""One training step: batch, forward, backward, weight update."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from distributed_embeddings.collectives import World
from distributed_embeddings.exchange.bag_gradients import BagGradient, record_lookups
from distributed_embeddings.exchange.gradients import scale_gradient, sum_over_ranks

from nn.optim.optimizers import Gradient, Optimizer
from nn.train.accumulation import accumulate
from nn.train.loss_scale import LossScale


class TrainingProgress(NamedTuple):
    """Progress of a training since the previous report.

    Attributes:
        loss: mean loss of the steps since the previous report; NaN without any.
        loss_terms: means of the terms of the loss over the same steps.
        first_bad_step: number (from 1) of the first step with a non-finite loss; 0: none.
        skipped_steps: number of steps that were not applied: gradients overflowed (loss scaling).
        loss_scale: factor on the loss of the next step.
    """

    step: int
    loss: float
    loss_terms: Mapping[str, float]
    first_bad_step: int
    skipped_steps: int
    learning_rate: float
    loss_scale: float = 1.0


class Trainer:
    """Trains a model, one compiled step at a time, without waiting for the device.

    A step takes its batch from the iterator inside the graph. Loss, step count and faults are
    accumulated in variables on the device; only `progress()` reads them, and only it waits.

    Args:
        loss: `loss(model, batch) -> (scalar, {name: scalar})`: the loss, whose mean over ranks is
            minimized, and its terms.
        optimizers: together they move all trained variables.
        loss_scale: see `LossScale`. Other than 1, a step with a non-finite gradient on any rank is
            skipped by all ranks and counted.
        world: the ranks; all call every method together.
        loss_terms: names of the terms of the loss to report.
        num_parts: parts of a batch that pass through the model one after the other, so that memory
            holds the activations of one: consecutive samples, in sizes as equal as possible. Such
            batches are nested tensors of equal first dimension.
        make_batch: makes a batch from an element of the iterator, in the graph; None: it is one.
    """

    def __init__(
        self,
        model: Any,
        loss: Callable[[Any, Any], tuple[tf.Tensor, Mapping[str, tf.Tensor]]],
        optimizers: Sequence[Optimizer],
        loss_scale: float | str = 1.0,
        world: World = World(),
        loss_terms: Sequence[str] = (),
        *,
        num_parts: int = 1,
        make_batch: Callable[[Any], Any] | None = None,
    ):
        self._num_parts, self._make_batch = num_parts, make_batch
        self.world = world
        self.model = model
        self.loss = loss
        self.optimizers = list(optimizers)
        self.loss_scale = LossScale(loss_scale)
        self._variables = [v for o in self.optimizers for v in o.variables_to_move]
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        self._loss_terms = tuple(loss_terms)
        # Sums of the loss and of its terms.
        sums = [0.0] * (1 + len(self._loss_terms))
        self._loss_sums = tf.Variable(sums, dtype=tf.float64, trainable=False)
        self._first_bad_step = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._skipped_steps = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._seen_steps = 0

    @tf.function(reduce_retracing=True, autograph=False)
    def train_step(self, iterator: Any) -> None:
        """Trains on the iterator's next batch."""
        scale = self.loss_scale.factor
        batch = iterator.get_next()
        if self._make_batch is not None:
            batch = self._make_batch(batch)
        if self._num_parts == 1:
            losses, gradients = self.differentiate(batch, scale)
        else:
            losses, gradients = accumulate(
                lambda part, share: self.differentiate(part, scale * share), batch, self._num_parts
            )
        gradients = sum_over_ranks(self.world, gradients, self._variables, "gradients")
        self._record(*losses)
        if self.loss_scale.is_used:
            self._apply_if_finite([scale_gradient(g, 1.0 / scale) for g in gradients])
        else:
            self._apply(gradients)
        self.step.assign_add(1)

    def differentiate(
        self, batch: Any, scale: tf.Tensor | float
    ) -> tuple[list[tf.Tensor], list[Gradient | None]]:
        """Returns the loss and its terms of a batch, and the gradients of all variables.

        Args:
            batch: the batch.
            scale: factor on the gradients.
        """
        with (
            tf.GradientTape(watch_accessed_variables=False) as tape,
            record_lookups(tape, self._variables) as lookups,
        ):
            tape.watch(self._variables)
            loss, terms = self.loss(self.model, batch)
            # The sum of the ranks' gradients is then that of the mean of their losses.
            factor = scale / self.world.size
            scaled = loss
            if not isinstance(factor, float) or factor != 1.0:
                scaled *= tf.cast(factor, loss.dtype)
        losses = [loss, *(terms[name] for name in self._loss_terms)]
        return losses, lookups.gradient(scaled, self._variables)

    def _record(self, loss: tf.Tensor, *terms: tf.Tensor) -> None:
        bad = tf.logical_not(tf.math.is_finite(loss))
        first = tf.logical_and(bad, tf.equal(self._first_bad_step, 0))
        self._first_bad_step.assign(tf.where(first, self.step + 1, self._first_bad_step))
        self._loss_sums.assign_add([tf.cast(value, tf.float64) for value in (loss, *terms)])

    def _apply_if_finite(self, gradients: Sequence[Gradient | None]) -> None:
        finite = tf.reduce_all([_is_finite(g) for g in gradients if g is not None])
        if self.world.size > 1:  # the tables of one rank may overflow on it alone
            everywhere = self.world.all_reduce([tf.cast(finite, tf.float32)], "min", "finite")
            finite = everywhere[0] > 0
        self._skipped_steps.assign_add(tf.cast(tf.logical_not(finite), tf.int64))
        tf.cond(finite, lambda: self._apply(gradients), lambda: None)
        self.loss_scale.update(finite)

    def _apply(self, gradients: Sequence[Gradient | None]) -> None:
        start = 0
        for optimizer in self.optimizers:
            stop = start + len(optimizer.variables_to_move)
            optimizer.apply(gradients[start:stop], self.step)
            start = stop

    def progress(self) -> TrainingProgress:
        """Waits for the device and returns the progress since the previous call."""
        state = self.state()
        self._loss_sums.assign(tf.zeros_like(self._loss_sums))
        steps = state["step"] - self._seen_steps
        self._seen_steps = state["step"]
        loss, *terms = (total / steps if steps else float("nan") for total in state["loss_sums"])
        rate = self.optimizers[0].learning_rate(tf.maximum(self.step - 1, 0))
        return TrainingProgress(
            step=state["step"],
            loss=loss,
            loss_terms=dict(zip(self._loss_terms, terms, strict=True)),
            first_bad_step=state["first_bad_step"],
            skipped_steps=state["skipped_steps"],
            learning_rate=float(rate),
            loss_scale=float(self.loss_scale.factor),
        )

    def state(self) -> dict[str, Any]:
        """Returns what `set_state` restores without weights and optimizers, equal on all ranks."""
        never = 2**62
        bad_step = tf.constant(int(self._first_bad_step.numpy()) or never, tf.int64)
        (loss_sums,) = self.world.all_reduce([self._loss_sums.read_value()], "mean", "loss")
        (bad_step,) = self.world.all_reduce([bad_step], "min", "first_bad_step")
        return {
            "step": int(self.step.numpy()),
            "skipped_steps": int(self._skipped_steps.numpy()),
            "loss_sums": [float(total) for total in loss_sums],
            "seen_steps": self._seen_steps,
            "first_bad_step": 0 if int(bad_step) == never else int(bad_step),
            **self.loss_scale.state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores what `state()` returned, on any number of ranks."""
        self.step.assign(state["step"])
        self._skipped_steps.assign(state["skipped_steps"])
        self.loss_scale.set_state(state)
        # Checkpoints of earlier versions have no terms: their first report is of the loss alone.
        sums = state.get("loss_sums", [state.get("loss_sum", 0.0)])
        self._loss_sums.assign([*sums, *[0.0] * (self._loss_sums.shape[0] - len(sums))])
        self._seen_steps = state["seen_steps"]


def non_finite_variable(optimizers: Sequence[Optimizer]) -> str | None:
    """Returns the name of a dense variable with NaN or infinity; None without one.

    Dense variables are those of the first optimizer.

    The loss is computed before the weights move: only the weights show whether the last step
    diverged.
    """
    for variable in optimizers[0].variables_to_move:
        if not bool(tf.reduce_all(tf.math.is_finite(variable))):
            return str(variable.name)
    return None


def _is_finite(gradient: Gradient) -> tf.Tensor:
    if isinstance(gradient, BagGradient):
        return gradient.is_finite()
    values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    return tf.reduce_all(tf.math.is_finite(values))
