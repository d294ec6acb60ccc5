"""Set-up of a run: processes, device, flags, data, model, log."""

import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from distributed_embeddings.collectives import World
from distributed_embeddings.collectives.launch import launched

from config import Config, flags_with, presets
from config.checkpoint_flags import shape_flags
from config.sections import original
from dataloading.row_count import count_training_samples
from dataloading.spec import data_checks
from dataloading.spec.feature_spec import FeatureSpec
from recipes.from_flags import load_feature_spec
from recipes.recipe import Recipe
from runtime.checkpoint import Index, best_of, describe, resolve
from runtime.checkpoint.resume import Start, find
from runtime.cluster import distributed, launcher
from runtime.cluster.distributed import run_on_all_ranks
from runtime.files import predictions, tables
from runtime.files.outputs import check_writable
from runtime.hardware import affinity, gpu
from runtime.hardware import device as devices
from runtime.hardware.device import Device
from runtime.logs import rank_logs, run_folder
from training import checkpoints, device_setup
from training.failures import log_failure
from training.logs.run_log import open_log
from training.schedule import count_steps
from training.state import Position, RunContext


def check_paths(config: Config) -> FeatureSpec | None:
    """Reads the files that the command line names, before TensorFlow is imported (seconds).

    Of several processes only the first one on each machine does so, the launcher ends the others if
    it fails; and none once TensorFlow is imported, because ranks of a program fail together.

    Returns:
        The feature spec; None if it is not read yet, or samples are generated from flags.

    Raises:
        ValueError: a path cannot be used.
        OSError: a file cannot be read.
    """
    is_single = launched() is None
    if launcher.local_rank() != 0 or ("tensorflow" in sys.modules and not is_single):
        return None
    saved, run, resume = config.checkpoint, config.run, config.checkpoint.resume
    if saved.restore_checkpoint_path:
        describe(resolve(best_of(saved.restore_checkpoint_path)))
    elif resume and resume != "auto" and run.mode == "train":
        describe(resolve(resume, "--resume"))
    spec = load_feature_spec(config)
    if is_single:
        _check_predictions_path(config)
    return spec


@contextlib.contextmanager
def open_run(config: Config) -> Iterator[RunContext]:
    """Sets up a run, and closes its log and unlocks its checkpoints at the end.

    Raises:
        ValueError: flags, data or checkpoint cannot be used.
        OSError: a file cannot be read or written.
    """
    data = check_paths(config)
    world, device = _connect(config)
    request = checkpoints.start_request(config)
    start = find(request, world, config.distribution.rank_timeout_s)
    try:
        config, data, saved, changed = _adopt_flags(config, data, start, world)
        seed = world.gather_objects(devices.choose_seed(config.run.seed), "seed")[0]
        config = config.with_values({"seed": seed})
        binding_note = affinity.bind(config.device.affinity, world, device.gpu)
        recipe, notes = _build_recipe(config, data, start, saved, world, device)
        pretrained = None
        if recipe.pretrained is not None:
            pretrained = "not read: the training resumes" if start.resumes else recipe.pretrained()
        position = Position()
        if start.resumes and saved is not None:
            position = Position.from_json(saved.state, recipe.goal)
            if saved.description["feature_spec"] != checkpoints.fingerprint(data):
                position = position.on_grown_data()
        total_steps = _count_steps(config, recipe, position)
        with (
            run_folder.open_run_dir(config.logs.run_dir, config.recipe, world) as run_dir,
            run_on_all_ranks(
                world,
                lambda: open_log(
                    *(config, run_dir, world, total_steps, position.step),
                    *(recipe.metric_splits(), recipe.goal.metric),
                ),
            ) as log,
        ):
            run = RunContext(
                *(config, recipe, device, world, log, run_dir),
                *(start, position, total_steps, data),
            )
            for text in _describe(run, binding_note, pretrained, notes):
                log.message(text)
            if start.path is not None and saved is not None:
                for text in checkpoints.describe_start(run, start.path, saved, changed):
                    log.message(text)
            with log_failure(run):
                yield run
    finally:
        start.release()


