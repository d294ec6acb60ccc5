"""The preparation of ratings for NCF by DuckDB and NumPy, and by pandas, interleaved.

    make bench-interaction-preparation
    python -m benchmarks.interaction_preparation --output page.md

Each run is a process of its own: wall time from start to end, peak memory of it and of all that it
starts. Both sides must train on the same rows and ask the same questions, or the benchmark stops;
negatives are each side's own. Then ours alone under `--memory_limit_mib`, with the same files.

The exit code is 1 if ours takes more memory than the limit or, of 20 million ratings, longer than
120 seconds; of another number of ratings time is not judged.
"""

import argparse
import hashlib
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness import preparation_runs
from benchmarks.harness.preparation_runs import met
from benchmarks.harness.process_tree import module, run
from preproc.movielens.generate_ratings import RATINGS

OURS, PANDAS = "ours", "pandas"
NAMES = {OURS: "preproc.movielens (DuckDB, NumPy)", PANDAS: "pandas, NumPy"}
TARGET_S, TARGET_RATINGS = 120.0, 20_000_000
SERIES_LENGTH = 101  # both sides' default: a positive and 100 negatives
_NOTE = (
    "Default flags. Both train on the same rows and ask the same questions. Not in the peer: "
    "negatives that differ\nwithin a question, vocabularies, a feature spec, checks of lines."
)


@dataclass(frozen=True)
class PreparationRun:
    """One preparation: seconds, peak memory, and what its rows are but for the negatives."""

    elapsed_s: float
    peak_mib: float
    checksum: str


def prepare(side: str, log: Path, work: Path, *flags) -> PreparationRun:
    """Prepares a log, measures, and removes the data set."""
    output = work / "prepared"
    if side == OURS:
        command = module("preproc.movielens", "--input", log, "--output", output, *flags)
    else:
        command = module("benchmarks.pandas_interactions", log, output)
    elapsed_s, peak_mib = run(command)
    digest = checksum(output)
    shutil.rmtree(output)
    return PreparationRun(elapsed_s, peak_mib, digest)


def checksum(folder: Path) -> str:
    """SHA-256 of the training rows, and of the user and the positive of each question."""
    digest = hashlib.sha256()
    for name in ("user.bin", "item.bin"):
        digest.update((folder / "train" / name).read_bytes())
        series = np.fromfile(folder / "test" / name, np.int32).reshape(-1, SERIES_LENGTH)
        digest.update(series[:, 0].tobytes())
    return digest.hexdigest()


def compare(log: Path, work: Path, repeats: int) -> dict[str, list[PreparationRun]]:
    """Both sides in turn, the order changing from round to round.

    Raises:
        RuntimeError: two runs left different rows.
    """
    return preparation_runs.compare(
        (OURS, PANDAS), lambda side: prepare(side, log, work), repeats, "rows"
    )


def median_s(runs: list[PreparationRun]) -> float:
    return statistics.median(each.elapsed_s for each in runs)


def table(runs: dict[str, list[PreparationRun]], num_ratings: int) -> list[str]:
    """The comparison as Markdown, seconds as median [least, most]."""
    lines = [
        "| preparation | seconds | ratings per second | peak memory, MiB |",
        "| --- | ---: | ---: | ---: |",
    ]
    for side, its_runs in runs.items():
        seconds = [each.elapsed_s for each in its_runs]
        lines.append(
            f"| {NAMES[side]} | {median_s(its_runs):.1f} [{min(seconds):.1f}, {max(seconds):.1f}] "
            f"| {num_ratings / median_s(its_runs):,.0f} | "
            f"{max(each.peak_mib for each in its_runs):,.0f} |"
        )
    return lines


def main(argv: list[str] | None = None) -> int:
    """Prints the page; the exit status is 0 if the targets are met."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.interaction_preparation", allow_abbrev=False
    )
    parser.add_argument("--ratings", type=int, default=TARGET_RATINGS, help="default 20,000,000")
    parser.add_argument(
        "--memory_limit_mib", type=int, default=1024, help="of the last run (default 1024)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--work_dir", help="folder for the temporary files (default: the system's)")
    parser.add_argument("--output", help="also write the page to this file")
    flags = parser.parse_args(argv)
    packages = ("duckdb", "pandas", "pyarrow", "numpy")
    module_name = "benchmarks.interaction_preparation"
    page = preparation_runs.head("Ratings for NCF, prepared", module_name, argv, packages)
    with tempfile.TemporaryDirectory(dir=flags.work_dir) as work:
        work = Path(work)
        made_s, _ = run(
            module(
                "preproc.movielens.generate_ratings", "--output", work, "--ratings", flags.ratings
            )
        )
        log = work / RATINGS
        size_mb = log.stat().st_size / 1e6
        page += [
            "",
            f"## {flags.ratings:,} generated ratings ({size_mb:,.0f} MB, {made_s:.0f} s)",
            "",
        ]
        runs = compare(log, work, flags.repeats)
        limited = prepare(OURS, log, work, "--memory_limit", f"{flags.memory_limit_mib}MiB")
    ours_s = median_s(runs[OURS])
    is_judged = flags.ratings == TARGET_RATINGS
    is_fast, is_bounded = ours_s <= TARGET_S, limited.peak_mib <= flags.memory_limit_mib
    page += [_NOTE, "", *table(runs, flags.ratings), ""]
    page += [
        f"- {ours_s:.1f} s; target for 20 million ratings {TARGET_S:g}: "
        + (met(is_fast) if is_judged else "not judged"),
        f"- {median_s(runs[PANDAS]) / ours_s:.1f} times as fast as pandas",
        f"- with --memory_limit {flags.memory_limit_mib}MiB: {limited.elapsed_s:.1f} s, "
        f"{limited.peak_mib:,.0f} MiB; target {flags.memory_limit_mib}: {met(is_bounded)}",
    ]
    if limited.checksum != runs[OURS][0].checksum:
        raise RuntimeError("different rows under the memory limit")
    return preparation_runs.finish(page, (is_fast or not is_judged) and is_bounded, flags.output)


if __name__ == "__main__":
    sys.exit(main())
