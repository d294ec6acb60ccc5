"""The one loop: set-up, data and model, then train, eval or inference.

A recipe (`dlrm.py`, `dcnv2.py`) says what to train and calls `run`. `python main.py` is `dlrm.py`.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import config as configuration
from config import Config
from dataloading.feature_spec import FeatureSpec
from runtime import checkpoint, device, distributed

# Exit codes beside 0 (done) and 1 (a defect of ours, with a traceback).
USER_ERROR = 2
DIVERGED = 3


class Recipe(NamedTuple):
    """What a recipe's `build(config, spec, world, device)` composes.

    Attributes:
      model: the model, all weights made; `weights_to_save()` lists them.
      train: training rows (`num_rows`, `num_batches`, `dataset(epoch)`, and `failure`, what was
        wrong with a row that could not be read); None unless --mode train.
      valid: rows to evaluate on, likewise.
      loss: `loss(model, batch) -> (scalar, {name: value})`.
      groups: optimizers with their learning rates, `nn.trainer.OptimizerGroup`.
      evaluator: `evaluate()` yields (name, value), "auc" and "log_loss" among them; `draw(folder,
        metrics)`.
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
) -> int:
    """Runs a recipe from its command line; returns the process's exit code."""
    argv = sys.argv if argv is None else argv
    # TensorFlow's start-up lines about CPU instructions; its warnings stay.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    if {"--help", "-h", "-help"} & set(argv[1:]):
        print(doc.strip() + "\n" + configuration.usage(defaults))
        return 0
    try:
        config = configuration.parse(argv, recipe, defaults)
        execute(config, build, defaults)
    except (ValueError, OSError) as error:
        print(f"{recipe}: error: {error}", file=sys.stderr)
        return USER_ERROR
    except TrainingDiverged as error:
        print(f"{recipe}: training diverged: {error}", file=sys.stderr)
        return DIVERGED
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
    world = distributed.connect()
    if config.run.profiler_start_step is not None and config.run.profiled_rank >= world.size:
        raise ValueError(
            f"--profiled_rank {config.run.profiled_rank} does not exist: there are {world.size} "
            "processes, the first is 0"
        )
    saved = None
    if config.run.restore_checkpoint_path:
        saved = checkpoint.describe(config.run.restore_checkpoint_path)
        config = adopt_model_flags(config, saved)
    config = config.replace(seed=device.choose_seed(config.run.seed))
    place = device.set_up(config.run, world.local_rank)

    # 2. Data and model.
    spec = None
    if config.data.dataset_path:
        spec = FeatureSpec.from_yaml(Path(config.data.dataset_path) / config.data.feature_spec)
    recipe = build(config, spec, world, place)
    if saved is not None:
        checkpoint.restore(config.run.restore_checkpoint_path, recipe.model.weights_to_save())

    # 3. The log: parameters first, summary last.
    run_dir = Path(config.run.run_dir or f"runs/{config.recipe}-{time.strftime('%Y%m%d-%H%M%S')}")
    total_steps = None
    if config.run.mode == "train":
        total_steps = count_steps(config, recipe.train.num_batches)
    with open_log(config, defaults, run_dir, world, total_steps) as log:
        log.message(describe(recipe, place, config))
        if "loss_scale" in config.given and place.compute_dtype != "float16":
            log.message("note: --loss_scale is not used, bfloat16 has the range of float32")
        try:
            if config.run.mode == "train":
                summary = train(config, recipe, place, world, log, run_dir, total_steps)
            elif config.run.mode == "eval":
                summary = evaluate(recipe, world, run_dir)
            else:
                summary = benchmark_inference(config, recipe)
        except Exception as error:
            # A bad row arrives here as a stack trace of tf.data; the loader remembers what it was.
            for rows in (recipe.train, recipe.valid):
                if rows is not None and rows.failure:
                    raise ValueError(rows.failure) from error
            raise
        best = recipe.best_auc()
        if best is not None:
            summary["best_reachable_auc"] = best
        log.summary(summary)
    return summary


def adopt_model_flags(config: Config, saved: Mapping[str, Any]) -> Config:
    """The model of a checkpoint, where the command line does not say otherwise.

    Raises:
      ValueError: the command line asks for another model.
    """
    wanted = config.flat()
    adopted = {}
    for name, value in saved["model_flags"].items():
        value = tuple(value) if isinstance(value, list) else value
        if name in config.given and wanted[name] != value:
            raise ValueError(
                f"--{name} {wanted[name]} differs from the checkpoint's {value} "
                f"({config.run.restore_checkpoint_path}): leave the flag out to take the "
                "checkpoint's value"
            )
        adopted[name] = value
    return config.replace(**adopted)


