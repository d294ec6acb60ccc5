"""Test AUC of trainings without flags compared with logistic regression and LightGBM.

python -m benchmarks.default_settings --tables FOLDER --output PAGE

Each CSV file of the folder is a table with a column `label`; a column `t_` is not a feature. Each
split of it is a data set of `preproc.transcode` without flags, on which the recipes train without
flags but paths and a seed. The simple models are those of `recipes.baseline` on the same data set.
Results are kept in --work: a repeated command resumes, and another version of the toolkit needs
another folder.
"""

import csv
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness.result_page import BenchmarkOptions, Page, parse, refuse, table
from benchmarks.harness.studies import run, summary_of
from config.flag import flag

SIMPLE = ("logistic regression", "LightGBM")
LEAST_GAP = -0.01
_FIRST_SEED = 100  # of the permutation of split 0


class Cell(NamedTuple):
    """Result of a model on a table and split.

    Attributes:
        auc: on the test rows.
        rows: training rows.
        elapsed_s: wall time of the command that trains, start included.
        commit: version of the toolkit.
    """

    auc: float
    rows: int
    elapsed_s: float
    commit: str


class Gap(NamedTuple):
    """Test AUC of a model less that of the simple model with the higher mean.

    Attributes:
        mean: over the splits.
        error: its standard error; NaN of one split.
    """

    mean: float
    error: float

    def __str__(self) -> str:
        return f"{self.mean:+.4f}" + ("" if np.isnan(self.error) else f" ± {self.error:.4f}")

    @property
    def is_behind(self) -> bool:
        """True if the gap is below the least one by more than its standard error."""
        return self.mean + np.nan_to_num(self.error) < LEAST_GAP


# Model -> results of the splits of a table.
Cells = Mapping[str, Sequence[Cell]]


def prepared(file: Path, split: int, folder: Path) -> Path:
    """Returns the data set of a table and split, which is prepared once."""
    data = folder / "data"
    if not data.exists():
        folder.mkdir(parents=True, exist_ok=True)
        rows = folder / file.name
        permute(file, rows, split)
        flags = ("--label", "label", "--split_by_time", "t_", "--split", "0.8,0.1,0.1")
        run("-m", "preproc.transcode", "--input", rows, *flags, "--output", data)
        rows.unlink()
    return data


def permute(file: Path, output: Path, split: int) -> None:
    """Writes the rows of a table in the order of a split, with their numbers as column t_."""
    with file.open(newline="") as source, output.open("w", newline="") as target:
        rows = list(csv.DictReader(source))
        writer = csv.DictWriter(target, dict.fromkeys([*rows[0], "t_"]))
        writer.writeheader()
        order = np.random.default_rng(_FIRST_SEED + split).permutation(len(rows))
        writer.writerows(rows[index] | {"t_": number} for number, index in enumerate(order))


def measure_simple(data: Path, folder: Path) -> dict[str, Cell]:
    """Returns the results of the simple models."""
    run("-m", "recipes.baseline", "--dataset_path", data, "--output", folder / "simple")
    models = json.loads((folder / "simple/baseline.json").read_text())["models"]
    by_name = {model["model"]: model for model in models}
    return {
        name: _cell(by_name[name]["metrics"], data, by_name[name]["elapsed_s"]) for name in SIMPLE
    }


def measure_model(data: Path, folder: Path, model: str, split: int) -> dict[str, Cell]:
    """Returns the result of a training without flags but paths and a seed."""
    saved = folder / "model"
    shutil.rmtree(folder, ignore_errors=True)  # of an interrupted training
    start = time.perf_counter()
    common = (f"{model}.py", "--dataset_path", data)
    train = ("--seed", split + 1, "--run_dir", folder / "train")
    run(*common, *train, "--save_checkpoint_path", saved)
    elapsed_s = time.perf_counter() - start
    restore = ("--mode", "eval", "--restore_checkpoint_path", saved)
    run(*common, *restore, "--run_dir", folder / "eval")
    return {model: _cell(summary_of(folder / "eval"), data, elapsed_s)}


def _cell(metrics: Mapping[str, Any], data: Path, elapsed_s: float) -> Cell:
    command = ("git", "describe", "--always", "--abbrev=10", "--exclude=*", "--dirty=+")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = (data / "train/label.bin").stat().st_size
    return Cell(metrics["auc"], rows, elapsed_s, done.stdout.strip() or "unknown")


def kept(file: Path, measure: Callable[..., dict[str, Cell]], *arguments) -> dict[str, Cell]:
    """Returns results of an earlier run, else measures and keeps them."""
    if not file.exists():
        unfinished = file.with_suffix(".tmp")
        unfinished.write_text(json.dumps(measure(*arguments)))
        unfinished.rename(file)
    return {name: Cell(*values) for name, values in json.loads(file.read_text()).items()}


