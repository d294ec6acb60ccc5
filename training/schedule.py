"""Schedule of a training: its number of steps, and the work that is due after each of them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from config.config import Config
from recipes.recipe import Dataset, Goal
from runtime.checkpoint.policy import CheckpointPolicy
from runtime.logs.run_logger import RunLogger
from training.state import Position, RunContext


class Due(NamedTuple):
    """Work that is due at a position of a training, in this order, and whether the training ends.

    Attributes:
        stop_profile: the last profiled step is done.
        report: read the loss, a synchronization with the device, and log it.
        evaluate: evaluate; what follows is to be decided again, by the metrics.
        end_epoch: log the end of an epoch.
        save: save a checkpoint.
        start_profile: the next step is the first profiled one.
        is_over: no step follows: `is_complete`, or a stop is requested.
        is_complete: all steps are done, or metrics have ended the training.
        is_best: this evaluation is the best so far, whose weights are kept.
    """

    stop_profile: bool
    report: bool
    evaluate: bool
    end_epoch: bool
    save: bool
    start_profile: bool
    is_over: bool
    is_complete: bool
    is_best: bool


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Rules of what is due; `due` is the only place that decides it.

    Attributes:
        total_steps: steps of the whole training.
        num_samples: samples of an epoch.
        batch_size: global batch size.
        evaluated_batches: batches of an epoch (from 1) after which to evaluate.
        print_freq: steps between reports of the loss.
        goal: metric by which evaluations are compared, and the threshold that ends the training.
        patience: number of evaluations in a row without a better one that end the training.
        keeps_best: whether the weights of the best evaluation are kept.
        saves_epochs: whether a checkpoint is saved after every epoch.
        checkpoint_every: steps between checkpoints.
        profiled_from, profiled_until: first profiled step, and the one after the last; None: none.
    """

    total_steps: int
    num_samples: int
    batch_size: int
    evaluated_batches: Collection[int] = ()
    print_freq: int = 1000
    goal: Goal = Goal()
    patience: int | None = None
    keeps_best: bool = False
    saves_epochs: bool = False
    checkpoint_every: int | None = None
    profiled_from: int | None = None
    profiled_until: int | None = None

    def due(self, position: Position, checkpoints: CheckpointPolicy, is_start: bool = False) -> Due:
        """Returns what is due at a position, where a run starts or after a step.

        A run that starts neither reports nor saves, except after an evaluation: the run before it
        was stopped when this was due, or the data set has grown, and the weights that were trained
        before may stay the best.
        """
        step, stops = position.step, checkpoints.stopping is not None
        epoch_ends, is_last = position.row == self.num_samples, step >= self.total_steps
        evaluates = self._evaluation_is_due(position)
        is_decided = position.has_reached(self.goal) or self.patience_is_exhausted(position)
        is_best = self.keeps_best and position.best is not None and position.best.step == step
        is_over = is_last or is_decided or stops
        saves = self._save_is_due(position, checkpoints) or is_over or is_best
        return Due(
            stop_profile=step == self.profiled_until,
            report=not is_start and loss_is_due(step, self.print_freq),
            evaluate=evaluates and not stops,
            end_epoch=not is_start and epoch_ends and not evaluates,
            save=not is_start and saves and checkpoints.saves and checkpoints.saved_step != step,
            start_profile=step == self.profiled_from,
            is_over=is_over,
            is_complete=(is_last and not evaluates) or is_decided,
            is_best=is_best,
        )

    def _evaluation_is_due(self, position: Position) -> bool:
        if not self.evaluated_batches or position.evaluated_step == position.step:
            return False
        if 0 < position.step == position.first_step:
            return self.keeps_best
        batch = -(-position.row // self.batch_size)
        return batch in self.evaluated_batches or position.step == self.total_steps

    def _save_is_due(self, position: Position, checkpoints: CheckpointPolicy) -> bool:
        """Returns whether to save by the time since the last checkpoint."""
        every, epoch_ends = self.checkpoint_every, position.row == self.num_samples
        is_due = checkpoints.is_due or (every is not None and position.step % every == 0)
        return is_due or (self.saves_epochs and epoch_ends)

    def patience_is_exhausted(self, position: Position) -> bool:
        """Returns whether early stopping ends the training."""
        return self.patience is not None and position.stale_evaluations(self.goal) >= self.patience


def make_schedule(run: RunContext, keeps_best: bool) -> Schedule:
    """Returns the schedule of a run with `--mode train`."""
    recipe, data, flags, logs = run.recipe, run.recipe.train, run.config.evaluation, run.config.logs
    assert data is not None and run.total_steps is not None
    evaluated = evaluation_batches(data.num_batches, flags.evals_per_epoch)
    first = logs.profiler_start_step if run.world.rank == logs.profiled_rank else None
    return Schedule(
        total_steps=run.total_steps,
        num_samples=data.num_samples,
        batch_size=data.batch_size,
        evaluated_batches=evaluated if recipe.evaluator is not None else (),
        print_freq=logs.print_freq,
        goal=recipe.goal,
        patience=flags.early_stopping,
        keeps_best=keeps_best,
        saves_epochs=recipe.saves_epochs,
        checkpoint_every=run.config.checkpoint.checkpoint_every,
        profiled_from=first,
        profiled_until=None if first is None else first + logs.profiler_steps,
    )


def count_steps(config: Config, num_batches: int) -> int:
    """Returns the steps of the whole training, or of its benchmark with `--benchmark`."""
    run, evaluation = config.run, config.evaluation
    steps = run.epochs * num_batches
    if evaluation.benchmark:
        measured = evaluation.benchmark_steps or max(1, steps - evaluation.warmup_batches)
        return evaluation.warmup_batches + measured
    return steps if run.max_steps == -1 else min(steps, run.max_steps)


def evaluation_batches(num_batches: int, evals_per_epoch: int) -> set[int]:
    """Returns the batches of an epoch (from 1) after which to evaluate.

    They are evenly spaced, and the last batch is one of them.
    """
    evals = min(evals_per_epoch, num_batches)
    return {-(-num_batches * k // evals) for k in range(1, evals + 1)}


def loss_is_due(step: int, print_freq: int) -> bool:
    """Returns whether to read the loss after this step.

    It is read every `print_freq` steps, and before the first of them after 10, 20, 50, 100, 200,
    500, ... steps, which show how a training starts.
    """
    if step >= print_freq:
        return step % print_freq == 0
    return step >= 10 and str(step).rstrip("0") in ("1", "2", "5")


def samples_of_batch(dataset: Dataset, batch: int) -> int:
    """Returns the samples of batch number `batch` (from 0); the last of an epoch may be short."""
    return min(dataset.batch_size, dataset.num_samples - batch * dataset.batch_size)


def note_schedule(config: Config, log: RunLogger, total_steps: int) -> None:
    """Logs a note if the training is too short or too long for its learning rate schedule.

    A benchmark keeps no model, so its schedule does not matter.
    """
    if config.evaluation.benchmark:
        return
    if total_steps < config.optimizer.warmup_steps:
        log.message(
            f"note: {total_steps} steps end within --warmup_steps {config.optimizer.warmup_steps}: "
            "the learning rate never reaches --learning_rate"
        )
    decay_end = config.optimizer.decay_start_step + config.optimizer.decay_steps
    if config.optimizer.decay_steps and total_steps > decay_end:
        log.message(
            f"note: the learning rate is 0 from step {decay_end} of {total_steps} on "
            "(--decay_start_step + --decay_steps)"
        )