def open_log(config: Config, defaults, run_dir: Path, world, total_steps: int | None):
    """The run's log with every flag as its first line."""
    from runtime.logging import RunLogger

    log = RunLogger(
        config.run.log_path or run_dir / "log.json",
        {"recipe": config.recipe, **config.flat(), **device.describe()},
        defaults={
            "recipe": config.recipe,
            **Config(config.recipe).flat(),
            **(defaults or {}),
            **device.describe(),
        },
        tensorboard_dir=config.run.tensorboard_dir,
        enabled=world.is_chief,
        total_steps=total_steps,
    )
    log.metadata("throughput", unit="samples/s")
    for name in ("auc", "best_auc", "best_reachable_auc", "log_loss", "loss"):
        log.metadata(name, format=".5f")
    for name in ("mean", "p50", "p90", "p95", "p99"):
        log.metadata(f"latency_{name}", unit="ms")
    for name in ("elapsed_s", "time_to_auc_threshold_s"):
        log.metadata(name, unit="s")
    return log


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
    from nn.trainer import Trainer
    from runtime.timer import StepTimer

    options = config.run
    trainer = Trainer(recipe.model, recipe.loss, recipe.groups, place.loss_scale)
    evaluate_after = evaluation_batches(recipe.train.num_batches, options.evals_per_epoch)
    if total_steps < config.optimizer.warmup_steps:
        log.message(
            f"note: {total_steps} steps end within --warmup_steps {config.optimizer.warmup_steps}: "
            "the learning rate never reaches --learning_rate"
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
                with timer.paused():
                    metrics = dict(recipe.evaluator.evaluate())
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

    # 7. What is left of the run: checkpoint, pictures, summary.
    if options.save_checkpoint_path and world.is_chief:
        size_bytes = checkpoint.save(
            options.save_checkpoint_path,
            recipe.model.weights_to_save(),
            {
                "recipe": config.recipe,
                "model_flags": dict(recipe.model_flags),
                "flags": config.flat(),
                "step": step,
                "metrics": metrics,
            },
        )
        log.message(f"saved {size_bytes / 2**20:.1f} MiB to {options.save_checkpoint_path}")
    if world.is_chief:
        draw(recipe, run_dir, history, metrics)
    if options.auc_threshold is not None and not stop:
        log.message(f"--auc_threshold {options.auc_threshold} was not reached")
    return {
        **metrics,
        **best,
        "steps": step,
        "throughput": timer.mean_throughput(),
        "elapsed_s": timer.elapsed_s,
    }


def optimizer_groups(options: configuration.OptimizerConfig, dense, tables) -> list:
    """Optimizers of the dense variables and of the tables, each with its learning rate."""
    from nn import optimizers
    from nn.schedule import WarmupPolynomialDecay
    from nn.trainer import OptimizerGroup

    def group(name: str, variables, base: float) -> OptimizerGroup:
        optimizer = optimizers.create(
            name,
            variables,
            beta1=options.beta1,
            beta2=options.beta2,
            epsilon=options.epsilon,
            initial_accumulator=options.adagrad_initial_accumulator,
        )
        schedule = WarmupPolynomialDecay(
            base,
            options.warmup_steps,
            options.decay_start_step,
            options.decay_steps,
            options.decay_power,
        )
        return OptimizerGroup(optimizer, schedule)

    sparse = options.embedding_optimizer
    if sparse == "auto":
        sparse = optimizers.SPARSE_COUNTERPART[options.optimizer]
    sparse_rate = options.embedding_learning_rate
    if sparse_rate is None:
        sparse_rate = options.learning_rate
    return [
        group(options.optimizer, dense, options.learning_rate),
        group(sparse, tables, sparse_rate),
    ]


def rows_of_batch(dataset, batch: int, batch_size: int) -> int:
    """Rows of batch number `batch` (from 0); the last one of an epoch may be short."""
    return min(batch_size, dataset.num_rows - batch * batch_size)


def draw(recipe: Recipe, run_dir: Path, history: Mapping, metrics: Mapping[str, float]) -> None:
    """Pictures of the run: learning curve and ROC."""
    from runtime import plots

    plots.learning_curve(run_dir / "learning_curve.png", history)
    if metrics:
        recipe.evaluator.draw(run_dir, dict(metrics))


def evaluate(recipe: Recipe, world, run_dir: Path) -> dict[str, float]:
    """Metrics of the restored model over every row."""
    metrics = dict(recipe.evaluator.evaluate())
    if world.is_chief:
        recipe.evaluator.draw(run_dir, metrics)
    return metrics


def benchmark_inference(config: Config, recipe: Recipe) -> dict[str, float]:
    """Throughput and latency of the restored model, and its metrics over the rows it scored.

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
        with timer.measure(len(batch.labels)):
            scorer.score(batch.inputs).numpy()
    return {**timer.statistics(), **dict(recipe.evaluator.evaluate())}


class Profiler:
    """TensorFlow's profiler over --profiler_steps steps from --profiler_start_step on."""

    def __init__(self, options: configuration.RunConfig, run_dir: Path, world):
        self.start = options.profiler_start_step
        self.steps = options.profiler_steps
        if world.rank != options.profiled_rank:
            self.start = None
        self.folder = run_dir / "profile"
        self.running = False

    def before(self, step: int) -> None:
        """Starts when `step` steps are done."""
        if step == self.start:
            import tensorflow as tf

            tf.profiler.experimental.start(str(self.folder))
            self.running = True

    def after(self, step: int) -> None:
        """Stops after the last step to record."""
        if self.running and step == self.start + self.steps:
            self.stop()

    def stop(self) -> None:
        """Writes what was recorded, if the profiler runs."""
        if self.running:
            import tensorflow as tf

            tf.profiler.experimental.stop()
            self.running = False


if __name__ == "__main__":
    import dlrm

    sys.exit(dlrm.main())
