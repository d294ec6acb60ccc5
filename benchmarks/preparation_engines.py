"""The Criteo preparation by DuckDB, Spark and NVTabular, on the same log, interleaved.

Every file of every run must be the same, or the benchmark stops. Then DuckDB alone, under
`--memory_limit`, on a log and on one ten times as long.
"""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import preparations
from benchmarks.harness.preparations import ROOT, PreparationRun, median_s, run, size_mb
from benchmarks.harness.report import Page, command
from benchmarks.harness.spark_cluster import spark_cluster

REAL_ROWS = ROOT.parent / "shared/data/criteo_kaggle/train_10000.txt"
TARGET_RATIO = 8  # DuckDB relative to Spark, local[2]
TARGET_GROWTH = 1.3  # of the peak memory, for ten times the rows
DUCKDB, NVTABULAR, SPARK, CLUSTER = "DuckDB", "NVTabular", "Spark local[2]", "Spark cluster"
FLAGS = {
    DUCKDB: (),
    NVTABULAR: ("--engine", "nvtabular"),
    SPARK: ("--engine", "spark", "--master", "local[2]"),
    CLUSTER: ("--engine", "spark", "--master"),
}
# DuckDB, the fastest, runs with each of the others.
ORDER = (DUCKDB, NVTABULAR, DUCKDB, SPARK, DUCKDB, CLUSTER)


def prepare(log: Path, work: Path, *flags: object, others: Sequence[int] = ()) -> PreparationRun:
    output = work / "out"
    arguments = ("--input", log, "--output", output, *flags)
    return preparations.prepare(output, "preproc.criteo", *arguments, others=others)


def compare(log: Path, work: Path, flags: Sequence[object], repeats: int) -> dict[str, list]:
    """Runs of all sides; raises RuntimeError where two left different files."""

    def prepare_side(name: str) -> PreparationRun:
        if name != CLUSTER:
            return prepare(log, work, *flags, *FLAGS[name])
        with spark_cluster(work) as (url, pids):
            return prepare(log, work, *flags, *FLAGS[name], url, others=pids)

    return preparations.compare(ORDER, prepare_side, repeats, "files")


def table(runs: dict[str, list], num_rows: int) -> list[str]:
    relative = {"times DuckDB's": lambda each: median_s(each) / median_s(runs[DUCKDB])}
    return preparations.table(runs, "rows", num_rows, relative)


def generate(folder: Path, rows_per_day: int) -> Path:
    """Writes a log of 3 days."""
    flags = ("--output", folder, "--days", 3, "--rows_per_day", rows_per_day)
    run("preproc.criteo.generate_logs", *flags)
    return folder


def main(argv: Sequence[str] | None = None) -> int:
    parser = preparations.parser_of(__doc__, repeats=2)
    parser.add_argument("--rows_per_day", type=int, default=1_000_000, help="of 3 days")
    parser.add_argument("--growth_rows_per_day", type=int, default=200_000, help="and ten times it")
    parser.add_argument("--memory_limit", default="512MiB", help="of the second part")
    real_rows = REAL_ROWS if REAL_ROWS.exists() else None
    parser.add_argument(
        "--rows_file", type=Path, default=real_rows, help="a single raw file, compared as well"
    )
    args = parser.parse_args(argv)
    packages = preparations.versions("duckdb", "pyarrow")
    engines = preparations.engine_versions("pyspark", "nvtabular", "pandas", "pyarrow")
    title = "The Criteo preparation by three engines"
    page = Page(title, [command("preparation_engines", args)], [packages, engines])
    with tempfile.TemporaryDirectory(dir=args.work_dir) as folder:
        work = Path(folder)
        log = generate(work / "log", args.rows_per_day)
        runs = compare(log, work, ("--frequency_threshold", 15), args.repeats)
        page.add(
            f"3 days of {args.rows_per_day:,} rows ({size_mb(log):,.0f} MB)",
            *table(runs, 3 * args.rows_per_day),
        )
        shutil.rmtree(log)
        if args.rows_file:
            flags = ("--frequency_threshold", 2, "--holdout_fraction", 0.2)
            small = compare(args.rows_file, work, flags, 1)
            num_rows = args.rows_file.read_bytes().count(b"\n")
            page.add(f"{args.rows_file.name}, {num_rows:,} rows", *table(small, num_rows))
        limited = ("--frequency_threshold", 0, "--memory_limit", args.memory_limit)
        lines, (peak, high_peak) = preparations.growth(
            "rows per day",
            (args.growth_rows_per_day, 10 * args.growth_rows_per_day),
            lambda rows: generate(work / "growth", rows),
            lambda log: [prepare(log, work, *limited) for _ in range(args.repeats)],
        )
    name = f"Ten times the log, DuckDB, --memory_limit {args.memory_limit}"
    page.add(name, *lines)
    ratio, growth = median_s(runs[SPARK]) / median_s(runs[DUCKDB]), high_peak / peak
    text = f"DuckDB is {ratio:.1f} times as fast as Spark local[2]"
    page.judge(text, TARGET_RATIO, ratio >= TARGET_RATIO)
    text = f"ten times the rows take {growth:.2f} times the memory"
    page.judge(text, TARGET_GROWTH, growth <= TARGET_GROWTH)
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
