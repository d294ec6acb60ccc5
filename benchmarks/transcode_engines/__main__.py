"""`dataloading.transcode` by DuckDB and Spark, on the same CSV file, interleaved.

Every file of every run must be the same, or the benchmark stops.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from benchmarks.harness import preparations
from benchmarks.harness.preparations import PreparationRun, median_s
from benchmarks.harness.report import Page, command

DUCKDB, SPARK = "DuckDB", "Spark local[2]"
FLAGS = {DUCKDB: (), SPARK: ("--engine", "spark", "--master", "local[2]")}
TARGET_PEAK_MIB = 4096  # the default --memory_limit of --engine spark


def write_log(path: Path, num_rows: int) -> Path:
    """Writes a log of a shop: a label, a skewed and a flat text, 2 tags, 2 numerical features."""
    draw = np.random.default_rng(0)

    def texts(prefix: str, numbers: np.ndarray) -> pa.Array:
        return pa.array(np.char.add(prefix, numbers.astype(str)))

    tags = [texts(prefix, draw.integers(0, 500, num_rows)).to_pylist() for prefix in "ab"]
    columns = {
        "bought": draw.integers(0, 2, num_rows),
        "user": texts("user ", draw.integers(0, num_rows // 4, num_rows)),
        "city": texts("Zürich ", draw.zipf(1.3, num_rows) % 50_000),
        "tags": pa.array(map(";".join, zip(*tags, strict=True))),
        "price": draw.gamma(2, 10, num_rows).round(2),
        "time": draw.permutation(num_rows),
    }
    pa_csv.write_csv(pa.table(columns), path)
    return path


def compare(log: Path, work: Path, repeats: int) -> dict[str, list[PreparationRun]]:
    def prepare_side(name: str) -> PreparationRun:
        flags = ("--label", "bought", "--split", "0.8,0.1,0.1", "--numerical", "price,time")
        arguments = ("--input", log, *flags, *FLAGS[name])
        return preparations.prepare(work, "dataloading.transcode", *arguments)

    return preparations.compare(tuple(FLAGS), prepare_side, repeats, "files")


def main(argv: Sequence[str] | None = None) -> int:
    parser = preparations.parser_of(__doc__, repeats=2, rows=1_000_000)
    args = parser.parse_args(argv)
    packages = preparations.versions("duckdb", "pyarrow", "numpy")
    engines = preparations.engine_versions("pyspark", "duckdb", "pyarrow", "numpy")
    page = Page(
        "transcode by two engines", [command("transcode_engines", args)], [packages, engines]
    )
    with tempfile.TemporaryDirectory(dir=args.work_dir) as folder:
        work = Path(folder)
        log = write_log(work / "shop.csv", args.rows)
        size_mb = log.stat().st_size / 1e6
        runs = compare(log, work, args.repeats)
    relative = {"times DuckDB's": lambda each: median_s(each) / median_s(runs[DUCKDB])}
    page.add(
        f"A CSV file of {args.rows:,} rows ({size_mb:,.0f} MB)",
        *preparations.table(runs, "rows", args.rows, relative),
    )
    peak = max(run.peak_mib for run in runs[SPARK])
    text = f"Spark local[2] takes {peak:,.0f} MiB with the default --memory_limit"
    page.judge(text, TARGET_PEAK_MIB, peak <= TARGET_PEAK_MIB)
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
