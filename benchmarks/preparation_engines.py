"""The Criteo preparation by DuckDB, Spark and NVTabular, on the same log, interleaved.

    make bench-engines
    python -m benchmarks.preparation_engines --output benchmarks/results/engines_CPU_YYYYMM.md

Each run is `python -m preproc.criteo` as a process of its own: wall time from start to end, peak
memory of it and of all that it starts. Every file of every run must be the same, or the benchmark
stops. Then DuckDB alone, under `--memory_limit`, on a log and on one ten times as long.

The exit code is 1 if DuckDB is not 8 times as fast as Spark with local[2], or if ten times the log
takes more than 1.3 times the memory.
"""

import argparse
import hashlib
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import preparation_runs
from benchmarks.harness.preparation_runs import met
from benchmarks.harness.process_tree import ROOT, module, run
from benchmarks.spark_cluster import SparkCluster

REAL_ROWS = ROOT.parent / "shared/data/criteo_kaggle/train_10000.txt"
TARGET_RATIO = 8.0  # DuckDB relative to Spark, local[2]
TARGET_GROWTH = 1.3  # of the peak memory, for ten times the rows
_CLUSTER_NOTE = (
    "Threshold 15; all files of all runs are the same. The cluster: one master and two workers of "
    "one core each, its processes counted in the memory."
)
DUCKDB, NVTABULAR, SPARK, CLUSTER = "DuckDB", "NVTabular", "Spark local[2]", "Spark cluster"


def checksum(folder: Path) -> str:
    """SHA-256 over names and contents of all files, the feature spec included."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with open(path, "rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{path.relative_to(folder)} {content}\n".encode())
    return total.hexdigest()


def prepare(log: Path, output: Path, *flags, others: list[int] = ()) -> tuple[float, float, str]:
    """Seconds, peak MiB and the checksum of one preparation, which is removed again."""
    command = module("preproc.criteo", "--input", log, "--output", output, *flags)
    elapsed_s, peak_mib = run(command, others)
    digest = checksum(output)
    shutil.rmtree(output)
    return elapsed_s, peak_mib, digest


def compare(log: Path, work: Path, flags: list, repeats: int) -> dict[str, list]:
    """(seconds, MiB) of each side and round; DuckDB, the fastest, runs before each of the others.

    Raises:
        RuntimeError: two runs left different files.
    """
    sides = {
        NVTABULAR: ["--engine", "nvtabular"],
        SPARK: ["--engine", "spark", "--master", "local[2]"],
        CLUSTER: ["--engine", "spark"],
    }
    results = {DUCKDB: [], **{name: [] for name in sides}}
    checksums = {}
    for turn in range(repeats):
        order = list(sides) if turn % 2 == 0 else list(sides)[::-1]
        for name in order:
            results[DUCKDB].append(prepare(log, work / "out", *flags))
            if name == CLUSTER:
                with SparkCluster(work) as cluster:
                    with_master = [*sides[name], "--master", cluster.url]
                    result = prepare(log, work / "out", *flags, *with_master, others=cluster.pids)
            else:
                result = prepare(log, work / "out", *flags, *sides[name])
            results[name].append(result)
            print(f"round {turn}: {name}: {result[0]:.1f} s, {result[1]:.0f} MiB", file=sys.stderr)
    for name, runs in results.items():
        checksums |= {digest: name for _, _, digest in runs}
    if len(checksums) != 1:
        raise RuntimeError(f"different files: {checksums}")
    return {name: [(s, mib) for s, mib, _ in runs] for name, runs in results.items()}


def table(results: dict[str, list], num_rows: int) -> list[str]:
    """The comparison as Markdown, seconds as median [least, most]."""
    fastest = statistics.median(s for s, _ in results[DUCKDB])
    lines = [
        "| engine | seconds | rows per second | times DuckDB's | peak memory, MiB |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, runs in results.items():
        seconds = [s for s, _ in runs]
        median = statistics.median(seconds)
        lines.append(
            f"| {name} | {median:.1f} [{min(seconds):.1f}, {max(seconds):.1f}] | "
            f"{num_rows / median:,.0f} | {median / fastest:.1f} | "
            f"{max(mib for _, mib in runs):,.0f} |"
        )
    return lines


def growth(work: Path, rows_per_day: int, limit: str, repeats: int) -> tuple[list[str], float]:
    """DuckDB's peak memory on a log and on one ten times as long: Markdown, and their ratio."""
    peaks = {}
    lines = ["| rows | log, MB | seconds | peak memory, MiB |", "| ---: | ---: | ---: | ---: |"]
    for rows in (rows_per_day, 10 * rows_per_day):
        log = generate(work / "growth", rows)
        flags = ["--frequency_threshold", 0, "--memory_limit", limit]
        runs = [prepare(log, work / "out", *flags) for _ in range(repeats)]
        peaks[rows] = max(mib for _, mib, _ in runs)
        size = sum(path.stat().st_size for path in log.iterdir())
        seconds = statistics.median(s for s, _, _ in runs)
        lines.append(f"| {3 * rows:,} | {size / 1e6:,.0f} | {seconds:.1f} | {peaks[rows]:,.0f} |")
        shutil.rmtree(log)
    return lines, peaks[10 * rows_per_day] / peaks[rows_per_day]


