"""Rows per second and peak memory of the Criteo preparation, end to end.

With several `--engines` (duckdb, spark), they run in turn and must leave the same files.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import preparations
from benchmarks.harness.preparations import Preparation, median_s, run

TARGET_ROWS_PER_S = 150_000  # on 2 cores
DAYS = 4


def generate(folder: Path, num_rows: int) -> tuple[object, ...]:
    days = ("--days", DAYS, "--rows_per_day", num_rows // DAYS)
    run("preproc.criteo.generate_logs", "--output", folder, *days)
    return ("--input", folder)


CRITEO = Preparation(
    name="preparation",
    title="Preparing Criteo logs",
    module="preproc.criteo",
    unit="rows",
    generate=generate,
    output_flag="--output",
    speed_flags=("--frequency_threshold", 15),
    memory_flags=("--frequency_threshold", 0),
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = preparations.parser_of(__doc__, ("duckdb",), count=1_000_000, memory_count=4_000_000)
    args = parser.parse_args(argv)
    page, runs = preparations.measure(CRITEO, args)
    rate = args.count / median_s(runs[args.engines[0]])
    page.judge(f"{rate:,.0f} rows/s", f"{TARGET_ROWS_PER_S:,}", rate >= TARGET_ROWS_PER_S)
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
