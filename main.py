"""Set-up, data and model, then one of the modes: train (training.py), eval, predict, inference.

A recipe (`dlrm.py`, `dcnv2.py`) says what to train and calls `run`. `python main.py` is `dlrm.py`.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import config as configuration
from config import Config
from dataloading.feature_spec import FeatureSpec
from runtime import checkpoint, device, distributed, predictions, run_folder
from runtime.checkpoint.flags import adopt_flags, adopt_original, resume_flags
from training import (
    Position,
    Stopped,
    TrainingDiverged,
    check_same_rows,
    count_steps,
    description,
    draw,
    rows_of_batch,
    train,
    training_weights,
)

# Exit codes beside 0 (done) and 1 (a defect of ours, with a traceback).
USER_ERROR = 2
DIVERGED = 3
RANK_LOST = 4
STOPPED = 75  # by a signal, a checkpoint is saved: "temporary failure, try again" of sysexits.h
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
    except Stopped as stopped:
        if distributed.current().is_chief:
            print(f"{recipe}: {stopped}", file=sys.stderr)
        return STOPPED
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
      Stopped: a signal ended the training after a checkpoint.
    """
    # 1. Set-up: processes, device, seed.
    world = distributed.connect(
        config.distribution.rank_timeout_s, deterministic=config.run.deterministic
    )
    place = agreed(world, lambda: device.set_up(config.run, world.local_rank, world.local_size))
    world.check_agreement({**shared_flags(config), "the device": str(place)})
    folder, path, saved_here = find_checkpoint(config, world)
    try:
        return execute_from(config, build, defaults, world, place, folder, path, saved_here)
    finally:
        if folder is not None:
            folder.release()


def find_checkpoint(config: Config, world) -> tuple[checkpoint.Folder | None, Path | None, bool]:
    """Where this run saves, taken by rank 0, and what it starts from, as rank 0 sees it.

    Returns:
      (folder or None, checkpoint or None, whether it is the folder's newest).
    """
    saving = config.run.mode == "train"
    resume = config.checkpoint.resume if saving else None

    def look():
        if not world.is_chief:
            return None, None, False
        folder = path = None
        if config.checkpoint.restore_checkpoint_path:
            path = checkpoint.resolve(config.checkpoint.restore_checkpoint_path)
        elif resume and resume != "auto":
            path = checkpoint.resolve(resume, "--resume")
        root = config.checkpoint.save_checkpoint_path
        if resume and not root:
            root = path.parent  # goes on where it was
        if saving and root:
            folder = checkpoint.Folder(root)
            folder.take()
        newest = folder.newest() if folder else None
        if resume == "auto":
            path = newest.path if newest else None
        elif newest and not (resume and path.resolve().parent == folder.root):
            raise ValueError(
                f"--save_checkpoint_path {root} holds checkpoints of an earlier training "
                f"({newest.path.name}): go on with it by --resume auto, or give another folder"
            )
        return folder, path, bool(newest and path and newest.path == path.resolve())

    folder, path, saved_here = agreed(world, look)
    told = [str(folder.root) if folder else None, str(path) if path else None, saved_here]
    root, path, saved_here = world.gather_objects(told, "find_checkpoint")[0]
    if root is not None and folder is None:
        folder = checkpoint.Folder(root)
    return folder, Path(path) if path else None, saved_here