def finish(run: RunContext, summary: dict[str, Any]) -> tuple[dict[str, Any], list[Path]]:
    """Adds the best AUC that any model can reach to the summary, draws plots, ends the log.

    Returns:
        The summary under the names of the log, and the plots.
    """
    recipe, mode, drawn = run.recipe, run.config.run.mode, list[Path]()
    if mode not in ("predict", "recommend") and run.world.is_chief:
        best_auc = recipe.best_auc()  # may generate millions of samples
        summary |= {} if best_auc is None else {"best_reachable_auc": best_auc}
    try:
        if run.world.is_chief and mode in ("train", "eval"):
            history = run.position.history if mode == "train" else None
            evaluator = recipe.evaluator if recipe.goal.metric in summary else None
            drawn = run_folder.draw_plots(run.run_dir, run.log, history, evaluator, summary)
    finally:
        summary = run.log.summary(summary)
    return summary, drawn


def with_preset(
    config: Config, spec: FeatureSpec | None, saved: Index | None = None, resumes: bool = False
) -> Config:
    """Returns the flags with the values that `--preset` chooses for a data set.

    Flags of the command line, or of the model of a checkpoint (`saved`), keep their values; so do
    all flags of a training that `resumes`.
    """
    if not resumes and (saved is None or config.run.mode == "train"):
        count = functools.partial(_count_training_samples, config, spec)
        facts = config.family.preset_facts(config, spec) if spec else {}
        config = presets.apply(config, count, _pinned_flags(config, saved), **facts)
    config.family.check_weight_decay(config)
    return config


def _pinned_flags(config: Config, saved: Index | None) -> set[str]:
    pinned = set(config.explicit)
    if saved is not None:
        pinned |= shape_flags(saved.description)
    if config.data.dataset_type == "synthetic":
        pinned.add("batch_size")  # the number of samples depends on it
    return pinned


def _count_training_samples(config: Config, spec: FeatureSpec | None) -> int | None:
    """Returns the samples of the training split; None if they cannot be counted."""
    if config.data.dataset_type == "synthetic":
        return config.synthetic.synthetic_dataset_train_batches * config.run.batch_size
    if spec is None:  # --batch_sizes reads no data set
        return None
    try:
        return count_training_samples(spec, config.data.dataset_type == "split_tfrecords")
    except ValueError:
        if config.distribution.plan_only:  # a plan needs no samples
            return None
        raise


def _connect(config: Config) -> tuple[World, Device]:
    """Connects the ranks and sets up the device of each."""
    early = checkpoints.set_up_flags(config)
    rank_logs.start(config.logs.rank_logs)
    world = distributed.connect(config.distribution.rank_timeout_s, early.device.deterministic)

    def set_up() -> Device:
        device = device_setup.set_up(early.device, world.local_rank, world.local_size)
        rank_logs.check()
        return device

    device = run_on_all_ranks(world, set_up)
    world.check_agreement({**_shared_flags(config), "the device": str(device)})
    if device.kind == "GPU":
        gpu.check_not_shared(device.gpu, world)
    return world, devices.with_memory(device, world)


def _adopt_flags(
    config: Config, data: FeatureSpec | None, start: Start, world: World
) -> tuple[Config, FeatureSpec | None, Index | None, list[str]]:
    """Returns all flags, the data set, the checkpoint's description, and the flags that differ from
    it. `data` is the data set that was read early."""

    def adopt() -> tuple[Config, FeatureSpec | None, Index | None, list[str]]:
        _check_run(config, world)
        adopted, saved, changed = checkpoints.adopt(config, start)
        spec = load_feature_spec(adopted, data)
        return with_preset(adopted, spec, saved, start.resumes), spec, saved, changed

    adopted, spec, saved, changed = run_on_all_ranks(world, adopt)
    world.check_agreement(
        {
            "the checkpoint": (saved.description, saved.state) if saved else None,
            "the feature spec": checkpoints.fingerprint(spec),
            "the preset": adopted.preset_note,
        }
    )
    return adopted, spec, saved, changed


def _check_run(config: Config, world: World) -> None:
    """Raises ValueError if flags do not fit the world, or predictions cannot be written."""
    logs = config.logs
    if logs.profiler_start_step is not None and logs.profiled_rank >= world.size:
        raise ValueError(
            f"--profiled_rank {logs.profiled_rank} does not exist: there are {world.size} "
            "processes, the first is 0"
        )
    if world.is_chief and world.size > 1:  # else `check_paths` did so
        _check_predictions_path(config)


