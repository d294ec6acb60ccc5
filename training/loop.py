"""The one training loop: steps, looks at the loss, evaluations, checkpoints."""

import contextlib
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from config import Config
from runtime import checkpoint
from runtime.checkpoint.policy import Keeper
from runtime.cluster.distributed import RankLost, failure_message, run_on_all_ranks
from runtime.cluster.elastic import Membership
from runtime.cluster.failure import stack_sample
from runtime.cluster.signals import StopSignal, ignore_sigterm
from runtime.hardware import device
from training import early_stopping


class TrainingDiverged(Exception):
    """The loss became infinite or NaN."""


class Stopped(Exception):
    """A signal, or a change of hosts, ended the training after a checkpoint; the text says how to
    go on.

    Attributes:
      why: what stopped it.
      here: this process got the signal.
    """

    def __init__(self, text: str, why: str, here: bool):
        super().__init__(text)
        self.why, self.here = why, here


@dataclass
class Position:
    """Where a training is; with weights and the optimizers' state all that going on needs.

    Every random number of a training follows from the seed (a flag) and from this.

    Attributes:
      step: steps done in all.
      epoch, row: the next row in the order of its epoch; rows before it were trained on.
      evaluated_step: step after which the model was evaluated last.
      elapsed_s: seconds of training so far, in all runs.
      trainer: `Trainer.state()`.
      metrics, best: of the last evaluation; the best value of the goal, and when.
      history: the learning curve.
    """

    step: int = 0
    epoch: int = 0
    row: int = 0
    evaluated_step: int = 0
    elapsed_s: float = 0.0
    trainer: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    history: dict[str, list] = field(
        default_factory=lambda: {"train_loss": [], "validation_loss": []}
    )


def count_steps(config: Config, num_batches: int) -> int:
    """Steps of the whole training; of a benchmark those that it asks for."""
    run = config.run
    if run.benchmark:
        return run.warmup_batches + run.benchmark_steps
    steps = run.epochs * num_batches
    return steps if run.max_steps == -1 else min(steps, run.max_steps)


