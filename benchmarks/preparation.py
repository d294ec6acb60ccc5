"""Rows per second and peak memory of the Criteo preparation, end to end.

Memory is the largest resident size of `python -m preproc.criteo` as the kernel counts it: of every
value kept, under a small `--memory_limit`.
"""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import preparations
from benchmarks.harness.preparations import PreparationRun, median_s, run, size_mb
from benchmarks.harness.report import Page, command

TARGET_ROWS_PER_S = 150_000  # on 2 cores


def prepare(work: Path, num_rows: int, repeats: int, *flags: object) -> tuple[float, list]:
    """Prepares a log of 4 days; returns its size in MB and the runs."""
    log = work / "log"
    days = ("--days", 4, "--rows_per_day", num_rows // 4)
    run("preproc.criteo.generate_logs", "--output", log, *days)
    log_mb, runs = size_mb(log), []
    for _ in range(repeats):
        result = preparations.prepare(work, "preproc.criteo", "--input", log, *flags)
        runs.append(result._replace(peak_mib=result.resident_mib))
    shutil.rmtree(log)
    return log_mb, runs


def main(argv: Sequence[str] | None = None) -> int:
    parser = preparations.parser_of(__doc__, repeats=3)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the first part")
    parser.add_argument("--memory_rows", type=int, default=4_000_000, help="of the second part")
    parser.add_argument("--memory_limit_mib", type=int, default=512, help="of the second part")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args(argv)
    page = Page(
        "Preparing Criteo logs", [command("preparation", args)], [preparations.versions("duckdb")]
    )

    def add(what: str, num_rows: int, repeats: int, *flags: object) -> list[PreparationRun]:
        flags = ("--threads", args.threads, *flags)
        log_mb, runs = prepare(work, num_rows, repeats, *flags)
        seconds = ", ".join(f"{each.elapsed_s:.2f}" for each in runs)
        lines = preparations.table({" ".join(map(str, flags)): runs}, "rows", num_rows)
        page.add(f"{what}: {num_rows:,} rows ({log_mb:.0f} MB)", f"Seconds: {seconds}.", "", *lines)
        return runs

    limit_mib = args.memory_limit_mib
    with tempfile.TemporaryDirectory(dir=args.work_dir) as folder:
        work = Path(folder)
        fast = add("Speed", args.rows, args.repeats, "--frequency_threshold", 15)
        limit = ("--memory_limit", f"{limit_mib}MiB")
        (small,) = add("Memory", args.memory_rows, 1, "--frequency_threshold", 0, *limit)
    rate = args.rows / median_s(fast)
    page.judge(f"{rate:,.0f} rows/s", f"{TARGET_ROWS_PER_S:,}", rate >= TARGET_ROWS_PER_S)
    is_bounded = small.peak_mib <= limit_mib
    page.judge(f"peak memory {small.peak_mib:.0f} MiB", f"at most {limit_mib} MiB", is_bounded)
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
