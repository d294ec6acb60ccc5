"""One training step: batch, forward, backward, weight update."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from nn.embedding.exchange.gradients import sum_over_ranks
from nn.optim.optimizers import OptimizerGroup
from nn.train.accumulation import accumulated
from nn.train.loss_scale import LossScale
from runtime.cluster.distributed import World


class Progress(NamedTuple):
    """What happened since the last look.

    Attributes:
      step: steps done in all.
      loss: mean loss of the steps since the last look; NaN if there were none.
      parts: the means of the loss's parts, likewise.
      first_bad_step: number (from 1) of the first step with a non-finite loss, 0 if there is none.
      skipped_steps: steps in all whose gradients overflowed under loss scaling; not applied.
      learning_rate: that of the last step.
      loss_scale: factor on the loss of the next step.
    """

    step: int
    loss: float
    parts: Mapping[str, float]
    first_bad_step: int
    skipped_steps: int
    learning_rate: float
    loss_scale: float = 1.0


class Trainer:
    """Trains a model, one compiled step at a time, without waiting for the device.

    A step takes its batch from the iterator inside the graph. Loss, step count and faults are
    accumulated in variables on the device; only `progress()` reads them, and only it waits.

    Args:
      model: the model.
      loss: `loss(model, batch) -> (scalar, {name: scalar})`; its mean over ranks is minimised. The
        named ones are its parts, to be reported.
      groups: optimizers and their schedules; together they move all trained variables.
      loss_scale: factor on the loss for float16, or "dynamic" (`nn.train.loss_scale.LossScale`).
        Other
        than 1, gradients are checked, and a step with a non-finite one on any rank is skipped by
        all ranks and counted.
      world: the ranks; all call every method together.
      loss_parts: names of the parts to report.
      rows: what makes a batch of rows of an iterator's element, in the graph; None: it is one.
      accumulate: parts of a batch (runs of rows, as equal as can be) that go through the model one
        after the other before weights move by the gradient of them all: the activations of one
        part are in memory. Batches are then tensors of equal first dimension.
    """

    def __init__(
        self,
        model,
        loss: Callable,
        groups: Sequence[OptimizerGroup],
        loss_scale: float | str = 1.0,
        world: World = World(),
        loss_parts: Sequence[str] = (),
        rows: Callable | None = None,
        accumulate: int = 1,
    ):
        self.world = world
        self.model = model
        self.loss = loss
        self.groups = list(groups)
        self.loss_scale = LossScale(loss_scale)
        self._variables = [v for g in self.groups for v in g.optimizer.variables_to_move]
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        self._part_names = tuple(loss_parts)
        self._rows, self._accumulate = rows, accumulate
        # Of the loss, and of its parts.
        sums = [0.0] * (1 + len(self._part_names))
        self._loss_sums = tf.Variable(sums, dtype=tf.float64, trainable=False)
        self._first_bad_step = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._skipped_steps = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._seen_steps = 0

    @tf.function(reduce_retracing=True, autograph=False)
    def train_step(self, iterator) -> None:
        """Trains on the iterator's next batch."""
        batch = iterator.get_next()
        if self._rows is not None:
            batch = self._rows(batch)
        scale = self.loss_scale.current()
        differentiate = functools.partial(self._differentiate, scale)
        losses, gradients = accumulated(differentiate, batch, self._accumulate)
        gradients = sum_over_ranks(self.world, gradients, self._variables, "gradients")
        self._record(*losses)
        if not self.loss_scale.is_used:
            self._apply(gradients)
        else:
            gradients = [_scaled(g, 1.0 / scale) for g in gradients]
            finite = tf.reduce_all([_is_finite(g) for g in gradients if g is not None])
            if self.world.size > 1:  # a rank's own tables may overflow on it alone
                everywhere = self.world.all_reduce([tf.cast(finite, tf.float32)], "min", "finite")
                finite = everywhere[0] > 0
            self._skipped_steps.assign_add(tf.cast(tf.logical_not(finite), tf.int64))
            tf.cond(finite, lambda: self._apply(gradients), lambda: None)
            self.loss_scale.update(finite)
        self.step.assign_add(1)

    def _differentiate(self, scale, batch, share: tf.Tensor | None):
        """((loss, its parts), gradients times `scale`) of a batch; with a share all times it."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self._variables)
            loss, parts = self.loss(self.model, batch)
            losses = [loss, *(parts[name] for name in self._part_names)]
            if share is not None:
                losses = [value * tf.cast(share, value.dtype) for value in losses]
            # The sum of the ranks' gradients is then that of the mean of their losses.
            factor = scale / self.world.size
            is_one = isinstance(factor, float) and factor == 1.0
            scaled = losses[0] if is_one else losses[0] * tf.cast(factor, losses[0].dtype)
        return losses, tape.gradient(scaled, self._variables)

    def _record(self, loss: tf.Tensor, *parts: tf.Tensor) -> None:
        bad = tf.logical_not(tf.math.is_finite(loss))
        first = tf.logical_and(bad, tf.equal(self._first_bad_step, 0))
        self._first_bad_step.assign(tf.where(first, self.step + 1, self._first_bad_step))
        self._loss_sums.assign_add([tf.cast(value, tf.float64) for value in (loss, *parts)])

    def _apply(self, gradients) -> None:
        position = 0
        for optimizer, learning_rate in self.groups:
            count = len(optimizer.variables_to_move)
            optimizer.apply(gradients[position : position + count], learning_rate(self.step))
            position += count

    def progress(self) -> Progress:
        """Waits for the device and tells what happened since the last call."""
        state = self.state()
        self._loss_sums.assign(tf.zeros_like(self._loss_sums))
        steps = state["step"] - self._seen_steps
        self._seen_steps = state["step"]
        loss, *parts = (total / steps if steps else float("nan") for total in state["loss_sums"])
        rate = self.groups[0].learning_rate(tf.maximum(self.step - 1, 0)) if self.groups else 0.0
        return Progress(
            step=state["step"],
            loss=loss,
            parts=dict(zip(self._part_names, parts, strict=True)),
            first_bad_step=state["first_bad_step"],
            skipped_steps=state["skipped_steps"],
            learning_rate=float(rate),
            loss_scale=float(self.loss_scale.current()),
        )

    def state(self) -> dict[str, Any]:
        """What `set_state` needs beside weights and the optimizers' state, the same on every rank;
        waits for the device."""
        bad_step = int(self._first_bad_step.numpy())
        never = 2**62
        (loss_sums,) = self.world.all_reduce([self._loss_sums.read_value()], "mean", "loss")
        (first_bad,) = self.world.all_reduce(
            [tf.constant(bad_step or never, tf.int64)], "min", "first_bad_step"
        )
        first_bad = int(first_bad)
        return {
            "step": int(self.step.numpy()),
            "skipped_steps": int(self._skipped_steps.numpy()),
            "loss_sums": [float(total) for total in loss_sums],
            "seen_steps": self._seen_steps,
            "first_bad_step": 0 if first_bad == never else first_bad,
            **self.loss_scale.state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from where `state` was taken, on any number of ranks."""
        self.step.assign(state["step"])
        self._skipped_steps.assign(state["skipped_steps"])
        self.loss_scale.set_state(state)
        # Checkpoints of earlier versions have no parts: their first report is of the loss alone.
        sums = state.get("loss_sums", [state.get("loss_sum", 0.0)])
        self._loss_sums.assign([*sums, *[0.0] * (self._loss_sums.shape[0] - len(sums))])
        self._seen_steps = state["seen_steps"]


def non_finite_variable(groups: Sequence[OptimizerGroup]) -> str | None:
    """Name of a dense variable (of the first group) with NaN or infinity in it, if there is one.

    The loss is computed before the weights move: after the last step only they can tell.
    """
    for variable in groups[0].optimizer.variables_to_move:
        if not bool(tf.reduce_all(tf.math.is_finite(variable))):
            return variable.name
    return None


def _scaled(gradient, factor: float | tf.Tensor):
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values * tf.cast(factor, gradient.dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return None if gradient is None else gradient * tf.cast(factor, gradient.dtype)


def _is_finite(gradient) -> tf.Tensor:
    values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    return tf.reduce_all(tf.math.is_finite(values))