def evaluation_batches(num_batches: int, evals_per_epoch: int) -> set[int]:
    """After which batches of an epoch (from 1) to evaluate: evenly spaced, the last one always."""
    evals = min(evals_per_epoch, num_batches)
    return {-(-num_batches * k // evals) for k in range(1, evals + 1)}


def loss_is_due(step: int, print_freq: int) -> bool:
    """Returns whether to read the loss after this step: every `print_freq` steps, and before the
    first of them after 10, 20, 50, 100, 200, 500, ... steps, which show how a training starts."""
    if step >= print_freq:
        return step % print_freq == 0
    return step >= 10 and str(step).rstrip("0") in ("1", "2", "5")


def rows_of_batch(dataset, batch: int) -> int:
    """Rows of batch number `batch` (from 0); the last one of an epoch may be short."""
    return min(dataset.batch_size, dataset.num_rows - batch * dataset.batch_size)


def training_weights(recipe) -> list:
    """All that a checkpoint of a training holds."""
    return recipe.model.weights_to_save() + recipe.model.optimizer_weights(recipe.groups)


def description(config: Config, recipe, spec_hash: str | None) -> dict[str, Any]:
    """What a checkpoint says of the model and of the training that it is from."""
    return {
        "recipe": config.recipe,
        "model_flags": dict(recipe.model_flags),
        "flags": config.flat(),
        "feature_spec": spec_hash,
        "training_rows": recipe.train.num_rows,
        "versions": device.describe(),
        **({"no_resume": why} if (why := recipe.model.state_not_saved(recipe.groups)) else {}),
    }


def check_same_rows(saved: Mapping[str, Any], config: Config, recipe, spec_hash, where) -> None:
    """Raises ValueError where a training cannot go on with these rows, or not at all."""
    if why := saved.get("no_resume") or recipe.model.state_not_saved(recipe.groups):
        raise ValueError(f"{where} cannot be resumed: {why}")
    for name, ours in (("feature_spec", spec_hash), ("training_rows", recipe.train.num_rows)):
        if saved[name] != ours:
            raise ValueError(
                f"{where} is of a training on other data: {name} was {saved[name]}, that of "
                f"{config.data.dataset_path or 'the generated rows'} is {ours}. To start a new "
                "training from its weights, use --restore_checkpoint_path"
            )


def train(
    config: Config,
    recipe,
    place,
    world,
    log,
    *,
    run_dir: Path,
    total_steps: int,
    folder: checkpoint.Folder | None,
    position: Position,
    saved_here: bool,
    described: Mapping[str, Any],
    members: Membership,
) -> dict[str, float]:
    """Trains, evaluates and saves on the way, and returns the summary.

    Args:
      recipe: model, rows and the rest, `main.Recipe`.
      place: `runtime.hardware.device.Device`.
      total_steps: of the whole training, also of what an earlier run did.
      folder: of the checkpoints; None to save none.
      position: where it starts, and what is moved on; weights and optimizers are there already.
      saved_here: this is the newest checkpoint of `folder`.
      described: what checkpoints say of the model.
      members: processes that may come and go, or not.

    Raises:
      TrainingDiverged, Stopped: see there.
      CollectiveError: a checkpoint could not be written, at the end or with
        --on_checkpoint_error stop.
    """
    from nn.metrics.classification import NonFiniteScores
    from nn.train.trainer import Trainer, non_finite_variable
    from runtime.logs.profiler import Profiler
    from runtime.logs.timer import Speeds, StepTimer

    options, rows = config.run, recipe.train
    trainer = Trainer(
        recipe.model,
        recipe.loss,
        recipe.groups,
        place.loss_scale,
        world,
        recipe.loss_parts,
        recipe.rows,
        recipe.accumulate,
    )
    at, begun, elapsed_before_s = position, position.step, position.elapsed_s
    if at.trainer:
        trainer.set_state(at.trainer)
    weights = training_weights(recipe)
    evaluates = recipe.evaluator is not None
    patience = options.early_stopping
    keeps_best = config.checkpoint.keep_best
    if keeps_best is None:
        keeps_best = bool(patience) or config.collaborative.checkpoint_dir is not None
    goal, threshold, goal_flag = recipe.goal
    best_name, reached_name = f"best_{goal}", f"time_to_{goal_flag}_s"
    evaluate_after = evaluation_batches(rows.num_batches, options.evals_per_epoch)
    note_schedule(config, log, total_steps)
    if patience and not (folder is not None and keeps_best):
        missing = "--save_checkpoint_path" if folder is None else "--keep_best"
        log.message(f"note: --early_stopping without {missing}: the best weights are not kept")
    warmup_steps = min(10, max(0, total_steps - begun) // 2)
    if options.benchmark:
        warmup_steps = options.warmup_batches
    timer = StepTimer(warmup_steps, epochs=log.epoch_lines or options.benchmark)
    profiler, speeds = Profiler(options, run_dir, world), Speeds()
    good_step = at.trainer.get("seen_steps", begun)  # what came after was not reported yet

    def diverged(text: str) -> TrainingDiverged:
        keeper.settle()
        return TrainingDiverged(
            f"{text}; {keeper.last_saved}. Try a smaller --learning_rate or a longer --warmup_steps"
        )

    def check_losses(first_bad_step: int, step: int) -> None:
        if first_bad_step:
            raise diverged(
                f"the loss is not finite at step {first_bad_step} (between step {good_step}, the "
                f"last one looked at, and {step})"
            )

    def report() -> None:
        """Looks at what the device has done (it is waited for here) and writes a line."""
        nonlocal good_step
        progress = trainer.progress()
        check_losses(progress.first_bad_step, progress.step)
        if progress.step == good_step:
            return
        good_step = progress.step
        line = {"loss": progress.loss, **progress.parts, "learning_rate": progress.learning_rate}
        if not math.isnan(rate := timer.lap()):  # NaN within the timer's warm-up
            line["throughput"] = rate
        if place.loss_scale != 1.0:
            line["skipped_steps"] = progress.skipped_steps
            line["loss_scale"] = progress.loss_scale
        log.log(progress.step, line, epoch=at.epoch)
        at.history["train_loss"].append((progress.step, progress.loss))

    def evaluate() -> None:
        report()
        try:
            keeper.change_of_pace()
            with timer.paused():
                began = time.perf_counter()
                with log.bar("evaluation", recipe.evaluator.num_batches) as advance:
                    metrics = dict(recipe.evaluator.evaluate(lambda: advance() or keeper.tick()))
                speeds.evaluated(recipe.valid.num_rows, time.perf_counter() - began)
            keeper.change_of_pace()
        except NonFiniteScores as error:
            keeper.settle()
            raise TrainingDiverged(
                f"between step {good_step - 1} and {good_step}: {error}; {keeper.last_saved}"
            ) from None
        if not metrics:  # given up, because a signal asks to stop
            return
        elapsed_s = elapsed_before_s + timer.elapsed_s
        if not (log.epoch_lines and epoch_ended()):
            log.log(at.step, {**metrics, "elapsed_s": elapsed_s}, epoch=at.epoch)
        if recipe.evaluator.note:
            log.message(recipe.evaluator.note)
        at.evaluated_step, at.metrics = at.step, metrics
        at.history["validation_loss"].append((at.step, metrics["log_loss"]))
        at.history.setdefault(f"validation_{goal}", []).append((at.step, metrics[goal]))
        if early_stopping.is_improvement(metrics[goal], at.best.get(best_name)):
            at.best |= {best_name: metrics[goal], f"{best_name}_step": at.step}
            if log.speeds:
                at.best |= {"best_epoch": at.epoch, "time_to_best_s": elapsed_s}
        if threshold is not None and metrics[goal] >= threshold:
            at.best[reached_name] = elapsed_s

    def reached() -> bool:
        """Whether the training is as good as it was asked to be."""
        return threshold is not None and at.best.get(best_name, -1.0) >= threshold

    def exhausted() -> bool:
        """Returns whether --early_stopping ends the training; the same on every rank."""
        if patience is None:
            return False
        values = (value for _, value in at.history.get(f"validation_{goal}", []))
        return early_stopping.stale_evaluations(values) >= patience

    def is_over() -> bool:
        return reached() or exhausted()

    def is_best() -> bool:
        """Whether this step is the best so far, and to be kept for it."""
        return keeps_best and at.best.get(f"{best_name}_step") == at.step

    def epoch_ended() -> bool:
        return at.row == rows.num_rows

    def end_epoch() -> None:
        """A line on the whole epoch, in logs that have them."""
        if log.epoch_lines and epoch_ended() and not evaluation_due() and not options.benchmark:
            report()
            metrics = at.metrics if at.evaluated_step == at.step else {}
            num_samples, found = timer.epoch_samples, timer.end_epoch()
            if log.speeds:
                losses = at.history["train_loss"]
                found = speeds.of_epoch(num_samples, found["epoch_s"], evaluated=bool(metrics))
                found |= {"loss": losses[-1][1]} if losses else {}
            log.end_epoch(at.epoch, at.step, {**found, **metrics})

    def evaluation_due() -> bool:
        if not evaluates or at.evaluated_step == at.step or not at.step:
            return False
        batch = -(-at.row // rows.batch_size)
        return batch in evaluate_after or at.step == total_steps

    def save() -> None:
        with timer.paused():
            at.trainer = trainer.state()
            check_losses(at.trainer["first_bad_step"], at.step)
            at.elapsed_s = elapsed_before_s + timer.elapsed_s
            keeper.save(at.step, weights, described, asdict(at), is_best())

    def after_step() -> None:
        """What is due between steps."""
        if evaluation_due() and not keeper.stopping:
            evaluate()
        end_epoch()
        if keeper.due(at.step, at.step == total_steps or is_over() or is_best()):
            save()

    def say_which_was_best() -> None:
        if world.is_chief:
            folder.set_best(at.best.get(f"{best_name}_step"))

    with contextlib.ExitStack() as entered:
        signals = StopSignal()
        if folder is not None:
            entered.enter_context(signals)
        unchanged = saved_here and not evaluation_due()
        saved_step = at.step if unchanged else None
        if folder is not None and keeps_best and begun:
            # It may go on from before the best one, or was killed before it said which that is.
            run_on_all_ranks(world, say_which_was_best)
        if not reached():
            at.best.pop(reached_name, None)  # of another threshold
        keeper = Keeper(config.checkpoint, folder, world, log, signals, members, saved_step)
        try:
            if evaluation_due():  # the run before was stopped before it was evaluated
                evaluate()
                end_epoch()
            for epoch in range(at.epoch, max(options.epochs, -(-total_steps // rows.num_batches))):
                if at.step >= total_steps or is_over() or keeper.stopping:
                    break
                if at.epoch != epoch:
                    at.epoch, at.row = epoch, 0
                if at.row >= rows.num_rows:
                    continue
                iterator = iter(rows.dataset(epoch, at.row))
                for batch in range(at.row // rows.batch_size, rows.num_batches):
                    # One step.
                    profiler.before(at.step)
                    trainer.train_step(iterator)
                    at.step += 1
                    stack_sample.record_step(at.step)
                    at.row = min((batch + 1) * rows.batch_size, rows.num_rows)
                    timer.step(rows_of_batch(rows, batch))
                    profiler.after(at.step)
                    log.progress(at.step)
                    # Every --print_freq steps, and some early ones: look at the loss.
                    if loss_is_due(at.step, options.print_freq):
                        report()
                    # Sometimes: evaluate, save, stop.
                    keeper.tick()
                    after_step()
                    if keeper.stopping or is_over() or at.step == total_steps:
                        break
            report()
            profiler.stop()
            if broken := non_finite_variable(recipe.groups):
                raise checkpoint.NonFiniteWeight(broken)
            if keeper.due(at.step, last=True):  # a signal, or nothing was left to do
                save()
            keeper.finish()
        except checkpoint.NonFiniteWeight as error:
            raise diverged(f"the last steps left NaN or infinity in {error}") from None
        except Exception as error:
            if world.size == 1:  # other ranks may not come to this
                keeper.settle()
            # While SIGTERM is still a wish: the launcher may send it meanwhile.
            elif said := failure_message(error):
                raise RankLost(said) from error
            raise
        if keeper.stopping and (at.step < total_steps or evaluation_due()) and not is_over():
            why, here = keeper.stopping, signals.name is not None
            text = f"stopped by {why} at step {at.step} of {total_steps}; {keeper.last_saved}"
            if here or not members.is_elastic:
                if world.size > 1:  # the launcher sends SIGTERM as soon as one of them has ended
                    ignore_sigterm()
                again = "auto" if config.checkpoint.save_checkpoint_path else folder.root
                text += f". Go on with --resume {again}"
            raise Stopped(text, why, here)
    if reached():
        log.message(f"--{goal_flag} {threshold} is reached: {best_name} {at.best[best_name]:.5f}")
    elif threshold is not None and threshold < 1:  # nobody waits for a perfect model
        log.message(f"--{goal_flag} {threshold} was not reached")
    if exhausted():
        log.message(
            f"early stopping at step {at.step} of {total_steps}: {patience} evaluations in a row "
            f"without a higher {goal}"
        )
    if best_step := (patience or keeps_best) and at.best.get(f"{best_name}_step"):
        path = folder.best_of_step(best_step) if folder is not None and keeps_best else None
        log.message(
            early_stopping.describe_best(
                f"{recipe.evaluator.split} {goal}", at.best[best_name], best_step, path
            )
        )
    return {
        **at.metrics,
        **at.best,
        "steps": at.step,
        **(timer.end_epoch() if options.benchmark else {}),
        **(speeds.summary() if log.speeds else {}),
        **({} if math.isnan(rate := timer.mean_throughput()) else {"throughput": rate}),
        "elapsed_s": elapsed_before_s + timer.elapsed_s,
    }


def note_schedule(config: Config, log, total_steps: int) -> None:
    """Says where a training is too short, or too long, for its learning rate's schedule."""
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
