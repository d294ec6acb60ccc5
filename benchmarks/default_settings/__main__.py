"""Test AUC of trainings without flags compared with logistic regression and LightGBM.

python -m benchmarks.default_settings --tables FOLDER --out PAGE

Each CSV file of the folder is a table with a column `label`; a column `t_` is not a feature. Each
split of it is a data set of `preproc.transcode` without flags, on which the recipes train without
flags but paths and a seed. The simple models are those of `recipes.baseline` on the same data set.
Results are kept in --work: a repeated command resumes, and another version of the toolkit needs
another folder.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path

from benchmarks.default_settings.cells import SIMPLE, measure_model, measure_simple
from benchmarks.default_settings.results import (
    Results,
    judge,
    results_table,
    seconds_table,
)
from benchmarks.harness.result_page import Page, command, parse
from config.command import CommandOptions
from config.flag import flag


@dataclass(frozen=True)
class SettingsOptions(CommandOptions):
    """Flags of the benchmark."""

    tables: Path = flag(MISSING, "folder of CSV files", metavar="FOLDER")
    splits: int = flag(3, "random splits of each table", at_least=1)
    models: tuple[str, ...] = flag(("dlrm", "dcnv2"), "recipes, comma-separated")
    only: tuple[str, ...] = flag((), "names of tables, comma-separated (default: all)")
    flags: str = flag("", "flags of all trainings, in quotes")
    work: Path = flag(
        Path("runs/default_settings"), "folder of data sets and results that are kept"
    )
    out: Path | None = flag(None, "the page, Markdown", metavar="PAGE")


def tables_of(folder: Path, only: Sequence[str]) -> list[Path]:
    """Returns the CSV files, in the order of their sizes."""
    files = {file.stem: file for file in folder.glob("*.csv")}
    missing = [name for name in only if name not in files]
    if missing or not files:
        raise SystemExit(
            f"--tables {folder}: expected {', '.join(missing) or 'files'} (.csv), got "
            f"{', '.join(sorted(files)) or 'none'}"
        )
    return sorted((files[name] for name in only or files), key=lambda file: file.stat().st_size)


def measure(args: SettingsOptions) -> Results:
    results: dict[str, dict[str, list]] = {}
    for table in tables_of(args.tables, args.only):
        by_model = results[table.stem] = {name: [] for name in (*SIMPLE, *args.models)}
        for split in range(args.splits):
            for name, cell in measure_simple(table, split, args.work).items():
                by_model[name].append(cell)
            for model in args.models:
                by_model[model].append(
                    measure_model(table, split, model, args.flags.split(), args.work)
                )
            aucs = (f"{name} {cells[-1].auc:.4f}" for name, cells in by_model.items())
            print(f"{table.stem}, split {split}: {', '.join(aucs)}", flush=True)
    return results


def main() -> int:
    """Runs missing measurements and writes the page; returns 1 if a target is missed."""
    args = parse(SettingsOptions, None, "default_settings", str(__doc__))
    results = measure(args)
    cells = [c for by_model in results.values() for cells in by_model.values() for c in cells]
    commits = Counter(cell.commit for cell in cells)
    facts = [
        f"toolkit: {', '.join(f'{name} ({count} results)' for name, count in commits.items())}",
        f"random splits of each table: {args.splits}, into 80 % train, 10 % validation and 10 % "
        "test; means over them, and standard errors of the gaps within splits",
        "training by one command without flags but paths and a seed"
        + (f", and {args.flags}" if args.flags else "")
        + "; the kept checkpoint is evaluated once on the test rows",
        "logistic regression and LightGBM: `recipes.baseline` on the same prepared data sets",
        "gap: test AUC less that of the simple model with the higher mean on the table's test rows",
    ]
    page = Page(
        "Default settings compared with simple models", [command("default_settings", args)], facts
    )
    page.add("Test AUC", *results_table(results, args.models))
    text = "Median of the splits (largest), of the command with its start."
    page.add("Seconds per training", text, "", *seconds_table(results, args.models))
    for model in args.models:
        judge(page, results, model)
    return page.finish(args.out)


if __name__ == "__main__":
    sys.exit(main())
