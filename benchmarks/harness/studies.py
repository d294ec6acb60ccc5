"""Studies of accuracy: trainings by the recipes' command lines, and their metrics."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.result_page import Page
from config.command import CommandOptions
from config.flag import flag


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


def mean_and_range(values: Sequence[float]) -> str:
    spread = f" ({min(values):.4f}, {max(values):.4f})" if len(values) > 1 else ""
    return f"{np.mean(values):.4f}{spread}"


@dataclass(frozen=True, kw_only=True)
class StudyOptions(CommandOptions):
    """Data, page and seeds of a study."""

    data: Path = flag(MISSING, "folder of the raw data")
    output: Path = flag(MISSING, "the page, Markdown")
    seeds: int = flag(5, "number of trainings", at_least=1)


def study_page(title: str, name: str, facts: Sequence[str], results: Sequence[str]) -> Page:
    """A page with the command line as it was typed."""
    page = Page(title, [f"`python -m benchmarks.{name} {' '.join(sys.argv[1:])}`"], facts)
    page.add("Results", *results)
    return page
