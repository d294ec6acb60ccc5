"""The one loop: set-up, data and model, then train, eval or inference.

A recipe (`dlrm.py`, `dcnv2.py`) says what to train and calls `run`. `python main.py` is `dlrm.py`.
"""

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import config as configuration
from config import Config
from dataloading.feature_spec import FeatureSpec
from runtime import checkpoint, device, distributed, plots, run_folder

# Exit codes beside 0 (done) and 1 (a defect of ours, with a traceback).
USER_ERROR = 2
DIVERGED = 3
RANK_LOST = 4
INTERRUPTED = 130  # as the shell says it: 128 + SIGINT


class Recipe(NamedTuple):
    """What a recipe's `build(config, spec, world, device)` composes.

    Attributes:
      model: the model, all weights made; `weights_to_save()` lists them.
      train: training rows (`num_rows`, `num_batches`, `dataset(epoch)`, and `failure`, what was
        wrong with a row that could not be read); None unless --mode train.
      valid: rows to evaluate on, likewise; None with --evals_per_epoch 0.
      loss: `loss(model, batch) -> (scalar, {name: value})`.
      groups: optimizers with their learning rates, `nn.optimizers.OptimizerGroup`.
      evaluator: `evaluate()` yields (name, value), "auc" and "log_loss" among them; `note` says
        what the reader must know of them; `draw(folder, metrics)`. None without rows to evaluate.
      model_flags: the flags that a checkpoint must remember to build this model again.
      facts: what is worth knowing of model and data, for the log.
      best_auc: gives the best AUC that any model can reach on `valid`, None where nobody knows.
    """

    model: Any
    train: Any
    valid: Any
    loss: Callable
    groups: Sequence
    evaluator: Any
    model_flags: Mapping[str, Any]
    facts: Mapping[str, Any]
    best_auc: Callable[[], float | None] = lambda: None


class TrainingDiverged(Exception):
    """The loss became infinite or NaN."""


