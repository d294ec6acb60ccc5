"""The training loop: steps, loss reports, evaluations, checkpoints."""

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from recipes.recipe import Evaluator
from runtime.checkpoint import NonFiniteWeight
from runtime.checkpoint.policy import CheckpointPolicy
from runtime.cluster.distributed import run_on_all_ranks
from runtime.cluster.failure import stack_sample
from training.checkpoints import training_weights
from training.epoch_log import EpochLog
from training.errors import TrainingDiverged
from training.mlperf_hook import MLPerfHook
from training.schedule import Due, make_schedule, note_schedule, samples_of_batch
from training.state import Best, RunContext

# Steps that count in no throughput: tracing, compilation, page faults.
WARMUP_STEPS = 10
_NOTED_FALL = 0.001  # of a metric after its highest value; less is noise


class TrainingLoop:
    """Trains the model of a run from its position to the end, on all ranks together.

    Args:
        run: a run with `--mode train`, whose weights and optimizers are restored.
        checkpoints: decides when to save, and when to stop because of a signal.
        description: description of the training for its checkpoints.
        mlperf: logs the training for MLPerf.
    """

    def __init__(
        self,
        run: RunContext,
        checkpoints: CheckpointPolicy,
        description: Mapping[str, Any],
        mlperf: MLPerfHook,
    ):
        from runtime.logs.timer import StepTimer

        assert run.recipe.train is not None and run.total_steps is not None
        self.recipe, self.data, self.goal = run.recipe, run.recipe.train, run.recipe.goal
        self.config, self.log = run.config, run.log
        self.evaluation = run.config.evaluation
        self.run_context, self.folder, self.position = run, run.start.folder, run.position
        self.checkpoints, self.description, self.mlperf = checkpoints, description, mlperf

        self.trainer = self.recipe.make_trainer(run.device.loss_scale, run.world)
        if self.position.trainer:
            self.trainer.set_state(self.position.trainer)
        self.weights = training_weights(self.recipe)
        self.scales_loss = run.device.loss_scale != 1.0

        warmup_steps = min(WARMUP_STEPS, max(0, run.total_steps - self.position.step) // 2)
        if self.evaluation.benchmark:
            warmup_steps = self.evaluation.warmup_batches
        self.epoch_log = EpochLog(run)
        times_epochs = self.epoch_log.times_epochs or self.evaluation.benchmark
        self.timer = StepTimer(warmup_steps, epochs=times_epochs)
        self._profile, self._profiles = run.run_dir / "profile", False

        self.best_folder = self.folder if run.keeps_best else None
        self.schedule = make_schedule(run, keeps_best=self.best_folder is not None)
        self._elapsed_before_s = self.position.elapsed_s
        self._reported_step = self.position.trainer.get("seen_steps", self.position.step)
        self._prepare()

    def _prepare(self) -> None:
        """Logs notes, and brings state that other runs left up to date."""
        note_schedule(self.config, self.log, self.schedule.total_steps)
        if self.folder is not None and self.position.step:
            # The run may resume before the best checkpoint, on other data, or without keeping the
            # best one; or the one before was killed before it set the link.
            run_on_all_ranks(self.run_context.world, self._update_best_link)
        if not self.position.has_reached(self.goal):
            self.position.goal_reached_s = None  # of another threshold
        if self.run_context.start.is_newest and not self._due().evaluate:
            self.checkpoints.saved_step = self.position.step

    def run(self) -> None:
        """Trains to the end, or until a stop is requested.

        Raises:
            TrainingDiverged: the loss, a score or a weight became infinite or NaN.
            CollectiveError: a checkpoint could not be written, at the end or with
                `--on_checkpoint_error stop`.
        """
        from nn.train.trainer import non_finite_variable

        position, data = self.position, self.data
        due = self.schedule.due(position, self.checkpoints, is_start=True)
        if due.evaluate or not due.is_over:
            self.mlperf.start()
        is_over, steps = self._work(due), self._steps()
        while not is_over:
            iterator, batch = next(steps)
            self.trainer.train_step(iterator)
            position.step += 1
            position.row = min((batch + 1) * data.batch_size, data.num_samples)
            stack_sample.record_step(position.step)
            self.timer.step(samples_of_batch(data, batch))
            self.log.progress(position.step)
            self.checkpoints.tick()
            is_over = self._work(self._due())
        self.report()
        if self._profiles:
            self._switch_profiler()
        if name := non_finite_variable(self.recipe.optimizers):
            raise NonFiniteWeight(name)
        due = self._due()
        if due.save:  # nothing was left to do, or the last one failed
            self.save(due)
        self.checkpoints.finish(is_complete=due.is_complete)
        if due.is_complete:
            self.mlperf.stop(position.has_reached(self.goal))

    def _steps(self) -> Iterator[tuple[Any, int]]:
        """Yields the number of a batch, and the iterator that returns it, epoch after epoch."""
        position, data = self.position, self.data
        while True:
            if position.row == data.num_samples:
                position.epoch, position.row = position.epoch + 1, 0
            iterator = iter(data.dataset(position.epoch, position.row))
            for batch in range(position.row // data.batch_size, data.num_batches):
                yield iterator, batch

    def _due(self) -> Due:
        return self.schedule.due(self.position, self.checkpoints)

    def _work(self, due: Due) -> bool:
        """Does what is due; returns whether the training is over."""
        if due.stop_profile and self._profiles:
            self._switch_profiler()
        if due.report:
            self.report()
        if due.evaluate:
            self.evaluate()
            due = self._due()
            if due.is_best and (picture := self._evaluator().picture(self.position.metrics)):
                self.run_context.kept_picture.update(picture, step=self.position.step)
            if not due.is_over:
                self.mlperf.start_block()
        if due.end_epoch:
            self.epoch_log.log_epoch(self.timer, self.report)
        if due.save:
            self.save(due)
        if due.start_profile:
            self._switch_profiler()
        return due.is_over

    def _switch_profiler(self) -> None:
        """Starts TensorFlow's profiler, or writes the profile."""
        from tensorflow import profiler

        self._profiles = not self._profiles
        if self._profiles:
            profiler.experimental.start(str(self._profile))
        else:
            profiler.experimental.stop()

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
        self.mlperf.start_evaluation()
        metrics, seconds = self._measure()
        if not metrics:  # interrupted, because a signal requests to stop
            return
        position, elapsed_s = self.position, self._elapsed_s()
        ends_epoch = position.row == self.data.num_samples
        self.epoch_log.log_evaluation(metrics, elapsed_s, seconds, ends_epoch)
        self.run_context.log_notes(self._evaluator().notes)
        position.add_evaluation(self.goal, metrics, elapsed_s)
        self.mlperf.end_evaluation(metrics[self.goal.threshold_metric])
        self.run_context.on_evaluation(metrics[self.goal.metric])

    def _measure(self) -> tuple[dict[str, float], float]:
        """Returns the metrics of an evaluation, none if a stop is requested, and its seconds."""
        from nn.metrics.classification import NonFiniteScores

        evaluator = self._evaluator()
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
        seconds = time.perf_counter() - start
        self.checkpoints.reset_pace()
        return metrics, seconds

    def save(self, due: Due) -> None:
        """Starts to save a checkpoint."""
        position = self.position
        with self.timer.paused():
            position.trainer = self.trainer.state()
            self._check_losses(position.trainer["first_bad_step"], position.step)
            position.elapsed_s = self._elapsed_s()
            state = {**position.to_json(self.goal), "finished": due.is_complete}
            self.checkpoints.save(position.step, self.weights, self.description, state, due.is_best)

    def summary(self) -> dict[str, Any]:
        """Logs why the training ended; returns the results of the run."""
        position, goal, best = self.position, self.goal, self.position.best
        if position.has_reached(goal):
            metric = goal.threshold_metric
            self.log.message(
                f"--{goal.flag} {goal.threshold} is reached: best_{metric} "
                f"{position.highest(metric):.5f}"
            )
        elif goal.threshold is not None and goal.threshold < 1:  # 1.0: no target was set
            self.log.message(f"--{goal.flag} {goal.threshold} was not reached")
        total_steps = self.schedule.total_steps
        if self.schedule.patience_is_exhausted(position) and position.step < total_steps:
            self.log.message(
                f"early stopping at step {position.step} of {total_steps}: "
                f"{self.evaluation.early_stopping} evaluations in a row without a "
                f"{'lower' if goal.lower_is_better else 'higher'} {goal.metric}"
            )
        if best is not None and self.recipe.evaluator is not None:
            self._log_best(best)
        throughput = self.timer.mean_throughput()
        elapsed_s = self._elapsed_s()
        values = {
            **position.metrics,
            **position.best_values(goal),
            "steps": position.step,
            **(self.timer.end_epoch() if self.evaluation.benchmark else {}),
            **({} if math.isnan(throughput) else {"throughput": throughput}),
            "elapsed_s": elapsed_s,
        }
        return self.epoch_log.complete_summary(values, elapsed_s)

    def _log_best(self, best: Best) -> None:
        """Logs the best evaluation and its checkpoint, and a quality that fell after its peak."""
        goal, position, split = self.goal, self.position, self._evaluator().split
        kept = "its checkpoint was not kept (--keep_best)"
        if self.folder is None:
            kept = "no checkpoint without --save_checkpoint_path"
        elif self.best_folder and (path := self.best_folder.best_of_step(best.step)):
            kept = f"checkpoint {path}"
        quality = goal.threshold_metric
        values = [(value, -step) for step, value in position.values_of(quality) if value == value]
        highest, step = max(values, default=(-math.inf, 0))
        if highest - position.metrics.get(quality, math.nan) >= _NOTED_FALL:
            self.log.message(
                f"{split} {quality} fell from {highest:.5f} at step {-step} to "
                f"{position.metrics[quality]:.5f}"
            )
        if self.evaluation.early_stopping or self.best_folder or best.step < position.step:
            text = f"best {split} {goal.metric} {best.value:.5f} at step {best.step}"
            self.log.message(f"{text}: {kept}")

    def _evaluator(self) -> Evaluator:
        assert self.recipe.evaluator is not None
        return self.recipe.evaluator

    def _elapsed_s(self) -> float:
        return self._elapsed_before_s + self.timer.elapsed_s

    def _check_losses(self, first_bad_step: int, step: int) -> None:
        if first_bad_step:
            raise TrainingDiverged(
                f"the loss is not finite at step {first_bad_step} (between step "
                f"{self._reported_step}, the last one reported, and {step})"
            )

    def _update_best_link(self) -> None:
        if self.run_context.world.is_chief and self.folder is not None:
            best = self.position.best if self.best_folder else None
            self.folder.set_best(best.step if best else None)
