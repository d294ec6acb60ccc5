"""Studies of accuracy: trainings by the recipes' command lines, and their metrics."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness.result_page import BenchmarkOptions
from config.flag import flag

CHOOSING_SEED = 100


@dataclass(frozen=True, kw_only=True)
class StudyOptions(BenchmarkOptions):
    """Data, page and seeds of a study."""

    data: Path = flag(MISSING, "folder of the raw data")
    seeds: int = flag(5, "number of trainings", at_least=1)


class ChosenFlags(NamedTuple):
    """Flags, and the number of epochs with the best validation metric, `value`."""

    flags: str
    epochs: int
    value: float


def choose(candidates: Iterable[str], curve: Callable[[str], Sequence[float]]) -> ChosenFlags:
    """Returns the best of flags by the validation metric; `curve(flags)`: that of each epoch."""
    tried = []
    for flags in candidates:
        values = curve(flags)
        tried.append(ChosenFlags(flags, int(np.argmax(values)) + 1, max(values)))
        print(flags, [round(value, 4) for value in values], flush=True)
    return max(tried, key=lambda choice: choice.value)


def run(*command: object) -> None:
    """Runs Python quietly; exits with its output if it fails."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    result = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, env=environment
    )
    if result.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")


def log_of(run_dir: Path) -> list[dict[str, Any]]:
    """Entries of a run's log; the last one is the summary."""
    lines = (run_dir / "log.json").read_text().splitlines()
    return [json.loads(line.removeprefix("DLLL ")) for line in lines]


def summary_of(run_dir: Path) -> dict[str, Any]:
    return log_of(run_dir)[-1]["data"]


def curve_of(run_dir: Path, metric: str) -> list[float]:
    """A metric at the end of each epoch."""
    entries = (e for e in log_of(run_dir) if isinstance(e.get("step"), list) and e["step"])
    by_epoch = {e["step"][0]: e["data"][metric] for e in entries if metric in e["data"]}
    return list(by_epoch.values())


def mean_and_range(values: Sequence[float]) -> str:
    spread = f" ({min(values):.4f}, {max(values):.4f})" if len(values) > 1 else ""
    return f"{np.mean(values):.4f}{spread}"
