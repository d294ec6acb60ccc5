"""The Criteo preparation by DuckDB and Spark, on the same log, interleaved.

Every file of every run must be the same, or the benchmark stops. Then DuckDB alone, under
`--memory_limit`, on a log and on one ten times as long.

With `--earlier FOLDER`, Spark alone is compared with itself in another checkout and, where the
environment variable NVIDIA_RECIPE names a folder with it, with NVIDIA's preproc/spark_data_utils.py
(counting, and encoding of training rows and of those of the last day).
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness import preparations
from benchmarks.harness.preparations import ROOT, PreparationRun, median_s, run, size_mb
from benchmarks.harness.report import Page, command
from benchmarks.harness.spark_cluster import spark_cluster
from dataloading.engines import environment

REAL_ROWS = ROOT.parent / "shared/data/criteo_kaggle/train_10000.txt"
TARGET_RATIO = 8  # DuckDB relative to Spark, local[2]
TARGET_GROWTH = 1.3  # of the peak memory, for ten times the rows
DUCKDB, SPARK, CLUSTER = "DuckDB", "Spark local[2]", "Spark cluster"
FLAGS = {
    DUCKDB: (),
    SPARK: ("--engine", "spark", "--master", "local[2]"),
    CLUSTER: ("--engine", "spark", "--master"),
}
EARLIER, NVIDIA = "Spark local[2], earlier", "NVIDIA's spark_data_utils.py, local[2]"
TARGET_SPARK_RATIO = 0.5  # relative to the earlier version
TARGET_SMALL_S = 15  # of 10,000 rows
# DuckDB, the fastest, runs with each of the others.
ORDER = (DUCKDB, SPARK, DUCKDB, CLUSTER)


def prepare(log: Path, work: Path, *flags: object, **options) -> PreparationRun:
    return preparations.prepare(work, "preproc.criteo", "--input", log, *flags, **options)


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


def nvidia_script() -> Path | None:
    """Returns NVIDIA's program, where the environment names its folder."""
    script = Path(os.environ.get("NVIDIA_RECIPE", "")) / "preproc" / "spark_data_utils.py"
    return script if "NVIDIA_RECIPE" in os.environ and script.is_file() else None


def run_nvidia(script: Path, log: Path, work: Path) -> PreparationRun:
    """Runs the commands of NVIDIA's run_spark_cpu.sh on a log of 3 days, without splitting."""
    output = work / "nvidia"
    models = ("--model_folder", output / "models", "--write_mode", "overwrite", "--low_mem")
    train = ("--output_folder", output / "train", "--model_size_file", output / "model_size.json")
    last = ("--output_folder", output / "test", "--output_ordering", "input")
    commands = (
        ("generate_models", "0-2", ("--frequency_limit", 15)),
        ("transform", "0-1", train),
        ("transform", "2-2", last),
    )
    elapsed_s = peak_mib = cpu_s = 0.0
    submit = environment.packages_folder() / "pyspark" / "bin" / "spark-submit"
    for mode, days, flags in commands:
        arguments = (script, "--mode", mode, "--input_folder", log, "--days", days, *models, *flags)
        settings = ("--master", "local[2]", "--driver-memory", "3g")
        result = preparations.run_command(
            [submit, *settings, *arguments], variables={"PYSPARK_PYTHON": str(environment.python())}
        )
        elapsed_s, cpu_s = elapsed_s + result.elapsed_s, cpu_s + result.cpu_s
        peak_mib = max(peak_mib, result.peak_mib)
    shutil.rmtree(output)
    return PreparationRun(elapsed_s, peak_mib, cpu_s=cpu_s)


def compare_spark(page: Page, args: argparse.Namespace, work: Path) -> None:
    """Compares Spark with an earlier version and NVIDIA's program, and times 10,000 rows."""
    script = nvidia_script()
    log = generate(work / "log", args.rows_per_day)
    flags = ("--frequency_threshold", 15, *FLAGS[SPARK])
    runs: dict[str, list[PreparationRun]] = {SPARK: [], EARLIER: [], NVIDIA: []}
    for _ in range(args.repeats):
        for side, root in ((SPARK, ROOT), (EARLIER, args.earlier)):
            runs[side].append(prepare(log, work, *flags, root=root))
            print(f"{side}: {runs[side][-1].elapsed_s:.1f} s", file=sys.stderr)
        if script is not None:
            runs[NVIDIA].append(run_nvidia(script, log, work))
    if len({each.checksum for side in (SPARK, EARLIER) for each in runs[side]}) != 1:
        raise RuntimeError("different files")
    shutil.rmtree(log)
    num_rows = 3 * args.rows_per_day
    cpu = {"processor time, s": lambda each: float(np.median([run.cpu_s for run in each]))}
    ran = {side: each for side, each in runs.items() if each}
    page.add(
        f"3 days of {args.rows_per_day:,} rows",
        *preparations.table(ran, "rows", num_rows, cpu),
    )
    small = generate(work / "small", 3_334)
    small_runs = {SPARK: [prepare(small, work, *flags) for _ in range(args.repeats)]}
    page.add("10,002 rows in 3 days", *preparations.table(small_runs, "rows", 10_002, cpu))
    ratio = median_s(runs[SPARK]) / median_s(runs[EARLIER])
    text = f"{ratio:.2f} times the time of the earlier version"
    page.judge(text, TARGET_SPARK_RATIO, ratio <= TARGET_SPARK_RATIO)
    if script is None:
        page.judge("NVIDIA's spark_data_utils.py was not there: NVIDIA_RECIPE names no folder")
    else:
        ratio = median_s(runs[SPARK]) / median_s(runs[NVIDIA])
        page.judge(f"{ratio:.2f} times the time of NVIDIA's program", 1, ratio <= 1)
    seconds = median_s(small_runs[SPARK])
    page.judge(f"10,002 rows take {seconds:.1f} s", TARGET_SMALL_S, seconds <= TARGET_SMALL_S)


def main(argv: Sequence[str] | None = None) -> int:
    parser = preparations.parser_of(__doc__, repeats=2)
    parser.add_argument("--rows_per_day", type=int, default=1_000_000, help="of 3 days")
    parser.add_argument("--growth_rows_per_day", type=int, default=200_000, help="and ten times it")
    parser.add_argument("--memory_limit", default="512MiB", help="of the second part")
    real_rows = REAL_ROWS if REAL_ROWS.exists() else None
    parser.add_argument(
        "--rows_file", type=Path, default=real_rows, help="a single raw file, compared as well"
    )
    parser.add_argument("--earlier", type=Path, help="checkout of an earlier version, for Spark")
    args = parser.parse_args(argv)
    packages = preparations.versions("duckdb", "pyarrow")
    engines = preparations.engine_versions("pyspark", "pyarrow")
    title = "The Criteo preparation by two engines"
    page = Page(title, [command("preparation_engines", args)], [packages, engines])
    with tempfile.TemporaryDirectory(dir=args.work_dir) as folder:
        work = Path(folder)
        if args.earlier:
            compare_spark(page, args, work)
            return page.finish(args.output)
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