def execute_from(config, build, defaults, world, place, folder, path, saved_here):
    """`execute`, from a checkpoint or from the start."""
    resuming = path is not None and config.checkpoint.resume and config.run.mode == "train"
    flag = "--resume" if resuming else "--restore_checkpoint_path"

    def check():
        if config.run.profiler_start_step is not None and config.run.profiled_rank >= world.size:
            raise ValueError(
                f"--profiled_rank {config.run.profiled_rank} does not exist: there are "
                f"{world.size} processes, the first is 0"
            )
        if config.run.mode == "predict" and world.is_chief:
            predictions.check_writable(config.run.predictions_path)
        if path is None:
            configuration.check_rows(config)
            return config, None, []
        with checkpoint.offering_the_previous(path, flag):
            saved = checkpoint.describe(path)
        if resuming:
            adopted, changed = resume_flags(config, saved.description, str(path))
            configuration.check_rows(adopted)
            return adopted, saved, changed
        adopt = adopt_original if checkpoint.is_original(path) else adopt_flags
        return adopt(config, saved.description), saved, []

    config, saved, changed = agreed(world, check)
    world.check_agreement(
        {
            "the checkpoint": (saved.description, saved.state) if saved else None,
            "whether --save_checkpoint_path is given": folder is not None,
            **shared_flags(config),
        }
    )
    seed = world.gather_objects(device.choose_seed(config.run.seed), "seed")[0]
    config = config.replace(seed=seed)

    # 2. Data and model.
    spec = agreed(world, lambda: load_feature_spec(config))
    spec_hash = spec.fingerprint() if spec else None
    world.check_agreement({"the feature spec": spec_hash})

    def make() -> Recipe:
        made = build(config, spec, world, place)
        if saved is None:
            return made
        with checkpoint.offering_the_previous(path, flag):
            if resuming:
                check_same_rows(saved.description, config, made, spec_hash, f"checkpoint {path}")
                checkpoint.restore(path, training_weights(made))
            elif checkpoint.is_original(path):
                tables = [w for w in made.model.weights_to_save() if w.name.startswith("sparse/")]
                checkpoint.restore_original(path, tables)
            else:
                checkpoint.restore(path, made.model.weights_to_save())
        return made

    recipe = agreed(world, make)
    world.check_agreement({**recipe.model_flags, **recipe.facts})
    start = Position(**saved.state) if resuming else Position()

    # 3. The log: parameters first, summary last.
    total_steps = None
    if config.run.mode == "train":
        total_steps = count_steps(config, recipe.train.num_batches)
        profiled_step = config.run.profiler_start_step
        if profiled_step is not None and not start.step <= profiled_step < total_steps:
            raise ValueError(
                f"--profiler_start_step {profiled_step} is never reached: the training has "
                f"{total_steps} steps, the first is {start.step}"
            )
    run_dir = agreed(world, lambda: run_folder.make_run_dir(config) if world.is_chief else None)
    run_dir = Path(world.gather_objects(str(run_dir), "run_dir")[0])
    with agreed(
        world,
        lambda: run_folder.open_log(config, defaults, run_dir, world, total_steps, start.step),
    ) as log:
        log.message(describe(recipe, place, config))
        note_flags(config, place, log)
        if path is not None:
            log.message(describe_start(config, path, start, total_steps, changed))
        try:
            if config.run.mode == "train":
                described = description(config, recipe, spec_hash)
                if why := described.get("no_resume"):
                    log.message(f"note: checkpoints of this training cannot be resumed: {why}")
                summary = train(
                    *(config, recipe, place, world, log, run_dir, total_steps, folder, start),
                    *(saved_here, described),
                )
            elif config.run.mode == "eval":
                summary = evaluate(recipe, world, log, run_dir)
            elif config.run.mode == "predict":
                summary = predict(config, recipe, world, log)
            else:
                summary = benchmark_inference(config, recipe, log)
        except (TrainingDiverged, Stopped) as end:
            kind = "training diverged: " if isinstance(end, TrainingDiverged) else ""
            log.message(f"{kind}{end}")
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
        best = None
        if config.run.mode != "predict" and world.is_chief:
            best = recipe.best_auc()  # may draw millions of rows
        if best is not None:
            summary["best_reachable_auc"] = best
        try:
            if config.run.mode == "train" and "auc" in summary and world.is_chief:
                draw(log, lambda: recipe.evaluator.draw(run_dir, dict(summary)))
        finally:
            log.summary(summary)
    return summary


def note_flags(config: Config, place: device.Device, log) -> None:
    """Says which of the given flags are not used."""
    if ignored := configuration.unused(config):
        log.message(
            f"note: not used in this run (--mode {config.run.mode}): "
            + ", ".join(f"--{name}" for name in ignored)
        )
    if "loss_scale" in config.given and place.compute_dtype != "float16":
        log.message("note: --loss_scale is not used, bfloat16 has the range of float32")


def describe_start(config: Config, path: Path, start, total_steps, changed) -> str:
    """One line on the checkpoint that a run starts from."""
    if not start.step:
        text = f"weights of {path}"
        if checkpoint.is_original(path):
            text += " (NVIDIA's layout: its tables; the MLPs and the interaction start anew)"
        return text
    text = f"resumed {path} at step {start.step} of {total_steps}"
    if changed:
        values = config.flat()
        given = ", ".join(f"--{name} {values[name]}" for name in changed)
        text += f"; other than before: {given}"
    return text


# Flags that may differ between processes: what they name is on each machine.
_LOCAL_FLAGS = {
    *("dataset_path", "restore_checkpoint_path", "save_checkpoint_path", "run_dir", "log_path"),
    *("resume", "predictions_path", "tensorboard_dir"),
    *("inter_op_parallelism", "intra_op_parallelism"),
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


def predict(config: Config, recipe: Recipe, world, log) -> dict[str, float]:
    """Writes the restored model's score of every row, in row order."""
    from nn.metrics import NonFiniteScores
    from nn.predictor import predict as score_batches

    path, rows = config.run.predictions_path, recipe.valid
    started = time.perf_counter()
    with (
        predictions.open_predictions(path, rows.num_rows)
        if world.is_chief
        else nullcontext() as writer
    ):
        try:
            for scores in score_batches(recipe.model, rows, world):
                if writer is not None:
                    writer.add(scores)
        except NonFiniteScores as error:  # on every rank
            raise distributed.AgreedError(str(error)) from None
    log.message(f"wrote the scores of {rows.num_rows:,} rows to {path}")
    elapsed_s = time.perf_counter() - started
    return {"rows": rows.num_rows, "elapsed_s": elapsed_s, "throughput": rows.num_rows / elapsed_s}


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
