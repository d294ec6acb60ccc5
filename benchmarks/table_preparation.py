"""A table of your own prepared by `preproc.transcode` and by a Polars script, interleaved.

The script holds all rows in memory: it is the least that a user would write for the same files.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from benchmarks.harness import preparations, report
from benchmarks.harness.preparations import PreparationRun, median_s
from benchmarks.harness.report import Page

TARGET_RATIO = 1.6  # seconds relative to the script's
PEER = Path(__file__).with_name("harness") / "polars_table.py"
FLAGS = ("--label", "click", "--split", "0.8,0.1,0.1")


def generate(path: Path, num_rows: int) -> None:
    """Writes a CSV file: users and items by power laws, a city, three numbers and a label."""
    rng = np.random.default_rng(0)
    cities = pa.array([f"city{i}" for i in range(50)])
    users = pa.array(rng.zipf(1.2, num_rows) % 200_000).cast(pa.string())
    columns = {
        "user": pa.compute.binary_join_element_wise("u", users, ""),
        "item": pa.array(rng.zipf(1.1, num_rows) % 1_000_000),
        "city": cities.take(pa.array(rng.integers(0, 50, num_rows))),
        "price": pa.array(rng.lognormal(3, 1, num_rows).round(2)),
        "age": pa.array(rng.integers(18, 90, num_rows)),
        "score": pa.array(rng.normal(0, 1, num_rows).round(4)),
        "click": pa.array((rng.random(num_rows) < 0.3).astype(int)),
    }
    pc.write_csv(pa.table(columns), path)


def main(argv: Sequence[str] | None = None) -> int:
    parser = report.parser_of(__doc__, count=5_000_000, memory_limit_mib=488, repeats=3)
    parser.add_argument("--polars_python", help="Python with polars, numpy and pyarrow")
    parser.add_argument("--work_dir", type=Path, help="of temporary files; default: the system's")
    args = parser.parse_args(argv)
    command = [report.command("table_preparation", args)]
    page = Page("A table of your own, prepared", command, [preparations.DUCKDB])
    with TemporaryDirectory(dir=args.work_dir) as folder:
        work = Path(folder)
        table, output = work / "table.csv", work / "prepared"
        generate(table, args.count)
        limit = f"{args.memory_limit_mib}MiB"

        def transcode() -> PreparationRun:
            flags = ("--input", table, *FLAGS, "--memory_limit", limit, "--overwrite")
            return preparations.run("preproc.transcode", *flags, "--output", output)

        sides = {"transcode": transcode}
        if args.polars_python:
            script = (args.polars_python, PEER, table, work)
            sides["polars"] = lambda: preparations.run_command(script)
        runs = preparations.compare(sides, args.repeats)
    page.add(f"{args.count:,} rows", *preparations.table(runs, "rows", args.count))
    if "polars" in runs:
        ratio = median_s(runs["transcode"]) / median_s(runs["polars"])
        page.judge(f"{ratio:.2f} times the seconds", TARGET_RATIO, ratio <= TARGET_RATIO)
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
