"""The training loop: steps, loss reports, evaluations, checkpoints."""

import math
import time
from collections.abc import Mapping
from typing import Any

from recipes.recipe import Evaluator
from runtime.checkpoint import NonFiniteWeight
from runtime.checkpoint.policy import CheckpointPolicy
from runtime.cluster.distributed import run_on_all_ranks
from runtime.cluster.failure import stack_sample
from training import early_stopping, epoch_report
from training.checkpoints import training_weights
from training.context import RunContext
from training.errors import TrainingDiverged
from training.schedule import evaluation_batches, loss_is_due, note_schedule, samples_of_batch
from training.state import Best

# Steps that count in no throughput: tracing, compilation, page faults.
WARMUP_STEPS = 10


class TrainingLoop:
    """Trains the model of a run from its position to the end.

    Weights and optimizers are restored before; the position is advanced here. All ranks run it
    together.

    Args:
        run: a run with `--mode train`.
        checkpoints: decides when to save, and when to stop because of a signal.
        description: description of the training for its checkpoints.
    """

    def __init__(
        self, run: RunContext, checkpoints: CheckpointPolicy, description: Mapping[str, Any]
    ):
        from runtime.logs.profiler import Profiler
        from runtime.logs.timer import StepTimer

        assert run.recipe.train is not None and run.total_steps is not None
        self.recipe, self.data, self.goal = run.recipe, run.recipe.train, run.recipe.goal
        self.config, self.options, self.log = run.config, run.config.run, run.log
        self.world, self.folder = run.world, run.start.folder
        self.position, self.total_steps = run.position, run.total_steps
        self.checkpoints, self.description = checkpoints, description

        self.trainer = self.recipe.make_trainer(run.device.loss_scale, run.world)
        if self.position.trainer:
            self.trainer.set_state(self.position.trainer)
        self.weights = training_weights(self.recipe)
        self.scales_loss = run.device.loss_scale != 1.0

        warmup_steps = min(WARMUP_STEPS, max(0, self.total_steps - self.position.step) // 2)
        if self.options.benchmark:
            warmup_steps = self.options.warmup_batches
        times_epochs = self.log.epoch_lines or self.options.benchmark
        self.timer = StepTimer(warmup_steps, epochs=times_epochs)
        self.epoch_report = epoch_report.create(self.log, self.timer)
        self.profiler = Profiler(self.options, run.run_dir, self.world)

        self.evaluate_after = evaluation_batches(
            self.data.num_batches, self.options.evals_per_epoch
        )
        self.keeps_best = self.config.checkpoint.keep_best
        if self.keeps_best is None:
            self.keeps_best = bool(self.options.early_stopping) or self.recipe.keeps_best
        self._elapsed_before_s = self.position.elapsed_s
        self._reported_step = self.position.trainer.get("seen_steps", self.position.step)
        self._prepare(resumes_newest=run.start.is_newest)

    def _prepare(self, resumes_newest: bool) -> None:
        """Logs notes, and brings state that other runs left up to date."""
        note_schedule(self.config, self.log, self.total_steps)
        if self.options.early_stopping and not (self.folder is not None and self.keeps_best):
            missing = "--save_checkpoint_path" if self.folder is None else "--keep_best"
            self.log.message(
                f"note: --early_stopping without {missing}: the best weights are not kept"
            )
        if self.folder is not None and self.keeps_best and self.position.step:
            # The run may resume before the best checkpoint, or was killed before it set the link.
            run_on_all_ranks(self.world, self._update_best_link)
        if not self._goal_is_reached():
            self.position.goal_reached_s = None  # of another threshold
        if resumes_newest and not self._evaluation_is_due():
            self.checkpoints.resume(self.position.step)

    def run(self) -> None:
        """Trains to the end, or until a stop is requested.

        Raises:
            TrainingDiverged: the loss, a score or a weight became infinite or NaN.
            CollectiveError: a checkpoint could not be written, at the end or with
                `--on_checkpoint_error stop`.
        """
        position, data, checkpoints = self.position, self.data, self.checkpoints
        if self._evaluation_is_due():  # the previous run was stopped before it evaluated
            self.evaluate()
            self.end_epoch()
        for epoch in range(position.epoch, self._num_epochs()):
            if self._is_over():
                break
            if position.epoch != epoch:
                position.epoch, position.row = epoch, 0
            if position.row >= data.num_rows:
                continue
            iterator = iter(data.dataset(epoch, position.row))
            for batch in range(position.row // data.batch_size, data.num_batches):
                # One step.
                self.profiler.before(position.step)
                self.trainer.train_step(iterator)
                position.step += 1
                position.row = min((batch + 1) * data.batch_size, data.num_rows)
                stack_sample.record_step(position.step)
                self.timer.step(samples_of_batch(data, batch))
                self.profiler.after(position.step)
                self.log.progress(position.step)

                # Read the loss: a synchronization with the device.
                if loss_is_due(position.step, self.options.print_freq):
                    self.report()

                # Evaluate and save.
                checkpoints.tick()
                if self._evaluation_is_due() and not checkpoints.stopping:
                    self.evaluate()
                self.end_epoch()
                if checkpoints.due(position.step, self._needs_checkpoint()):
                    self.save()
                if self._is_over():
                    break
        self.report()
        self.profiler.stop()
        self._check_weights()
        if checkpoints.due(position.step, last=True):  # stopped, or nothing was left to do
            self.save()
        checkpoints.finish(self._is_complete())

    def report(self) -> None:
        """Synchronizes with the device and logs the running loss."""
        progress = self.trainer.progress()
        self._check_losses(progress.first_bad_step, progress.step)
        if progress.step == self._reported_step:
            return
        self._reported_step = progress.step
        values = {
            "loss": progress.loss,
            **progress.loss_terms,
            "learning_rate": progress.learning_rate,
        }
        if not math.isnan(throughput := self.timer.lap()):  # NaN within the timer's warm-up
            values["throughput"] = throughput
        if self.scales_loss:
            values["skipped_steps"] = progress.skipped_steps
            values["loss_scale"] = progress.loss_scale
        self.log.log(progress.step, values, epoch=self.position.epoch)
        self.position.history["train_loss"].append((progress.step, progress.loss))

    def evaluate(self) -> None:
        """Evaluates the model, logs the metrics and updates the best evaluation."""
        self.report()
        metrics = self._measure()
        if not metrics:  # interrupted, because a signal requests to stop
            return
        position, metric, threshold = self.position, self.goal.metric, self.goal.threshold
        elapsed_s = self._elapsed_s()
        if not (self.epoch_report.has_lines and self._epoch_has_ended()):
            self.log.log(position.step, {**metrics, "elapsed_s": elapsed_s}, epoch=position.epoch)
        if note := self._evaluator().note:
            self.log.message(note)
        position.evaluated_step, position.metrics = position.step, metrics
        position.history["validation_loss"].append((position.step, metrics["log_loss"]))
        curve = position.history.setdefault(f"validation_{metric}", [])
        curve.append((position.step, metrics[metric]))
        best = position.best
        if early_stopping.is_improvement(metrics[metric], best.value if best else None):
            position.best = Best(metrics[metric], position.step, position.epoch, elapsed_s)
        if threshold is not None and metrics[metric] >= threshold:
            position.goal_reached_s = elapsed_s

    def _measure(self) -> dict[str, float]:
        """Returns the metrics of an evaluation; none if a stop is requested during it."""
        from nn.metrics.classification import NonFiniteScores

        evaluator, valid = self._evaluator(), self.recipe.valid
        self.checkpoints.reset_pace()
        try:
            with (
                self.timer.paused(),
                self.log.bar("evaluation", evaluator.num_batches) as advance,
            ):
                start = time.perf_counter()
                metrics = dict(evaluator.evaluate(lambda: advance() or self.checkpoints.tick()))
        except NonFiniteScores as error:
            step = self._reported_step
            raise TrainingDiverged(f"between step {step - 1} and {step}: {error}") from None
        if valid is not None:
            self.epoch_report.add_evaluation(valid.num_rows, time.perf_counter() - start)
        self.checkpoints.reset_pace()
        return metrics

    def end_epoch(self) -> None:
        """Logs a line on the epoch if it has ended, in the logs that have such lines."""
        position = self.position
        if not (self.epoch_report.has_lines and self._epoch_has_ended()):
            return
        if self._evaluation_is_due() or self.options.benchmark:
            return
        self.report()
        metrics = position.metrics if position.evaluated_step == position.step else {}
        losses = position.history["train_loss"]
        values = self.epoch_report.end_epoch(bool(metrics), losses[-1][1] if losses else None)
        self.log.end_epoch(position.epoch, position.step, {**values, **metrics})

    def save(self) -> None:
        """Starts to save a checkpoint."""
        position = self.position
        with self.timer.paused():
            position.trainer = self.trainer.state()
            self._check_losses(position.trainer["first_bad_step"], position.step)
            position.elapsed_s = self._elapsed_s()
            state = position.to_json(self.goal)
            self.checkpoints.save(
                position.step, self.weights, self.description, state, self._is_best_to_keep()
            )

    def summary(self) -> dict[str, Any]:
        """Logs why the training ended; returns the results of the run."""
        position, goal = self.position, self.goal
        if self._goal_is_reached() and position.best is not None:
            self.log.message(
                f"--{goal.flag} {goal.threshold} is reached: {goal.best_name} "
                f"{position.best.value:.5f}"
            )
        elif goal.threshold is not None and goal.threshold < 1:  # 1.0: no target was set
            self.log.message(f"--{goal.flag} {goal.threshold} was not reached")
        if self._patience_is_exhausted():
            self.log.message(
                f"early stopping at step {position.step} of {self.total_steps}: "
                f"{self.options.early_stopping} evaluations in a row without a higher "
                f"{goal.metric}"
            )
        if position.best is not None and (self.options.early_stopping or self.keeps_best):
            best, path = position.best, None
            if self.folder is not None and self.keeps_best:
                path = self.folder.best_of_step(best.step)
            name = f"{self._evaluator().split} {goal.metric}"
            self.log.message(early_stopping.describe_best(name, best.value, best.step, path))
        throughput = self.timer.mean_throughput()
        return {
            **position.metrics,
            **position.best_values(goal),
            "steps": position.step,
            **(self.timer.end_epoch() if self.options.benchmark else {}),
            **self.epoch_report.summary(),
            **({} if math.isnan(throughput) else {"throughput": throughput}),
            "elapsed_s": self._elapsed_s(),
        }

    def _evaluator(self) -> Evaluator:
        assert self.recipe.evaluator is not None
        return self.recipe.evaluator

    def _elapsed_s(self) -> float:
        return self._elapsed_before_s + self.timer.elapsed_s

    def _num_epochs(self) -> int:
        return max(self.options.epochs, -(-self.total_steps // self.data.num_batches))

    def _epoch_has_ended(self) -> bool:
        return self.position.row == self.data.num_rows

    def _evaluation_is_due(self) -> bool:
        position = self.position
        if self.recipe.evaluator is None or position.evaluated_step == position.step:
            return False
        batch = -(-position.row // self.data.batch_size)
        return batch in self.evaluate_after or position.step == self.total_steps

    def _goal_is_reached(self) -> bool:
        best, threshold = self.position.best, self.goal.threshold
        return threshold is not None and best is not None and best.value >= threshold

    def _patience_is_exhausted(self) -> bool:
        """Returns whether `--early_stopping` ends the training; equal on all ranks."""
        if self.options.early_stopping is None:
            return False
        curve = self.position.history.get(f"validation_{self.goal.metric}", [])
        stale = early_stopping.stale_evaluations(value for _, value in curve)
        return stale >= self.options.early_stopping

    def _is_decided(self) -> bool:
        """Returns whether the training ends before its last step because of its metrics."""
        return self._goal_is_reached() or self._patience_is_exhausted()

    def _is_over(self) -> bool:
        is_stopping = self.checkpoints.stopping is not None
        return self.position.step >= self.total_steps or is_stopping or self._is_decided()

    def _is_complete(self) -> bool:
        """Returns whether nothing is left to do for a resumed training."""
        steps_done = self.position.step >= self.total_steps and not self._evaluation_is_due()
        return steps_done or self._is_decided()

    def _is_best_to_keep(self) -> bool:
        best = self.position.best
        return bool(self.keeps_best) and best is not None and best.step == self.position.step

    def _needs_checkpoint(self) -> bool:
        """Returns whether a checkpoint of this step is needed in any case."""
        at_end = self.position.step == self.total_steps or self._is_decided()
        return at_end or self._is_best_to_keep()

    def _check_losses(self, first_bad_step: int, step: int) -> None:
        if first_bad_step:
            raise TrainingDiverged(
                f"the loss is not finite at step {first_bad_step} (between step "
                f"{self._reported_step}, the last one reported, and {step})"
            )

    def _check_weights(self) -> None:
        from nn.train.trainer import non_finite_variable

        if name := non_finite_variable(self.recipe.groups):
            raise NonFiniteWeight(name)

    def _update_best_link(self) -> None:
        if self.world.is_chief and self.folder is not None:
            best = self.position.best
            self.folder.set_best(best.step if best else None)