def generate(folder: Path, rows_per_day: int) -> Path:
    """Writes a log of 3 days."""
    flags = ["--output", folder, "--days", 3, "--rows_per_day", rows_per_day]
    run(module("preproc.criteo.generate_logs", *flags))
    return folder


def main(argv: list[str] | None = None) -> int:
    """Prints the page; the exit status is 0 if the targets are met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.preparation_engines")
    parser.add_argument("--rows_per_day", type=int, default=1_000_000, help="of 3 days")
    parser.add_argument("--growth_rows_per_day", type=int, default=200_000, help="and ten times it")
    parser.add_argument("--memory_limit", default="512MiB", help="of the second part")
    parser.add_argument("--repeats", type=int, default=2, help="rounds")
    parser.add_argument(
        "--rows_file",
        default=str(REAL_ROWS) if REAL_ROWS.exists() else None,
        help="a single raw file, to be compared on as well (default: the Kaggle rows, where they "
        "are)",
    )
    parser.add_argument("--work_dir", help="folder for the temporary files (default: the system's)")
    parser.add_argument("--output", help="also write the page to this file")
    flags = parser.parse_args(argv)
    packages = ("duckdb", "pyspark", "nvtabular", "pandas", "pyarrow")
    title = "The Criteo preparation by three engines"
    page = preparation_runs.head(title, "benchmarks.preparation_engines", argv, packages)
    with tempfile.TemporaryDirectory(dir=flags.work_dir) as work:
        work = Path(work)
        log = generate(work / "log", flags.rows_per_day)
        size = sum(path.stat().st_size for path in log.iterdir())
        results = compare(log, work, ["--frequency_threshold", 15], flags.repeats)
        shutil.rmtree(log)
        page += ["", f"## 3 days of {flags.rows_per_day:,} rows ({size / 1e6:,.0f} MB)", ""]
        page += [_CLUSTER_NOTE, ""]
        page += table(results, 3 * flags.rows_per_day)
        if flags.rows_file:
            single = ["--frequency_threshold", 2, "--holdout_fraction", 0.2]
            small = compare(Path(flags.rows_file), work, single, 1)
            with open(flags.rows_file, "rb") as file:
                num_rows = sum(1 for _ in file)
            page += ["", f"## {Path(flags.rows_file).name}, {num_rows:,} rows", ""]
            page += ["Threshold 2; all files are the same. Starting takes most of the time.", ""]
            page += table(small, num_rows)
        lines, ratio = growth(work, flags.growth_rows_per_day, flags.memory_limit, flags.repeats)
        page += ["", f"## Ten times the log, DuckDB, --memory_limit {flags.memory_limit}", ""]
        page += ["Every value kept (threshold 0).", "", *lines]
    medians = {name: statistics.median(s for s, _ in runs) for name, runs in results.items()}
    faster = medians[SPARK] / medians[DUCKDB]
    page += [
        "",
        f"- DuckDB is {faster:.1f} times as fast as Spark local[2]; target {TARGET_RATIO:g}: "
        f"{met(faster >= TARGET_RATIO)}",
        f"- ten times the rows take {ratio:.2f} times the memory; target {TARGET_GROWTH}: "
        f"{met(ratio <= TARGET_GROWTH)}",
    ]
    all_met = faster >= TARGET_RATIO and ratio <= TARGET_GROWTH
    return preparation_runs.finish(page, all_met, flags.output)


if __name__ == "__main__":
    sys.exit(main())