def gap_of(models: Cells, model: str) -> Gap:
    """Returns the gap of a model on a table, by the differences within the splits."""
    simple = max(SIMPLE, key=lambda name: np.mean([cell.auc for cell in models[name]]))
    pairs = zip(models[model], models[simple], strict=True)
    gaps = [ours.auc - simple.auc for ours, simple in pairs]
    error = np.std(gaps, ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.nan
    return Gap(float(np.mean(gaps)), float(error))


def add_tables(page: Page, results: Mapping[str, Cells], models: Sequence[str]) -> None:
    """Adds the test AUC of all models, the gaps of `models`, and the seconds of their commands."""
    aucs, seconds = [], []
    for name, by_model in results.items():
        first = (name, f"{by_model[SIMPLE[0]][0].rows:,}")
        means = (f"{np.mean([c.auc for c in by_model[m]]):.4f}" for m in (*SIMPLE, *models))
        aucs.append((*first, *means, *(gap_of(by_model, model) for model in models)))
        times = ([cell.elapsed_s for cell in by_model[model]] for model in models)
        seconds.append((*first, *(f"{np.median(t):.0f} ({max(t):.0f})" for t in times)))
    columns = ("table", "training rows")
    gaps = (f"{name}, gap" for name in models)
    page.add("Test AUC", *table((*columns, *SIMPLE, *models, *gaps), aucs))
    text = "Median of the splits (largest), of the command with its start."
    page.add("Seconds per training", text, "", *table((*columns, *models), seconds))


def judge(page: Page, results: Mapping[str, Cells], model: str) -> None:
    """Adds the verdicts on a model: mean gap, tables far behind, tables ahead."""
    gaps = {name: gap_of(by_model, model) for name, by_model in results.items()}
    means = [gap.mean for gap in gaps.values()]
    page.judge(f"{model}: mean gap {np.mean(means):+.4f}", "0 or more", np.mean(means) >= 0)
    behind = [name for name, gap in gaps.items() if gap.is_behind]
    text = f"{model}: tables below {LEAST_GAP} by more than the standard error: "
    page.judge(text + (", ".join(behind) or "none"), "none", not behind)
    ahead = sum(mean > 0 for mean in means)
    text = f"{model}: ahead on {ahead} of {len(means)} tables"
    page.judge(text, "half of them", 2 * ahead >= len(means))


@dataclass(frozen=True, kw_only=True)
class SettingsOptions(BenchmarkOptions):
    """Flags of the benchmark."""

    tables: Path = flag(MISSING, "folder of CSV files", metavar="FOLDER")
    splits: int = flag(3, "random splits of each table", at_least=1)
    models: tuple[str, ...] = flag(("dlrm", "dcnv2"), "recipes, comma-separated")
    work: Path = flag(
        Path("runs/default_settings"), "folder of data sets and results that are kept"
    )


def measure(args: SettingsOptions) -> dict[str, dict[str, list[Cell]]]:
    results = {}
    files = sorted(args.tables.glob("*.csv"), key=lambda file: file.stat().st_size)
    if not files:
        refuse(f"--tables {args.tables}: expected a folder of files .csv, got none")
    for file in files:
        by_model = results[file.stem] = {name: [] for name in (*SIMPLE, *args.models)}
        for split in range(args.splits):
            folder = args.work / file.stem / str(split)
            data = prepared(file, split, folder)
            cells = kept(folder / "simple.json", measure_simple, data, folder)
            for model in args.models:
                ours = (measure_model, data, folder / model, model, split)
                cells |= kept(folder / f"{model}.json", *ours)
            for name, cell in cells.items():
                by_model[name].append(cell)
            aucs = (f"{name} {cell.auc:.4f}" for name, cell in cells.items())
            print(f"{file.stem}, split {split}: {', '.join(aucs)}", flush=True)
    return results


def main(argv: Sequence[str] | None = None) -> int:
    """Runs missing measurements and writes the page; returns 1 if a target is missed."""
    args = parse(SettingsOptions, argv, "default_settings", __doc__)
    results = measure(args)
    cells = [c for by_model in results.values() for each in by_model.values() for c in each]
    commits = Counter(cell.commit for cell in cells)
    facts = [
        f"toolkit: {', '.join(f'{name} ({count} results)' for name, count in commits.items())}",
        f"random splits of each table: {args.splits}, into 80 % train, 10 % validation and 10 % "
        "test; means over them, and standard errors of the gaps within splits",
        "training by one command without flags but paths and a seed; the kept checkpoint is "
        "evaluated once on the test rows",
        "logistic regression and LightGBM: `recipes.baseline` on the same prepared data sets",
        "gap: test AUC less that of the simple model with the higher mean on the table's test rows",
    ]
    page = Page("Default settings compared with simple models", "default_settings", args, facts)
    add_tables(page, results, args.models)
    for model in args.models:
        judge(page, results, model)
    return page.finish()


if __name__ == "__main__":
    sys.exit(main())
