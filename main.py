"""Set-up, data and model, then one of the modes: train, eval, predict, inference.

A recipe (`dlrm.py`, `dcnv2.py`, `sim.py`) says what to train and calls `run`. `python main.py` is
`dlrm.py`.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import config as configuration
from config import Config, presets
from dataloading.formats.row_count import count_training_rows
from dataloading.spec.feature_spec import FeatureSpec
from recipes.from_flags import load_feature_spec
from recipes.recipe import Recipe
from runtime import checkpoint
from runtime.checkpoint.resume import Start, find, set_up_flags
from runtime.cluster import distributed, elastic, signals
from runtime.cluster.distributed import run_on_all_ranks
from runtime.files import predictions
from runtime.hardware import affinity, device, gpu
from runtime.logs import rank_logs, run_folder
from training.loop import (
    Position,
    Stopped,
    TrainingDiverged,
    check_same_rows,
    count_steps,
    description,
    rows_of_batch,
    train,
    training_weights,
)
from training.path_checks import check_paths

# Exit codes beside 0 (done), 1 (a defect of ours, with a traceback) and distributed.RANK_LOST.
USER_ERROR = 2
DIVERGED = 3
STOPPED = 75  # by a signal, a checkpoint is saved: "temporary failure, try again" of sysexits.h
INTERRUPTED = 130  # as the shell says it: 128 + SIGINT


def run(
    recipe: str,
    build: Callable[..., Recipe],
    doc: str,
    defaults: Mapping[str, Any] | None = None,
    argv: Sequence[str] | None = None,
    *,
    aliases: Mapping[str, str] | None = None,
    report_plan: Callable[[Config, FeatureSpec | None], str] | None = None,
) -> int:
    """Runs a recipe from its command line; returns the process's exit code.

    Args:
      recipe: its name.
      build: composes model and data, see `Recipe`.
      doc: text in front of the flags in `--help`.
      defaults: flags whose default differs.
      argv: the command line; the process's where not given.
      aliases: other names of flags, and which they mean.
      report_plan: what `--plan_only` prints, from the flags and the feature spec.
    """
    argv = sys.argv if argv is None else argv
    # TensorFlow's own log below errors: start-up lines, and stack traces of what we report.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if {"--help", "-h", "-help"} & set(argv[1:]):
        print(doc.strip() + "\n" + configuration.usage(recipe, defaults, aliases))
        return 0
    members = elastic.ALONE
    try:
        config = configuration.parse(argv, recipe, defaults, aliases)
        if config.distribution.plan_only:
            if report_plan is None:
                raise ValueError(f"--plan_only: the recipe {recipe} has no plan")
            config = with_preset(config)
            print(f"{config.preset_note}\n{report_plan(config, load_feature_spec(config))}")
            return 0
        check_paths(config)
        elastic.check_launched(config.distribution.elastic)
        if config.distribution.elastic and config.run.mode == "train":
            members = elastic.Members()
        execute(config, build, defaults, members)
    except distributed.CollectiveError as error:  # every rank has it, one says it
        world = distributed.current()
        if members.is_elastic and error.ranks and world.rank not in error.ranks:
            members.restart(f"others cannot take part: {error}")
        if world.size > 1:
            signals.ignore_sigterm()
        if world.is_chief or (members.is_elastic and world.rank in error.ranks):
            print(f"{recipe}: error: {error}", file=sys.stderr)
        return USER_ERROR
    except BrokenPipeError:
        # What is printed from here on, by Python's own end too, has no reader either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(
            f"{recipe}: error: what read the output has ended (a pipe, such as `| head`); with "
            "--rank_logs a run goes on without it",
            file=sys.stderr,
        )
        return USER_ERROR
    except (ValueError, OSError) as error:
        print(f"{recipe}: error: {error}", file=sys.stderr)
        return USER_ERROR
    except TrainingDiverged as error:
        if distributed.current().is_chief:
            print(f"{recipe}: training diverged: {error}", file=sys.stderr)
        return DIVERGED
    except elastic.Left as left:
        print(f"{recipe}: {left}", file=sys.stderr)
        return 0
    except Stopped as stopped:
        if members.is_elastic and not stopped.here:
            members.restart(f"stopped by {stopped.why}")
        if distributed.current().is_chief or (members.is_elastic and stopped.here):
            print(f"{recipe}: {stopped}", file=sys.stderr)
        return STOPPED
    except KeyboardInterrupt:
        print(f"{recipe}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        said = distributed.failure_message(error)
        if said is None:
            raise
        if members.is_elastic:
            members.restart(said)
        print(f"{recipe}: error: {said}", file=sys.stderr)
        return distributed.RANK_LOST
    return 0


def execute(
    config: Config,
    build: Callable[..., Recipe],
    defaults: Mapping[str, Any] | None = None,
    members: elastic.Membership = elastic.ALONE,
) -> dict[str, float]:
    """Does what `config` asks for and returns the summary.

    Raises:
      ValueError: something that the user can mend.
      TrainingDiverged: the loss became infinite or NaN.
      Stopped: a signal ended the training after a checkpoint.
    """
    # 1. Set-up: processes, device, seed.
    early = set_up_flags(config)
    rank_logs.start(config.run.rank_logs)
    world = distributed.connect(
        config.distribution.rank_timeout_s,
        early.run.deterministic,
        elastic.START_TIMEOUT_S if members.is_elastic else None,
        members.lost,
    )

    def set_up() -> device.Device:
        place = device.set_up(early.run, world.local_rank, world.local_size)
        rank_logs.check()
        return place

    place = run_on_all_ranks(world, set_up)
    world.check_agreement({**shared_flags(config), "the device": str(place)})
    if place.kind == "GPU":
        gpu.check_not_shared(place.gpu, world)
    place = device.with_memory(place, world)
    start = find(config, world)
    try:
        return execute_from(start, config, build, defaults, world, place, members)
    finally:
        start.release()


def execute_from(start: Start, config, build, defaults, world, place, members) -> dict[str, float]:
    """`execute`, once it is known what to start from."""

    def check():
        profiles = config.run.profiler_start_step is not None and not members.story.restarts
        if profiles and config.run.profiled_rank >= world.size:
            raise ValueError(
                f"--profiled_rank {config.run.profiled_rank} does not exist: there are "
                f"{world.size} processes, the first is 0"
            )
        if config.run.mode == "predict" and world.is_chief:
            predictions.check_writable(config.run.predictions_path)
        adopted, saved, changed = start.adopt(config)
        return with_preset(adopted, saved, start.resumes), saved, changed

    config, saved, changed = run_on_all_ranks(world, check)
    world.check_agreement(
        {
            "the checkpoint": (saved.description, saved.state) if saved else None,
            **shared_flags(config),
        }
    )
    seed = world.gather_objects(device.choose_seed(config.run.seed), "seed")[0]
    config = config.replace(seed=seed)

    unbound = affinity.bind(config.run.affinity, world, place.gpu)

    # 2. Data and model.
    spec = run_on_all_ranks(world, lambda: load_feature_spec(config))
    spec_hash = spec.fingerprint() if spec else None
    world.check_agreement({"the feature spec": spec_hash})

    def make() -> Recipe:
        made = build(config, spec, world, place)
        if start.resumes:
            where = f"checkpoint {start.path}"
            check_same_rows(saved.description, config, made, spec_hash, where)
        return made

    recipe = run_on_all_ranks(world, make)
    world.check_agreement({**recipe.model_flags, **recipe.facts})
    if start.path is not None:
        run_on_all_ranks(world, lambda: restore(start, recipe, world))
    begins = None
    if recipe.starts_from is not None:
        begins = recipe.starts_from() if not start.resumes else "not read: the training goes on"
    position = Position(**saved.state) if start.resumes else Position()

    # 3. The log: parameters first, summary last.
    total_steps = None
    if config.run.mode == "train":
        total_steps = count_steps(config, recipe.train.num_batches)
        profiled_step = config.run.profiler_start_step
        first = 0 if members.story.restarts else position.step
        if profiled_step is not None and not first <= profiled_step < total_steps:
            raise ValueError(
                f"--profiler_start_step {profiled_step} is never reached: the training has "
                f"{total_steps} steps, the first is {position.step}"
            )
    run_dir = run_on_all_ranks(
        world,
        lambda: run_folder.make_run_dir(config, members.story.run_dir) if world.is_chief else None,
    )
    run_dir = Path(world.gather_objects(str(run_dir), "run_dir")[0])
    restarted = members.started(position.step, run_dir)
    with run_on_all_ranks(
        world,
        lambda: run_folder.open_log(
            *(config, defaults, run_dir, world, total_steps, position.step, recipe.log_names),
            splits_of_metrics(recipe),
            append=restarted is not None,
            bar_values=("loss", recipe.goal.metric),
        ),
    ) as log:
        if config.preset_note:
            log.message(config.preset_note)
        log.message(describe(recipe, place, config, world))
        note_flags(config, place, log)
        for note in filter(None, (unbound, *recipe.notes)):
            log.message(f"note: {note}")
        if restarted:
            log.message(f"{restarted}; ranks now: {world.size}")
        if begins:
            log.message(f"start from other models: {begins}")
        if start.path is not None:
            log.message(describe_start(config, start.path, position, total_steps, changed))
            note_versions(saved, log)
        try:
            if config.run.mode == "train":
                described = description(config, recipe, spec_hash)
                if why := described.get("no_resume"):
                    if members.is_elastic:
                        raise ValueError(f"--elastic: this training cannot be resumed: {why}")
                    log.message(f"note: checkpoints of this training cannot be resumed: {why}")
                summary = train(
                    config,
                    recipe,
                    place,
                    world,
                    log,
                    run_dir=run_dir,
                    total_steps=total_steps,
                    folder=start.folder,
                    position=position,
                    saved_here=start.is_newest,
                    described=described,
                    members=members,
                )
            elif config.run.mode == "eval":
                summary = evaluate(recipe, log)
            elif config.run.mode == "predict":
                summary = predict(config, recipe, world, log)
            else:
                summary = benchmark_inference(config, recipe, log)
        except (TrainingDiverged, Stopped) as end:
            kind = "training diverged: " if isinstance(end, TrainingDiverged) else ""
            log.record(f"{kind}{end}")  # `run` prints it
            raise
        except KeyboardInterrupt:
            log.record("interrupted")
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
            if world.is_chief and config.run.mode in ("train", "eval"):
                history = position.history if config.run.mode == "train" else None
                evaluator = recipe.evaluator if recipe.goal.metric in summary else None
                run_folder.draw_plots(run_dir, log, history, evaluator, summary)
        finally:
            log.summary(summary)
    return summary


def note_flags(config: Config, place: device.Device, log) -> None:
    """Says which of the given flags are not used."""
    if ignored := config.unused():
        log.message(
            f"note: not used in this run (--mode {config.run.mode}): "
            + ", ".join(f"--{name}" for name in ignored)
        )
    if "loss_scale" in config.explicit and place.compute_dtype != "float16":
        log.message("note: --loss_scale is not used, bfloat16 has the range of float32")


def restore(start: Start, recipe: Recipe, world) -> None:
    """Sets the model, and for a training that goes on the optimizers, from a checkpoint."""
    model = recipe.model
    with checkpoint.suggest_previous(start.path, start.flag):
        if start.resumes:
            checkpoint.restore(start.path, training_weights(recipe), world, everything=True)
        elif checkpoint.is_original(start.path):
            tables = [w for w in model.weights_to_save() if w.name.startswith("sparse/")]
            checkpoint.restore_original(start.path, tables, world)
        else:
            checkpoint.restore(start.path, model.weights_to_save(), world)


def note_versions(saved: checkpoint.Index, log) -> None:
    """Says where software differs from that of the checkpoint."""
    ours, theirs = device.describe(), saved.description.get("versions", {})
    for name in ("python", "tensorflow", "numpy"):
        if theirs.get(name, ours[name]) != ours[name]:
            log.message(f"note: the checkpoint is of {name} {theirs[name]}, this is {ours[name]}")


def describe_start(config: Config, path: Path, position, total_steps, changed) -> str:
    """One line on the checkpoint that a run starts from."""
    if not position.step:
        text = f"weights of {path}"
        if checkpoint.is_original(path):
            text += " (NVIDIA's layout: its tables; the MLPs and the interaction start anew)"
        return text
    text = f"resumed {path} at step {position.step} of {total_steps}"
    if position.step >= total_steps:
        text += ": nothing is left to do"
    if changed:
        values = config.flat()
        given = ", ".join(f"--{name} {values[name]}" for name in changed)
        text += f"; other than before: {given}"
    return text


# Flags that may differ between processes: what they name is on each machine.
_LOCAL_FLAGS = {
    *("dataset_path", "run_dir", "log_path", "tensorboard_dir", "predictions_path", "rank_logs"),
    *("inter_op_parallelism", "intra_op_parallelism", "num_parallel_calls"),
}


def shared_flags(config: Config) -> dict[str, Any]:
    """The flags that must be the same in all processes."""
    return {f"--{name}": value for name, value in config.flat().items() if name not in _LOCAL_FLAGS}


def splits_of_metrics(recipe: Recipe) -> dict[str, str | None]:
    """Returns the split of each loss and metric that the log shows; None: training samples."""
    metrics = ("auc", "best_auc", "best_reachable_auc", "log_loss", *recipe.more_metrics)
    split = recipe.valid.split if recipe.valid else None
    splits = {name: None if name.startswith("train_") else split for name in metrics}
    return {**dict.fromkeys(("loss", *recipe.loss_parts)), **splits}


def with_preset(
    config: Config, saved: checkpoint.Index | None = None, resumes: bool = False
) -> Config:
    """Returns the flags with the values that `--preset` chooses for this data set.

    Flags that are given, or remembered by the checkpoint, keep their values.

    Args:
      config: the flags, the checkpoint's among them.
      saved: description of the checkpoint that the run starts from; None without one.
      resumes: the run resumes the training of that checkpoint, with all of its flags.
    """
    if resumes or (saved is not None and config.run.mode != "train"):
        return replace(config, preset_note="").replace()
    pinned = set(config.explicit)
    if saved is not None:
        pinned |= set(saved.description.get("model_flags", ("embedding_dim",)))
    if config.data.dataset_type == "synthetic":
        pinned.add("batch_size")  # the number of samples depends on it
    return presets.apply(config, lambda: count_training_samples(config), pinned)


def count_training_samples(config: Config) -> int | None:
    """Returns the samples of the training split; None if they cannot be counted."""
    data = config.data
    if data.dataset_type == "synthetic":
        return data.synthetic_dataset_train_batches * config.run.batch_size
    try:
        return count_training_rows(
            load_feature_spec(config), data.dataset_type == "split_tfrecords"
        )
    except ValueError:
        if config.distribution.plan_only:  # a plan needs no rows
            return None
        raise


def describe(recipe: Recipe, place: device.Device, config: Config, world) -> str:
    """One line on what runs where."""
    ranks = {"ranks": world.size} if world.size > 1 else {}
    facts = "  ".join(f"{name} {value}" for name, value in {**recipe.facts, **ranks}.items())
    return f"{config.run.mode} on {place.kind} in {place.compute_dtype}  {facts}"


def measure(recipe: Recipe, log) -> dict[str, float]:
    """Metrics over every row, with what the reader must know of them in the log."""
    with log.bar("evaluation", recipe.evaluator.num_batches) as advance:
        metrics = dict(recipe.evaluator.evaluate(lambda: advance() or False))
    if recipe.evaluator.note:
        log.message(recipe.evaluator.note)
    return metrics


def evaluate(recipe: Recipe, log) -> dict[str, float]:
    """Metrics of the restored model over every row."""
    from runtime.logs.timer import Speeds

    started, speeds = time.perf_counter(), Speeds()
    metrics = measure(recipe, log)
    speeds.evaluated(recipe.valid.num_rows, time.perf_counter() - started)
    return {**metrics, **(speeds.summary() if log.speeds else {})}


def predict(config: Config, recipe: Recipe, world, log) -> dict[str, float]:
    """Writes the restored model's score of every row, in row order."""
    from nn.metrics.classification import NonFiniteScores
    from nn.metrics.predictor import predict as score_batches

    path, rows = config.run.predictions_path, recipe.valid
    started = time.perf_counter()
    with (
        predictions.open_predictions(path, rows.num_rows)
        if world.is_chief
        else nullcontext() as writer
    ):
        try:
            with log.bar("prediction", rows.num_batches) as advance:
                for scores in score_batches(recipe.model, rows, world):
                    if writer is not None:
                        writer.add(scores)
                    advance()
        except NonFiniteScores as error:  # on every rank
            raise distributed.CollectiveError(str(error)) from None
    log.message(f"wrote the scores of {rows.num_rows:,} rows ({rows.split}) to {path}")
    elapsed_s = time.perf_counter() - started
    return {"rows": rows.num_rows, "elapsed_s": elapsed_s, "throughput": rows.num_rows / elapsed_s}


