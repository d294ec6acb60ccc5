"""The preparation of reviews for SIM, DIEN and DIN by DuckDB and NVTabular, interleaved.

    make bench-sequence-preparation
    python -m benchmarks.sequence_preparation --output page.md

Each run is `python -m preproc.amazon_books` as a process of its own: wall time from start to end,
peak memory of it and of all that it starts. Every file of every run must be the same, or the
benchmark stops. Then DuckDB alone, under `--memory_limit`, on a log and on one ten times as long.

Engines read lines, leave out, number, join and sort. Histories, negatives and Parquet files are
then made by the same code for both, so the page also compares what is the engines' own.

The exit code is 1 if DuckDB is not 10 times as fast as NVTabular, or if ten times the log takes
more memory than the limit.
"""

import argparse
import re
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import preparation_runs
from benchmarks.harness.preparation_runs import met
from benchmarks.harness.process_tree import module, run
from benchmarks.preparation_engines import checksum

DUCKDB, NVTABULAR = "duckdb", "nvtabular"
NAMES = {DUCKDB: "DuckDB", NVTABULAR: "NVTabular (pandas)"}
TARGET_RATIO = 10.0  # DuckDB relative to NVTabular
_PARTS = ("read", "number", "rows")
_STAGE = re.compile(r"^(\w+).*, ([0-9.]+) s$", re.MULTILINE)
_NOTE = (
    "Default flags; all files of all runs are the same, byte for byte. `read`: the engine starts, "
    "and makes events\nof raw lines; `number`: leave out, number, join, sort; `rows`: histories, "
    "negatives and files, the same\ncode for both. Python's start and the removal of files are the "
    "rest of the seconds."
)


@dataclass(frozen=True)
class StagedRun:
    """One preparation: seconds in all and by stage, as it logs them; peak memory."""

    elapsed_s: float
    read_s: float
    number_s: float
    rows_s: float
    peak_mib: float
    checksum: str

    @property
    def own_s(self) -> float:
        """Without the rows, which no engine makes."""
        return self.elapsed_s - self.rows_s


def prepare(log: Path, work: Path, *flags) -> StagedRun:
    """Prepares a log, measures, and removes the data set.

    Raises:
        RuntimeError: the preparation fails; the message holds its output.
    """
    output, messages = work / "prepared", work / "said.txt"
    command = module(
        "preproc.amazon_books", "--amazon_dataset_path", log, "--output_path", output, *flags
    )
    try:
        elapsed_s, peak_mib = run(["sh", "-c", 'exec "$@" 2> "$0"', messages, *command])
    except RuntimeError as error:
        raise RuntimeError(f"{error}\n{messages.read_text()}") from error
    read_s, number_s, rows_s = stages(messages.read_text())
    digest = checksum(output)
    shutil.rmtree(output)
    return StagedRun(elapsed_s, read_s, number_s, rows_s, peak_mib, digest)


def stages(messages: str) -> tuple[float, float, float]:
    """Reads the log of a preparation: seconds for reading, numbering, rows."""
    by_name = {}
    for name, seconds in _STAGE.findall(messages):
        by_name[name] = by_name.get(name, 0.0) + float(seconds)
    read_s, number_s = by_name.pop("staged"), by_name.pop("kept")
    return read_s, number_s, sum(by_name.values())


def compare(log: Path, work: Path, repeats: int) -> dict[str, list[StagedRun]]:
    """Both engines in turn, the order changing from round to round.

    Raises:
        RuntimeError: two runs left different files.
    """
    return preparation_runs.compare(
        (DUCKDB, NVTABULAR), lambda engine: prepare(log, work, "--engine", engine), repeats, "files"
    )


def median(runs: list[StagedRun], what: str) -> float:
    return statistics.median(getattr(each, what) for each in runs)