def _check_predictions_path(config: Config) -> None:
    """Raises ValueError or OSError if the file of `--predictions_path` cannot be written."""
    run = config.run
    if run.mode == "predict" and run.predictions_path:
        predictions.check_writable(run.predictions_path)
    if run.mode == "recommend" and run.predictions_path:
        tables.check_suffix(run.predictions_path, predictions.FLAG, tables.FORMATS)
        check_writable(run.predictions_path)


def _shared_flags(config: Config) -> dict[str, Any]:
    """Returns the flags that must be equal in all processes."""
    local = flags_with(is_local=True)
    return {f"--{name}": value for name, value in config.flat().items() if name not in local}


def _build_recipe(
    config: Config,
    spec: FeatureSpec | None,
    start: Start,
    saved: Index | None,
    world: World,
    device: Device,
) -> tuple[Recipe, list[str]]:
    """Returns the recipe, restored from a checkpoint, and notes on what was restored."""

    def compose() -> Recipe:
        build = config.definition.build or config.family.build
        recipe: Recipe = build(config, spec, world, device)
        recipe.goal = recipe.goal.with_flags(config, recipe.evaluator)
        if start.resumes and start.path is not None and saved is not None:
            checkpoints.check_same_data(saved.description, config, recipe, spec, start.path)
        return recipe

    recipe = run_on_all_ranks(world, compose)
    world.check_agreement({**recipe.model_flags, **recipe.facts})
    notes = list[str]()
    if start.path is not None:
        description = saved.description if saved else {}
        notes = run_on_all_ranks(
            world, lambda: checkpoints.restore(start, recipe, world, spec, description)
        )
    return recipe, notes


def _count_steps(config: Config, recipe: Recipe, position: Position) -> int | None:
    """Returns the steps of the whole training; None in other modes."""
    if config.run.mode != "train" or recipe.train is None:
        return None
    total_steps = position.first_step + count_steps(config, recipe.train.num_batches)
    profiled_step = config.logs.profiler_start_step
    if profiled_step is not None and not position.step <= profiled_step < total_steps:
        raise ValueError(
            f"--profiler_start_step {profiled_step} is never reached: the training has "
            f"{total_steps} steps, the first is {position.step}"
        )
    return total_steps


def _describe(
    run: RunContext,
    binding_note: str | None,
    pretrained: str | None,
    restore_notes: Sequence[str],
) -> Iterator[str]:
    """Yields log lines on what runs, and on what."""
    config, device = run.config, run.device
    if config.preset_note:
        yield config.preset_note
    ranks = {"ranks": run.world.size} if run.world.size > 1 else {}
    facts = "  ".join(f"{name} {value}" for name, value in {**run.recipe.facts, **ranks}.items())
    yield f"{config.run.mode} on {device.kind} in {device.compute_dtype}  {facts}"
    load = config.checkpoint.load_checkpoint_path
    if load and config.run.mode == "train" and run.start.path is None:
        yield f"note: --load_checkpoint_path {load} has no checkpoint: a new training starts"
    if unused := config.unused():
        flags = ", ".join(f"--{name}" for name in unused)
        yield f"note: not used in this run (--mode {config.run.mode}): {flags}"
    if "loss_scale" in config.explicit and device.compute_dtype == "bfloat16":
        yield "note: --loss_scale is not used, bfloat16 has the range of float32"
    from distributed_embeddings.ops import kernels

    reason = kernels.reason_for_fallback()
    lookup_note = reason and f"TensorFlow's own operations look embeddings up, for {reason}"
    warnings = None
    if config.run.mode == "train" and run.data is not None and run.world.is_chief:
        warnings = data_checks.describe_warnings(run.data.base_directory)
    notes = (binding_note, lookup_note, run.start.note, *original.notes(config), warnings)
    for note in filter(None, (*notes, *restore_notes, *run.recipe.notes)):
        yield f"note: {note}"
    if pretrained:
        yield f"start from other models: {pretrained}"