def benchmark_inference(config: Config, recipe: Recipe, log) -> dict[str, float]:
    """Throughput and latency of the model, and the metrics of a restored one over all rows.

    A measurement is one batch in memory to its scores in memory. At least 100 batches are measured
    after the warm-up, or --max_steps, or --benchmark_steps; the batches are taken repeatedly where
    there are fewer.
    """
    from dataloading.pipeline.repeated import repeated
    from nn.metrics.evaluator import Scorer
    from runtime.logs.timer import LatencyTimer, StepTimer

    started = time.perf_counter()
    warmup = config.run.warmup_batches
    measured = config.run.benchmark_steps if config.run.benchmark else config.run.max_steps
    if measured == -1:
        measured = max(100, recipe.valid.num_batches - warmup)
    # A short last batch has another latency: it is left out where there are full ones.
    full = max(1, recipe.valid.num_rows // recipe.valid.batch_size)
    timer, laps = LatencyTimer(warmup_steps=warmup), StepTimer(warmup_steps=warmup)
    scorer, batches = Scorer(recipe.model), repeated(recipe.valid.dataset, full)
    with log.bar("inference", warmup + measured) as advance:
        for number in range(warmup + measured):
            batch = next(batches)
            rows = rows_of_batch(recipe.valid, number % full)
            with timer.measure(rows):
                scorer.score(batch.inputs).numpy()
            laps.step(rows)
            advance()
            step = number + 1 - warmup  # of those that are measured
            if step > 0 and step % config.run.print_freq == 0:
                log.log(step, {"throughput": laps.lap()})
    found = {**timer.statistics(), "elapsed_s": time.perf_counter() - started}
    if not config.checkpoint.restore_checkpoint_path:
        log.message("note: the model is untrained, without --restore_checkpoint_path: speed only")
        return found
    return found if config.run.benchmark else {**found, **measure(recipe, log)}


if __name__ == "__main__":
    import dlrm

    sys.exit(dlrm.main())
