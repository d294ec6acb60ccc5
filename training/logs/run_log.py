"""Log of a run, opened from its flags."""

from pathlib import Path

from distributed_embeddings.collectives import World

from config import Config, flag_file
from config.sections import original
from recipes.recipe import Recipe
from runtime.files.line_file import set_aside
from runtime.files.outputs import output_file
from runtime.hardware import device
from runtime.logs.dlll import LogNames, unit_of
from runtime.logs.mlflow_tracking import MLflowRun
from runtime.logs.run_folder import FLAGS
from runtime.logs.run_logger import RunLogger


def open_log(
    config: Config,
    recipe: Recipe,
    run_dir: Path,
    world: World,
    total_steps: int | None,
    initial_step: int,
) -> RunLogger:
    """Opens the run's log, whose first line has all flags; a resumed run appends to the file.

    The chief also writes the flags to `flags`, a file for `--flagfile`. Log and flags of an earlier
    run in the folder are renamed.
    """
    metrics, goal = recipe.metric_splits(), recipe.goal.metric
    definition, names = config.definition, LogNames()
    if definition.log_names is not None:
        names = definition.log_names(config.run.mode, metrics.get(goal), goal)
    parameters = {"recipe": config.recipe, **config.flat(), **device.describe()}
    uri, mlflow_run = config.logs.mlflow_uri, None
    if uri and world.is_chief:
        mlflow_run = MLflowRun(uri, config.recipe, run_dir.name, parameters)
    log = RunLogger(
        config.logs.log_path or run_dir / config.logs.log_filename,
        parameters,
        tensorboard_dir=config.logs.tensorboard_dir,
        mlflow_run=mlflow_run,
        enabled=world.is_chief,
        total_steps=total_steps,
        initial_step=initial_step,
        append=initial_step > 0,
        names=names,
        bar_values=("loss", goal),
        prints_dlll=config.logs.verbose or original.is_requested(config),
    )
    if world.is_chief:
        try:
            if not initial_step:
                set_aside(run_dir / FLAGS)
            with output_file(run_dir / FLAGS) as stream:
                stream.write(flag_file.text(config).encode())
        except OSError as error:
            log.message(f"note: {run_dir / FLAGS} cannot be written: {error.strerror}")
    for name, split in metrics.items():
        log.metadata(name, format=".5f", split=split)
    for name in names.measurements():
        if name not in metrics:
            unit = unit_of(name)
            log.metadata(name, unit, format=None if unit else ".5f")
    return log
