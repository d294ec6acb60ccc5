"""Quality without any flag, with tuned flags, and of a simple model, per data set and recipe.

python -m benchmarks.default_settings --data FOLDER --output PAGE

FOLDER holds `criteo_kaggle/`, `movielens_latest_small/`, `ncf_lastfm/`, `ncf_ml1m/`,
`amazon_grocery/` and `amazon_musical/`. Each data set is prepared in --work by the documented
commands. Models are trained on the training split, with `--preset auto` or with the flags of a
file in recipes/presets. The metric is that of the test split after the last epoch: nothing is
chosen here.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness.report import table
from benchmarks.quality import data_sets, simple_models
from benchmarks.quality.recipe_runs import (
    keep,
    mean_and_range,
    read_kept,
    run,
    study_page,
    study_parser,
    summary_of,
)

METRICS = ("hr@10", "test_auc", "auc")
# Tuned flags: recipes/presets has them.
TUNED = "--flagfile=recipes/presets/"


class QualityCase(NamedTuple):
    """A data set and a recipe."""

    prepare: Callable[[Path, Path], Path]  # writes the data set into a folder
    script: str
    tuned: str = ""  # file of tuned flags, if there is one for this data set
    flags: str = ""  # of both trainings


_lastfm = data_sets.ratings("ncf_lastfm", "lastfm")
_ml_1m = data_sets.ratings("ncf_ml1m", "ml_1m")
_movielens = data_sets.ratings("movielens_latest_small/ratings.csv", "movielens")
CASES = {
    "criteo_kaggle dlrm": QualityCase(
        data_sets.criteo, "dlrm.py", f"{TUNED}criteo_kaggle_dlrm.flags"
    ),
    "shop dlrm": QualityCase(data_sets.shop, "dlrm.py", f"{TUNED}shop_dlrm.flags"),
    "movielens_clicks dlrm": QualityCase(data_sets.movielens_clicks, "dlrm.py"),
    "generated dlrm": QualityCase(data_sets.generated, "dlrm.py", f"{TUNED}generated_dlrm.flags"),
    "criteo_kaggle dcnv2": QualityCase(
        data_sets.criteo, "dcnv2.py", f"{TUNED}criteo_kaggle_dcnv2.flags"
    ),
    "shop dcnv2": QualityCase(data_sets.shop, "dcnv2.py", f"{TUNED}shop_dcnv2.flags"),
    "movielens_clicks dcnv2": QualityCase(data_sets.movielens_clicks, "dcnv2.py"),
    "generated dcnv2": QualityCase(
        data_sets.generated, "dcnv2.py", f"{TUNED}generated_dcnv2.flags"
    ),
    "lastfm ncf": QualityCase(_lastfm, "ncf.py", f"{TUNED}lastfm_neumf.flags"),
    "movielens_small ncf": QualityCase(_movielens, "ncf.py", f"{TUNED}lastfm_neumf.flags"),
    "ml_1m ncf": QualityCase(_ml_1m, "ncf.py", f"{TUNED}ml_1m_neumf.flags"),
}
for _name in ("din", "sim", "dien"):
    for _data_set in (data_sets.grocery, data_sets.musical):
        CASES[f"{_data_set.__name__} {_name}"] = QualityCase(
            *(_data_set, "sim.py", f"{TUNED}amazon_{_name}.flags"),
            f"--model_type={_name} --noevaluate_training_rows",
        )


def train(case: QualityCase, rows: Path, work: Path, flags: str, seed: int) -> list[float]:
    """Trains; returns the metric on the test split after the last epoch, and seconds."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        began = time.perf_counter()
        run(
            *(case.script, f"--dataset_path={rows}", f"--run_dir={folder}", f"--seed={seed}"),
            *("--eval_mapping=test", "--print_freq=100000", *case.flags.split(), *flags.split()),
        )
        seconds = time.perf_counter() - began
        summary = summary_of(Path(folder))
    return [next(summary[name] for name in METRICS if name in summary), seconds]


def evaluate_simple_model(case: QualityCase, rows: Path) -> float:
    """Returns the metric of popularity or of a logistic regression."""
    if case.script == "ncf.py":
        return simple_models.popularity(rows)[0]
    if case.script == "sim.py":
        return simple_models.sequence_popularity(data_sets.parquet_of(rows), "test")
    return simple_models.evaluate_linear_model(rows)


def measure(name: str, args: argparse.Namespace, results: dict) -> None:
    """Adds the results that are missing to a row of the table."""
    case = CASES[name]
    rows = case.prepare(args.data, args.work)
    if "simple" not in results:
        results["simple"] = evaluate_simple_model(case, rows)
    sides = {"none": "--preset=auto"}
    if case.tuned and not args.no_tuned:
        sides["tuned"] = case.tuned
    for side, flags in sides.items():
        runs = results.setdefault(side, [])
        for seed in range(len(runs) + 1, args.seeds + 1):
            runs.append(train(case, rows, args.work, flags, seed))
            print(name, side, "seed", seed, runs[-1], flush=True)


def results_table(results: dict[str, dict]) -> list[str]:
    def cells(runs: list[list[float]] | None) -> tuple[str, str]:
        if not runs:
            return "", ""
        values, seconds = zip(*runs, strict=True)
        return mean_and_range(values), f"{np.median(seconds):.0f}"

    rows = [
        (
            *(name, len(row["none"]), *cells(row["none"]), *cells(row.get("tuned"))),
            f"{row['simple']:.4f}",
        )
        for name, row in results.items()
    ]
    columns = ("data set and recipe", "seeds", "no flags", "s", "tuned flags", "s", "simple")
    return table(columns, rows)


def main() -> int:
    """Prepares, trains, evaluates and writes the page."""
    parser = study_parser(__doc__, seeds=3)
    parser.add_argument("--work", type=Path, required=True, help="folder of prepared data sets")
    parser.add_argument("--only", nargs="+", choices=list(CASES), help="rows of the table")
    parser.add_argument("--no_tuned", action="store_true", help="leave the tuned flags out")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    results = {}
    for name in args.only or CASES:
        path = args.work / f"{name.replace(' ', '_')}.json"
        results[name] = read_kept(path)
        try:
            measure(name, args, results[name])
        finally:
            keep(path, results[name])
    facts = [
        "AUC on the test split, of `ncf.py` HR@10: means over seeds (lowest, highest), and median "
        "seconds of the whole training command",
        "simple: popularity of the item (NCF, SIM, DIEN and DIN), else logistic regression on "
        "one-hot ids and numerical features",
    ]
    title, name = "Quality without flags", "default_settings"
    return study_page(title, name, facts, results_table(results)).finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
