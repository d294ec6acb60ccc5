"""Execution of a recipe, for the command line and the Python API.

`execute` is the way of a run, from its flags to the first training step and to its results; the
functions after it are its phases, in their order. The steps are in `training/loop.py`.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from distributed_embeddings.collectives import World
from distributed_embeddings.collectives.launch import launched

from config.config import Config, flags_with
from dataloading.spec.feature_spec import FeatureSpec
from recipes.from_flags import load_feature_spec
from recipes.preset_choice import with_preset
from recipes.recipe import Recipe
from recipes.run_results import Result, check_outputs, deploy, finish, result_of
from runtime.checkpoint import Index, describe
from runtime.checkpoint.resume import Start, find, named_checkpoint
from runtime.cluster import distributed, launcher
from runtime.cluster.distributed import run_on_all_ranks
from runtime.files import column_files, predictions
from runtime.files.outputs import check_writable
from runtime.files.torch_file import TorchMissing
from runtime.hardware import affinity, gpu
from runtime.hardware import device as devices
from runtime.hardware.device import Device
from runtime.logs import rank_logs, run_folder
from runtime.tensorflow_start import import_tensorflow
from training import checkpoints, device_setup, mlperf_hook
from training.failures import handle_failures, log_failure
from training.loop import TrainingLoop
from training.modes import MODES, Summary
from training.run_log import open_log, start_lines
from training.schedule import count_steps
from training.state import Position, RunContext


def execute(
    config: Config,
    catches_signals: bool = True,
    on_evaluation: Callable[[float], None] = lambda metric: None,
) -> Result:
    """Runs the `--mode` of a recipe, on all ranks together.

    Args:
        config: the flags of the recipe.
        catches_signals: whether a training that saves checkpoints takes SIGTERM and SIGINT as
            requests to save one and stop.
        on_evaluation: called with the goal's metric after each evaluation of a training; its
            exceptions end the run.

    Raises:
        ValueError: flags, data or checkpoint cannot be used.
        OSError: a file cannot be read or written.
        TrainingDiverged: the loss, a score or a weight became infinite or NaN.
        Stopped: a signal ended the training.
        CollectiveError, RankLost: on several ranks, one of them failed.
    """
    check_outputs(config)  # files and packages that the flags name, before TensorFlow is imported
    if config.run.mode == "deploy":
        return deploy(config)
    data = check_paths(config)

    # Ranks, and the device of each.
    import_tensorflow()
    world, device = _connect(config)

    # Checkpoint to start from; flags, with its values and those of the preset.
    start = find(checkpoints.start_request(config, data), world, config.distribution.rank_timeout_s)
    with contextlib.ExitStack() as stack:
        stack.callback(start.release)
        config, data, saved, changed = _adopt_flags(config, data, start, world)
        binding_note = affinity.bind(config.device.affinity, world, device.gpu)

        # Data, model, loss and optimizers; weights and position of the checkpoint.
        recipe, notes = _build_recipe(config, data, start, saved, world, device)
        pretrained = _set_pretrained(recipe, start)
        position = checkpoints.position_of(start, saved, recipe.goal, data)
        total_steps = _count_steps(config, recipe, position)

        # Folder and log of the run; the mode.
        names = _names_of_folder(config, recipe, start, saved)
        run_dir = stack.enter_context(run_folder.open_run_dir(config.logs.run_dir, names, world))
        log = run_on_all_ranks(
            world, lambda: open_log(config, recipe, run_dir, world, total_steps, position.step)
        )
        run = RunContext(
            *(config, recipe, device, world, stack.enter_context(log), run_dir),
            *(start, position, total_steps, data, catches_signals, on_evaluation),
            trained_metrics=checkpoints.metrics_of_training(config, saved, data),
        )
        for text in start_lines(run, [binding_note, *notes], pretrained, saved, changed):
            log.message(text)
        with log_failure(run):
            summary = train(run) if config.run.mode == "train" else MODES[config.run.mode](run)
            summary, plots = finish(run, summary)
    return result_of(run, summary, plots)


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
    if path := named_checkpoint(checkpoints.start_request(config)):
        describe(path)
    spec = load_feature_spec(config)
    if is_single:
        _check_predictions_path(config)
    return spec


def _check_predictions_path(config: Config) -> None:
    """Raises ValueError or OSError if the file of `--predictions_path` cannot be written."""
    run = config.run
    if run.mode == "predict" and run.predictions_path:
        predictions.check_writable(run.predictions_path)
    if run.mode == "recommend" and run.predictions_path:
        column_files.check_suffix(run.predictions_path, predictions.FLAG, column_files.FORMATS)
        check_writable(run.predictions_path)


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


def _shared_flags(config: Config) -> dict[str, Any]:
    """Returns the flags that must be equal in all processes."""
    local = flags_with(config.family, is_local=True)
    return {f"--{name}": value for name, value in config.flat().items() if name not in local}


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
    seed = world.gather_objects(devices.choose_seed(adopted.run.seed), "seed")[0]
    return adopted.with_values({"seed": seed}), spec, saved, changed


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


def _build_recipe(
    config: Config,
    spec: FeatureSpec | None,
    start: Start,
    saved: Index | None,
    world: World,
    device: Device,
) -> tuple[Recipe, list[str]]:
    """Returns the recipe, restored from a checkpoint, and notes on what was restored."""
    is_own = not config.definition.has_plan

    def compose() -> Recipe:
        if is_own:
            from nn.own_model import seed_initializers

            seed_initializers(config.run.seed or 0)
        build = config.definition.build or config.family.build
        recipe: Recipe = build(config, spec, world, device)
        recipe.add_metrics(config, spec)
        recipe.goal = recipe.goal.with_flags(config, recipe.evaluator)
        if start.resumes and start.path is not None and saved is not None:
            checkpoints.check_same_data(saved.description, config, recipe, spec, start.path)
        return recipe

    recipe = run_on_all_ranks(world, compose)
    world.check_agreement({**config.model_flags, **recipe.model_flags, **recipe.facts})
    if is_own:
        from distributed_embeddings.data_parallel.broadcast import broadcast_variables

        from nn.own_model import checked_loss

        broadcast_variables(recipe.model.variables)
        recipe.loss = checked_loss(recipe.loss)
    notes = list[str]()
    if start.path is not None:
        description = saved.description if saved else {}
        notes = run_on_all_ranks(
            world, lambda: checkpoints.restore(start, recipe, world, spec, description)
        )
    return recipe, notes


def _set_pretrained(recipe: Recipe, start: Start) -> str | None:
    """Sets the weights that come from other models; returns their description, None without any."""
    if recipe.pretrained is None:
        return None
    return "not read: the training resumes" if start.resumes else recipe.pretrained()


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


def _names_of_folder(
    config: Config, recipe: Recipe, start: Start, saved: Index | None
) -> Iterator[str]:
    """Yields names of the folder of a run, in that of the training of its checkpoint if there."""
    training = checkpoints.training_run_dir(start.path, saved)
    if config.run.mode == "train" or training is None:
        return run_folder.training_names(config.recipe, config.data.dataset_path)
    split = recipe.valid.split if recipe.valid is not None else None
    return run_folder.evaluation_names(training, config.run.mode, split)


def train(run: RunContext) -> Summary:
    """Trains the model, with evaluations and checkpoints on the way."""
    description = run_on_all_ranks(run.world, lambda: checkpoints.describe_training_run(run))
    with handle_failures(run) as policy:
        loop = TrainingLoop(run, policy, description, mlperf_hook.open_hook(run))
        loop.run()
    summary = loop.summary()
    if run.recipe.export is not None and run.start.folder is not None and run.world.is_chief:
        try:
            run.log.message(run.recipe.export(run.start.folder.root))
        except TorchMissing as error:
            run.log.record(f"note: the weights were not exported: {error}")
        except (ValueError, OSError) as error:
            run.log.message(f"note: the weights were not exported: {error}")
    return summary
