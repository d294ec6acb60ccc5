"""The folder of a run and the log in it."""

import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from config import Config
from runtime import device
from runtime.logging import LogNames, RunLogger


def make_run_dir(config: Config, before: str | None = None) -> Path:
    """The run's folder; where `--run_dir` names none, that of `before`, or a new one."""
    if before is not None and not config.run.run_dir:
        return Path(before)
    parent = Path(config.run.run_dir or "runs")
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--run_dir {parent} cannot be made: {error.strerror}") from None
    if config.run.run_dir:
        return parent
    stem = str(parent / f"{config.recipe}-{time.strftime('%Y%m%d-%H%M%S')}")
    for number in itertools.count(1):
        run_dir = Path(stem if number == 1 else f"{stem}-{number}")
        try:
            run_dir.mkdir()
            break
        except FileExistsError:  # another run began in the same second
            continue
    return run_dir


def open_log(
    config: Config,
    defaults: Mapping[str, Any] | None,
    run_dir: Path,
    world,
    total_steps: int | None,
    initial_step: int = 0,
    names: LogNames = LogNames(),
    metrics: Sequence[str] = (),
    append: bool = False,
) -> RunLogger:
    """The run's log with every flag as its first line; a resumed run goes on with the file.

    Args:
      append: goes on with the file at the first step, too.
      names: what the recipe calls values.
      metrics: losses and metrics that only this recipe has.
    """
    log = RunLogger(
        config.run.log_path or run_dir / config.run.log_filename,
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
        initial_step=initial_step,
        append=append or initial_step > 0,
        names=names,
    )
    log.metadata("throughput", unit="samples/s")
    for name in ("auc", "best_auc", "best_reachable_auc", "log_loss", "loss", *metrics):
        log.metadata(name, format=".5f")
    for name in ("mean", "p50", "p90", "p95", "p99"):
        log.metadata(f"latency_{name}", unit="ms")
    for name in ("elapsed_s", "epoch_s", "time_to_auc_threshold_s"):
        log.metadata(name, unit="s")
    if names.speeds:
        for name in ("evaluation_s", "time_to_threshold_s", "time_to_best_s"):
            log.metadata(name, unit="s")
        for name in ("train_throughput", "eval_throughput"):
            for of in (name, f"best_{name}", f"mean_{name}"):
                log.metadata(of, unit="samples/s")
    return log
