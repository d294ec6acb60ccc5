"""The preparation of reviews for SIM, DIEN and DIN by DuckDB and NVTabular, interleaved.

Every file of every run must be the same, or the benchmark stops. Then DuckDB alone, under
`--memory_limit_mib`, on a log and on one ten times as long. Engines read lines, leave out, number,
join and sort. Histories, negatives and Parquet files are then made by the same code for both, so
the page also compares what is the engines' own.
"""

import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness import preparations
from benchmarks.harness.preparations import PreparationRun, median_s, run, size_mb
from benchmarks.harness.report import Page, command

DUCKDB, NVTABULAR = "duckdb", "nvtabular"
LEAST_RATIO = 1  # DuckDB relative to NVTabular
STAGES = ("read", "number", "rows")
_STAGE = re.compile(r"^(\w+).*, ([0-9.]+) s$", re.MULTILINE)


def prepare(log: Path, work: Path, *flags: object) -> PreparationRun:
    arguments = ("--amazon_dataset_path", log, *flags)
    return preparations.prepare(work, "preproc.amazon_books", *arguments, flag="--output_path")


def stages_s(log: str) -> dict[str, float]:
    """Seconds of `STAGES`, of the log of a preparation."""
    seconds = Counter()
    for name, elapsed_s in _STAGE.findall(log):
        seconds[{"staged": "read", "kept": "number"}.get(name, "rows")] += float(elapsed_s)
    return {name: seconds[name] for name in STAGES}


def stage_s(runs: Sequence[PreparationRun], name: str) -> float:
    return float(np.median([stages_s(each.log)[name] for each in runs]))


def cpu_s(runs: Sequence[PreparationRun]) -> float:
    """Median processor seconds: on a machine with other work, seconds depend on that."""
    return float(np.median([each.cpu_s for each in runs]))


def own_s(runs: Sequence[PreparationRun]) -> float:
    """Median seconds without the rows, which no engine makes."""
    return float(np.median([each.elapsed_s - stages_s(each.log)["rows"] for each in runs]))


def compare(log: Path, work: Path, repeats: int) -> dict[str, list[PreparationRun]]:
    sides = (DUCKDB, NVTABULAR)
    return preparations.compare(
        sides, lambda engine: prepare(log, work, "--engine", engine), repeats, "files"
    )


def generate(folder: Path, num_reviews: int) -> Path:
    """Writes reviews and metadata."""
    run("preproc.amazon_books.generate_reviews", "--output", folder, "--reviews", num_reviews)
    return folder


def main(argv: Sequence[str] | None = None) -> int:
    parser = preparations.parser_of(__doc__, repeats=3)
    parser.add_argument("--reviews", type=int, default=1_000_000)
    parser.add_argument("--growth_reviews", type=int, default=200_000, help="and ten times it")
    parser.add_argument("--memory_limit_mib", type=int, default=512, help="of the second part")
    args = parser.parse_args(argv)
    packages = [
        preparations.versions("duckdb", "pyarrow", "numpy"),
        preparations.engine_versions("nvtabular", "pandas", "dask", "pyarrow", "numpy"),
    ]
    title = "Reviews for sequential recommenders, prepared by two engines"
    commands = [command("sequence_preparation", args)]
    page, limit_mib = Page(title, commands, packages), args.memory_limit_mib
    with tempfile.TemporaryDirectory(dir=args.work_dir) as folder:
        work = Path(folder)
        log = generate(work / "log", args.reviews)
        runs = compare(log, work, args.repeats)
        columns = {name: lambda each, name=name: stage_s(each, name) for name in STAGES}
        columns["processor time, s"] = cpu_s
        lines = preparations.table(runs, "reviews", args.reviews, columns)
        name = f"{args.reviews:,} generated reviews ({size_mb(log):,.0f} MB)"
        page.add(name, *lines)
        shutil.rmtree(log)
        limited = ("--engine", DUCKDB, "--memory_limit", f"{limit_mib}MiB")
        lines, peaks = preparations.growth(
            "reviews",
            (args.growth_reviews, 10 * args.growth_reviews),
            lambda reviews: generate(work / "growth", reviews),
            lambda log: [prepare(log, work, *limited)],
        )
    page.add(f"Ten times the log, DuckDB, --memory_limit {limit_mib}MiB", *lines)
    ratio = median_s(runs[NVTABULAR]) / median_s(runs[DUCKDB])
    text = f"DuckDB is {ratio:.1f} times as fast as NVTabular"
    page.judge(text, LEAST_RATIO, ratio >= LEAST_RATIO)
    own = own_s(runs[NVTABULAR]) / own_s(runs[DUCKDB])
    page.judge(f"without the rows, which the same code makes for both, {own:.1f} times")
    processor = cpu_s(runs[NVTABULAR]) / cpu_s(runs[DUCKDB])
    page.judge(f"by processor time, {processor:.1f} times")
    text = f"ten times the log takes {max(peaks):,.0f} MiB"
    page.judge(text, limit_mib, max(peaks) <= limit_mib)
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
