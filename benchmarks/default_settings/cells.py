"""Results of one table and split: prepared, trained, evaluated, each kept in a file."""

import csv
import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.studies import run, summary_of

SIMPLE = ("logistic regression", "LightGBM")
_ROOT = Path(__file__).resolve().parents[2]
_FIRST_SEED = 100  # of the permutation of split 0


@dataclass(frozen=True)
class Cell:
    """Result of a model on a table and split.

    Attributes:
        auc, log_loss: on the test rows.
        rows: training rows.
        elapsed_s: wall time of the command that trains, start included.
        commit: version of the toolkit.
    """

    auc: float
    log_loss: float
    rows: int
    elapsed_s: float
    commit: str


def prepared(table: Path, split: int, work: Path) -> Path:
    """Returns the data set of a table, which is prepared once.

    Rows are permuted by `default_rng(100 + split)`; the first 80 % train, the next 10 % validate.
    """
    folder = work / table.stem / str(split)
    data = folder / "data"
    if not data.exists():
        folder.mkdir(parents=True, exist_ok=True)
        rows = folder / f"{table.stem}.csv"
        permute(table, rows, split)
        flags = ("--label", "label", "--split_by_time", "t_", "--split", "0.8,0.1,0.1")
        run("-m", "preproc.transcode", "--input", rows, *flags, "--output", data)
        rows.unlink()
    return data


def permute(table: Path, output: Path, split: int) -> None:
    """Writes the rows of a table in the order of a split, with their numbers as column t_."""
    with table.open(newline="") as source, output.open("w", newline="") as target:
        header, *rows = csv.reader(source)
        if "t_" in header:
            place = header.index("t_")
        else:
            place = len(header)
            header, rows = [*header, "t_"], [[*row, ""] for row in rows]
        writer = csv.writer(target)
        writer.writerow(header)
        order = np.random.default_rng(_FIRST_SEED + split).permutation(len(rows))
        for number, index in enumerate(order):
            rows[index][place] = str(number)
            writer.writerow(rows[index])


def measure_simple(table: Path, split: int, work: Path) -> dict[str, Cell]:
    """Returns the results of the simple models."""
    folder = work / table.stem / str(split)

    def measure() -> dict[str, Any]:
        data = prepared(table, split, work)
        run("-m", "recipes.baseline", "--dataset_path", data, "--output", folder / "simple")
        models = json.loads((folder / "simple/baseline.json").read_text())["models"]
        return {
            model["model"]: _cell(model["metrics"], data, model["elapsed_s"])
            for model in models
            if model["model"] in SIMPLE
        }

    cells = _kept(folder / "simple.json", measure)
    return {name: Cell(**cell) for name, cell in cells.items()}


def measure_model(table: Path, split: int, model: str, flags: Sequence[str], work: Path) -> Cell:
    """Returns the result of a training with `flags`, and no others but paths and a seed."""
    key = hashlib.sha256(json.dumps(list(flags)).encode()).hexdigest()[:8]
    folder = work / table.stem / str(split) / (f"{model}-{key}" if flags else model)

    def measure() -> dict[str, Any]:
        data, saved = prepared(table, split, work), folder / "model"
        shutil.rmtree(folder, ignore_errors=True)  # of an interrupted training
        start = time.perf_counter()
        common = (f"{model}.py", "--dataset_path", data)
        train = ("--seed", split + 1, "--run_dir", folder / "train")
        run(*common, *flags, *train, "--save_checkpoint_path", saved)
        elapsed_s = time.perf_counter() - start
        restore = ("--mode", "eval", "--restore_checkpoint_path", saved)
        run(*common, *restore, "--run_dir", folder / "eval")
        return _cell(summary_of(folder / "eval"), data, elapsed_s)

    return Cell(**_kept(folder.with_suffix(".json"), measure))


def _cell(metrics: dict[str, Any], data: Path, elapsed_s: float) -> dict[str, Any]:
    rows = (data / "train/label.bin").stat().st_size
    return asdict(Cell(metrics["auc"], metrics["log_loss"], rows, elapsed_s, commit()))


def _kept(file: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Returns a result of an earlier run, else measures and keeps it."""
    if not file.exists():
        result = measure()
        file.with_suffix(".tmp").write_text(json.dumps(result))
        file.with_suffix(".tmp").rename(file)
    kept: dict[str, Any] = json.loads(file.read_text())
    return kept


def commit() -> str:
    """Returns the version of the toolkit: Git's commit, with + for changes that have none."""
    command = ("git", "describe", "--always", "--abbrev=10", "--exclude=*", "--dirty=+")
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