def table(runs: dict[str, list[StagedRun]], num_reviews: int) -> list[str]:
    """The comparison as Markdown, seconds as median [least, most]."""
    lines = [
        "| engine | seconds | reviews per second | read | number | rows | peak memory, MiB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for engine, its_runs in runs.items():
        seconds = [each.elapsed_s for each in its_runs]
        middle = statistics.median(seconds)
        parts = " | ".join(f"{median(its_runs, f'{what}_s'):.1f}" for what in _PARTS)
        lines.append(
            f"| {NAMES[engine]} | {middle:.1f} [{min(seconds):.1f}, {max(seconds):.1f}] | "
            f"{num_reviews / middle:,.0f} | {parts} | "
            f"{max(each.peak_mib for each in its_runs):,.0f} |"
        )
    return lines


def growth(work: Path, num_reviews: int, limit_mib: int) -> tuple[list[str], float]:
    """DuckDB on a log and on one ten times as long: Markdown, and the higher peak memory in MiB."""
    lines = ["| reviews | log, MB | seconds | peak memory, MiB |", "| ---: | ---: | ---: | ---: |"]
    peaks = []
    for reviews in (num_reviews, 10 * num_reviews):
        log = generate(work / "growth", reviews)
        done = prepare(log, work, "--engine", DUCKDB, "--memory_limit", f"{limit_mib}MiB")
        peaks.append(done.peak_mib)
        lines.append(
            f"| {reviews:,} | {size_mb(log):,.0f} | {done.elapsed_s:.1f} | {done.peak_mib:,.0f} |"
        )
        shutil.rmtree(log)
    return lines, max(peaks)


def generate(folder: Path, num_reviews: int) -> Path:
    """Writes reviews and metadata."""
    flags = ["--output", folder, "--reviews", num_reviews]
    run(module("preproc.amazon_books.generate_reviews", *flags))
    return folder


def size_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.iterdir()) / 1e6


def main(argv: list[str] | None = None) -> int:
    """Prints the page; the exit status is 0 if the targets are met."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sequence_preparation", allow_abbrev=False
    )
    parser.add_argument("--reviews", type=int, default=1_000_000, help="default 1,000,000")
    parser.add_argument("--growth_reviews", type=int, default=200_000, help="and ten times it")
    parser.add_argument(
        "--memory_limit_mib", type=int, default=512, help="of the second part (default 512)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--work_dir", help="folder for the temporary files (default: the system's)")
    parser.add_argument("--output", help="also write the page to this file")
    flags = parser.parse_args(argv)
    packages = ("duckdb", "nvtabular", "pandas", "dask", "pyarrow", "numpy")
    title = "Reviews for sequential recommenders, prepared by two engines"
    page = preparation_runs.head(title, "benchmarks.sequence_preparation", argv, packages)
    with tempfile.TemporaryDirectory(dir=flags.work_dir) as work:
        work = Path(work)
        log = generate(work / "log", flags.reviews)
        page += ["", f"## {flags.reviews:,} generated reviews ({size_mb(log):,.0f} MB)", ""]
        runs = compare(log, work, flags.repeats)
        shutil.rmtree(log)
        page += [_NOTE, "", *table(runs, flags.reviews)]
        lines, peak_mib = growth(work, flags.growth_reviews, flags.memory_limit_mib)
        page += ["", f"## Ten times the log, DuckDB, --memory_limit {flags.memory_limit_mib}MiB"]
        page += ["", *lines]
    ratio = median(runs[NVTABULAR], "elapsed_s") / median(runs[DUCKDB], "elapsed_s")
    own = median(runs[NVTABULAR], "own_s") / median(runs[DUCKDB], "own_s")
    is_fast, is_bounded = ratio >= TARGET_RATIO, peak_mib <= flags.memory_limit_mib
    page += [
        "",
        f"- DuckDB is {ratio:.1f} times as fast as NVTabular; target {TARGET_RATIO:g}: "
        f"{met(is_fast)}",
        f"- without the rows, which the same code makes for both, {own:.1f} times",
        f"- ten times the log takes {peak_mib:,.0f} MiB; target {flags.memory_limit_mib}: "
        f"{met(is_bounded)}",
    ]
    return preparation_runs.finish(page, is_fast and is_bounded, flags.output)


if __name__ == "__main__":
    sys.exit(main())