def run(
    recipe: str,
    build: Callable[..., Recipe],
    doc: str,
    defaults: Mapping[str, Any] | None = None,
    argv: Sequence[str] | None = None,
    report_plan: Callable[[Config, FeatureSpec | None], str] | None = None,
) -> int:
    """Runs a recipe from its command line; returns the process's exit code.

    Args:
      recipe: its name.
      build: composes model and data, see `Recipe`.
      doc: text in front of the flags in `--help`.
      defaults: flags whose default differs.
      argv: the command line; the process's where not given.
      report_plan: what `--plan_only` prints, from the flags and the feature spec.
    """
    argv = sys.argv if argv is None else argv
    # TensorFlow's own log below errors: start-up lines, and stack traces of what we report.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if {"--help", "-h", "-help"} & set(argv[1:]):
        print(doc.strip() + "\n" + configuration.usage(defaults))
        return 0
    try:
        config = configuration.parse(argv, recipe, defaults)
        if config.distribution.plan_only:
            if report_plan is None:
                raise ValueError(f"--plan_only: the recipe {recipe} has no plan")
            print(report_plan(config, load_feature_spec(config)))
            return 0
        execute(config, build, defaults)
    except distributed.AgreedError as error:  # every rank has it, one says it
        if distributed.current().is_chief:
            print(f"{recipe}: error: {error}", file=sys.stderr)
        return USER_ERROR
    except (ValueError, OSError) as error:
        print(f"{recipe}: error: {error}", file=sys.stderr)
        return USER_ERROR
    except TrainingDiverged as error:
        if distributed.current().is_chief:
            print(f"{recipe}: training diverged: {error}", file=sys.stderr)
        return DIVERGED
    except KeyboardInterrupt:
        print(f"{recipe}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        said = distributed.explain(error)
        if said is None:
            raise
        print(f"{recipe}: error: {said}", file=sys.stderr)
        return RANK_LOST
    return 0


def execute(
    config: Config, build: Callable[..., Recipe], defaults: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Does what `config` asks for and returns the summary.

    Raises:
      ValueError: something that the user can mend.
      TrainingDiverged: the loss became infinite or NaN.
    """
    # 1. Set-up: processes, device, seed.
    world = distributed.connect(config.distribution.rank_timeout_s)
    place = agreed(world, lambda: device.set_up(config.run, world.local_rank, world.local_size))
    world.check_agreement({**shared_flags(config), "the device": str(place)})

    def check():
        if config.run.profiler_start_step is not None and config.run.profiled_rank >= world.size:
            raise ValueError(
                f"--profiled_rank {config.run.profiled_rank} does not exist: there are "
                f"{world.size} processes, the first is 0"
            )
        adopted, saved = config, None
        if config.run.restore_checkpoint_path:
            saved = checkpoint.describe(config.run.restore_checkpoint_path)
            adopted = checkpoint.adopt_flags(config, saved)
        if config.run.mode == "train" and config.run.save_checkpoint_path and world.is_chief:
            checkpoint.check_writable(config.run.save_checkpoint_path)
        return adopted, saved

    config, saved = agreed(world, check)
    world.check_agreement(
        {
            "the restored checkpoint": saved,
            "whether --save_checkpoint_path is given": bool(config.run.save_checkpoint_path),
            **shared_flags(config),
        }
    )
    seed = world.gather_objects(device.choose_seed(config.run.seed), "seed")[0]
    config = config.replace(seed=seed)

    # 2. Data and model.
    spec = agreed(world, lambda: load_feature_spec(config))
    world.check_agreement({"the feature spec": spec.fingerprint() if spec else None})

    def make() -> Recipe:
        made = build(config, spec, world, place)
        if saved is not None:
            checkpoint.restore(config.run.restore_checkpoint_path, made.model.weights_to_save())
        return made

    recipe = agreed(world, make)
    world.check_agreement({**recipe.model_flags, **recipe.facts})

    # 3. The log: parameters first, summary last.
    total_steps = None
    if config.run.mode == "train":
        total_steps = count_steps(config, recipe.train.num_batches)
        if (config.run.profiler_start_step or 0) >= total_steps:
            raise ValueError(
                f"--profiler_start_step {config.run.profiler_start_step} is never reached: the "
                f"training has {total_steps} steps, the first is 0"
            )
    run_dir = agreed(world, lambda: run_folder.make_run_dir(config) if world.is_chief else None)
    run_dir = Path(world.gather_objects(str(run_dir), "run_dir")[0])
    with agreed(
        world, lambda: run_folder.open_log(config, defaults, run_dir, world, total_steps)
    ) as log:
        log.message(describe(recipe, place, config))
        if ignored := configuration.unused(config):
            log.message(
                f"note: not used in this run (--mode {config.run.mode}): "
                + ", ".join(f"--{name}" for name in ignored)
            )
        if "loss_scale" in config.given and place.compute_dtype != "float16":
            log.message("note: --loss_scale is not used, bfloat16 has the range of float32")
        try:
            if config.run.mode == "train":
                summary = train(config, recipe, place, world, log, run_dir, total_steps)
            elif config.run.mode == "eval":
                summary = evaluate(recipe, world, log, run_dir)
            else:
                summary = benchmark_inference(config, recipe, log)
        except TrainingDiverged as error:
            log.message(f"training diverged: {error}")
            raise
        except KeyboardInterrupt:
            log.message("interrupted")
            raise
        except Exception as error:
            # A bad row arrives here as a stack trace of tf.data; the loader remembers what it was.
            for rows in (recipe.train, recipe.valid):
                if rows is not None and rows.failure:
                    raise ValueError(rows.failure) from error
            raise
        best = recipe.best_auc() if world.is_chief else None  # may draw millions of rows
        if best is not None:
            summary["best_reachable_auc"] = best
        try:
            if config.run.mode == "train":
                finish(config, recipe, world, log, run_dir, summary)
        except TrainingDiverged as error:
            log.message(f"training diverged: {error}")
            raise
        finally:
            log.summary(summary)  # also when the disk is full
    return summary


# Flags that may differ between processes: what they name is on each machine.
_LOCAL_FLAGS = {
    *("dataset_path", "restore_checkpoint_path", "save_checkpoint_path", "run_dir", "log_path"),
    *("tensorboard_dir", "inter_op_parallelism", "intra_op_parallelism"),
}


def shared_flags(config: Config) -> dict[str, Any]:
    """The flags that must be the same in all processes."""
    return {f"--{name}": value for name, value in config.flat().items() if name not in _LOCAL_FLAGS}


def agreed(world, action: Callable[[], Any]) -> Any:
    """Does what every process does; if one cannot, all stop with its error."""
    error = result = None
    try:
        result = action()
    except (ValueError, OSError) as caught:
        error = str(caught)
    world.agree(error)
    return result


def load_feature_spec(config: Config) -> FeatureSpec | None:
    """The data set's description; None for rows that are generated from flags."""
    if not config.data.dataset_path:
        return None
    return FeatureSpec.from_yaml(Path(config.data.dataset_path) / config.data.feature_spec)


def describe(recipe: Recipe, place: device.Device, config: Config) -> str:
    """One line on what runs where."""
    facts = "  ".join(f"{name} {value}" for name, value in recipe.facts.items())
    return f"{config.run.mode} on {place.kind} in {place.compute_dtype}  {facts}"


def count_steps(config: Config, num_batches: int) -> int:
    """Steps of the whole training."""
    steps = config.run.epochs * num_batches
    return steps if config.run.max_steps == -1 else min(steps, config.run.max_steps)


def evaluation_batches(num_batches: int, evals_per_epoch: int) -> set[int]:
    """After which batches of an epoch (from 1) to evaluate: evenly spaced, the last one always."""
    evals = min(evals_per_epoch, num_batches)
    return {-(-num_batches * k // evals) for k in range(1, evals + 1)}


def train(config, recipe, place, world, log, run_dir: Path, total_steps: int) -> dict[str, float]:
    """Trains, evaluates on the way, saves, and returns the summary."""
    from nn.metrics import NonFiniteScores
    from nn.trainer import Trainer, non_finite_variable
    from runtime.profiler import Profiler
    from runtime.timer import StepTimer

    options = config.run
    trainer = Trainer(recipe.model, recipe.loss, recipe.groups, place.loss_scale, world)
    evaluate_after = evaluation_batches(recipe.train.num_batches, options.evals_per_epoch)
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
    history: dict[str, list] = {"train_loss": [], "validation_loss": [], "validation_auc": []}
    best: dict[str, float] = {}
    metrics: dict[str, float] = {}
    timer = StepTimer(warmup_steps=min(10, total_steps // 2))
    profiler = Profiler(options, run_dir, world)
    good_step = step = 0
    stop = False

    def report(epoch: int) -> None:
        """Looks at what the device has done (it is waited for here) and writes a line."""
        nonlocal good_step
        progress = trainer.progress()
        if progress.first_bad_step:
            raise TrainingDiverged(
                f"the loss is not finite at step {progress.first_bad_step} (between step "
                f"{good_step}, the last one looked at, and {progress.step}); no checkpoint was "
                "saved. Try a smaller --learning_rate or a longer --warmup_steps"
            )
        if progress.step == good_step:
            return
        good_step = progress.step
        line = {"loss": progress.loss, "learning_rate": progress.learning_rate}
        if not math.isnan(rate := timer.lap()):  # NaN within the timer's warm-up
            line["throughput"] = rate
        if place.loss_scale != 1.0:
            line["skipped_steps"] = progress.skipped_steps
        log.log(progress.step, line, epoch=epoch)
        history["train_loss"].append((progress.step, progress.loss))

    for epoch in range(options.epochs):
        iterator = iter(recipe.train.dataset(epoch))
        for batch in range(1, recipe.train.num_batches + 1):
            # 4. One step.
            profiler.before(step)
            trainer.train_step(iterator)
            step += 1
            timer.step(rows_of_batch(recipe.train, batch - 1, options.batch_size))
            profiler.after(step)
            log.progress(step)
            # 5. Every --print_freq steps: look at the loss.
            if step % options.print_freq == 0:
                report(epoch)
            # 6. Some times in an epoch: evaluate.
            last = step == total_steps
            if batch in evaluate_after or (last and options.evals_per_epoch):
                report(epoch)
                try:
                    with timer.paused():
                        metrics = dict(recipe.evaluator.evaluate())
                except NonFiniteScores as error:
                    raise TrainingDiverged(
                        f"between step {good_step - 1} and {good_step}: {error}; no checkpoint "
                        "was saved"
                    ) from None
                log.log(step, {**metrics, "elapsed_s": timer.elapsed_s}, epoch=epoch)
                if recipe.evaluator.note:
                    log.message(recipe.evaluator.note)
                history["validation_loss"].append((step, metrics["log_loss"]))
                history["validation_auc"].append((step, metrics["auc"]))
                if not metrics["auc"] <= best.get("best_auc", -1.0):  # NaN: one class only
                    best = {"best_auc": metrics["auc"], "best_auc_step": step}
                if options.auc_threshold is not None and metrics["auc"] >= options.auc_threshold:
                    best["time_to_auc_threshold_s"] = timer.elapsed_s
                    stop = True
            if stop or last:
                break
        if stop or step == total_steps:
            break
    report(epoch)
    profiler.stop()
    if broken := non_finite_variable(recipe.groups):
        raise TrainingDiverged(left_broken(broken))
    elapsed_s = timer.elapsed_s

    if options.auc_threshold is not None and not stop:
        log.message(f"--auc_threshold {options.auc_threshold} was not reached")
    if world.is_chief:
        path = run_dir / "learning_curve.png"
        draw(log, lambda: plots.draw("learning_curve", path, history=history))
    return {
        **metrics,
        **best,
        "steps": step,
        "throughput": timer.mean_throughput(),
        "elapsed_s": elapsed_s,
    }


def draw(log, action: Callable[[], None]) -> None:
    """Draws a picture; a training is not lost because it cannot be drawn."""
    try:
        action()
    except OSError as error:
        log.message(f"note: {error}")


def left_broken(weight: object) -> str:
    """What to say of a weight that is not finite after the last step."""
    return (
        f"the last steps left NaN or infinity in {weight}; no checkpoint was saved. Try a smaller "
        "--learning_rate or a longer --warmup_steps"
    )


def finish(config: Config, recipe: Recipe, world, log, run_dir: Path, summary: Mapping) -> None:
    """What is left of a training: the checkpoint and the ROC curve."""
    path = config.run.save_checkpoint_path
    if path:
        metrics = {name: value for name, value in summary.items() if isinstance(value, float)}
        description = {
            "recipe": config.recipe,
            "model_flags": dict(recipe.model_flags),
            "flags": config.flat(),
            "step": summary["steps"],
            "metrics": metrics,
        }
        try:
            weights = recipe.model.weights_to_save()
            size_bytes = checkpoint.save(path, weights, description, world)
        except checkpoint.NonFiniteWeight as error:
            raise TrainingDiverged(left_broken(error)) from None
        log.message(f"saved {size_bytes / 2**20:.1f} MiB to {path}")
    if "auc" in summary and world.is_chief:
        draw(log, lambda: recipe.evaluator.draw(run_dir, dict(summary)))


def rows_of_batch(dataset, batch: int, batch_size: int) -> int:
    """Rows of batch number `batch` (from 0); the last one of an epoch may be short."""
    return min(batch_size, dataset.num_rows - batch * batch_size)


def measure(recipe: Recipe, log) -> dict[str, float]:
    """Metrics over every row, with what the reader must know of them in the log."""
    metrics = dict(recipe.evaluator.evaluate())
    if recipe.evaluator.note:
        log.message(recipe.evaluator.note)
    return metrics


def evaluate(recipe: Recipe, world, log, run_dir: Path) -> dict[str, float]:
    """Metrics of the restored model over every row."""
    metrics = measure(recipe, log)
    if world.is_chief:
        draw(log, lambda: recipe.evaluator.draw(run_dir, metrics))
    return metrics


def benchmark_inference(config: Config, recipe: Recipe, log) -> dict[str, float]:
    """Throughput and latency of the restored model, and its metrics over all rows.

    A measurement is one batch in memory to its scores in memory. At least 100 batches are measured
    after the warm-up, or --max_steps; the rows are read again as often as that needs.
    """
    from nn.evaluator import Scorer
    from runtime.timer import LatencyTimer

    warmup = config.run.warmup_batches
    measured = config.run.max_steps
    if measured == -1:
        measured = max(100, recipe.valid.num_batches - warmup)
    # A short last batch has another latency: it is left out where there are full ones.
    full = max(1, recipe.valid.num_rows // config.run.valid_batch_size)
    timer = LatencyTimer(warmup_steps=warmup)
    scorer = Scorer(recipe.model)
    for number in range(warmup + measured):
        if number % full == 0:
            batches = iter(recipe.valid.dataset())
        batch = next(batches)
        rows = rows_of_batch(recipe.valid, number % full, config.run.valid_batch_size)
        with timer.measure(rows):
            scorer.score(batch.inputs).numpy()
    return {**timer.statistics(), **measure(recipe, log)}


if __name__ == "__main__":
    import dlrm

    sys.exit(dlrm.main())
