"""Folder of a run, and its log."""

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from distributed_embeddings.collectives import World

from config import Config, flag_file
from runtime.cluster.distributed import run_on_all_ranks
from runtime.files.disk import FileLock
from runtime.files.line_file import set_aside
from runtime.files.outputs import output_file
from runtime.hardware import device
from runtime.logs import plots
from runtime.logs.dlll import LogNames, unit_of
from runtime.logs.mlflow_tracking import MLflowRun
from runtime.logs.run_logger import RunLogger

# File in the folder of a run from which `--flagfile` repeats the run.
FLAGS = "flags"


@contextlib.contextmanager
def open_run_dir(config: Config, world: World) -> Iterator[Path]:
    """Yields the run's folder, which rank 0 makes and locks.

    Raises:
        ValueError: another run is using it; on all ranks.
        OSError: it cannot be written; on all ranks.
    """
    lock = run_on_all_ranks(world, lambda: _lock(make_run_dir(config)) if world.is_chief else None)
    try:
        name = str(lock.path.parent) if lock else ""
        yield Path(world.gather_objects(name, "run_dir")[0])
    finally:
        if lock is not None:
            lock.path.unlink(missing_ok=True)
            lock.release()


def _lock(run_dir: Path) -> FileLock:
    lock = FileLock(run_dir / ".run.lock")
    if not lock.acquire(blocking=False):
        raise ValueError(
            f"--run_dir {run_dir}: another run is writing its log there; let it end, or choose "
            "another folder"
        )
    return lock


def make_run_dir(config: Config) -> Path:
    """Returns the run's folder: `--run_dir`, else a new one."""
    parent = Path(config.logs.run_dir or "runs")
    parent.mkdir(parents=True, exist_ok=True)
    if config.logs.run_dir:
        return parent
    stem = str(parent / f"{config.recipe}-{time.strftime('%Y%m%d-%H%M%S')}")
    for number in itertools.count(1):
        run_dir = Path(stem if number == 1 else f"{stem}-{number}")
        try:
            run_dir.mkdir()
            break
        except FileExistsError:  # another run started in the same second
            continue
    return run_dir


def open_log(
    config: Config,
    run_dir: Path,
    world: World,
    total_steps: int | None,
    initial_step: int = 0,
    metrics: Mapping[str, str | None] | None = None,
    goal: str = "auc",
) -> RunLogger:
    """Opens the run's log, whose first line has all flags; a resumed run appends to the file.

    The chief also writes the flags to `flags`, a file for `--flagfile`. Log and flags of an earlier
    run in the folder are renamed.

    Args:
        metrics: the evaluated split of each loss and metric; None without one.
        goal: the metric by which evaluations are compared.
    """
    metrics = metrics or {}
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
        defaults={
            "recipe": config.recipe,
            **Config(definition).flat(),
            **definition.defaults,
            **device.describe(),
        },
        tensorboard_dir=config.logs.tensorboard_dir,
        mlflow_run=mlflow_run,
        enabled=world.is_chief,
        total_steps=total_steps,
        initial_step=initial_step,
        append=initial_step > 0,
        names=names,
        bar_values=("loss", goal),
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


def draw_plots(
    run_dir: Path,
    log: RunLogger,
    history: Mapping[str, Any] | None,
    evaluator: Any,
    summary: Mapping[str, Any],
) -> list[Path]:
    """Draws the results of a training or an evaluation, logs and returns the names of the files.

    A plot that fails does not end the run: a note in the log gives the reason.

    Args:
        history: the learning curve of a training; None for other runs.
        evaluator: has `picture(metrics)`, content of `plots.evaluation` or None, and `split`; None
            without an evaluation.
        summary: the metrics, and `best_reachable_auc` if it is known.
    """
    pictures: list[tuple[str, str, Mapping[str, Any]]] = []
    if history is not None:
        curve = {"history": history, "best_reachable_auc": summary.get("best_reachable_auc")}
        curve |= {"split": evaluator.split} if evaluator is not None else {}
        pictures.append(("learning_curve", "learning_curve.png", curve))
    if evaluator is not None and (content := evaluator.picture(summary)) is not None:
        pictures.append(("evaluation", "roc.png", content))
    drawn: list[Path] = []
    for kind, name, content in pictures:
        try:
            plots.draw(kind, run_dir / name, **content)
            drawn.append(run_dir / name)
        except OSError as error:
            log.message(f"note: {error}")
    if drawn:
        log.message(f"plots: {', '.join(map(str, drawn))}")
    return drawn
