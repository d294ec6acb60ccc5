"""Turns the Parquet files of NVIDIA's Criteo preparation into one file of records per split.

python preproc/parquet_to_binary.py --src_dir SPARK_OUTPUT --dst_dir RECORDS

SPARK_OUTPUT holds the folders train, test and validation, whose files have the columns _c0 (label),
_c1 to _c13 (numerical features, logarithms) and _c14 to _c39 (ids). split_dataset.py makes a data
set of the records.
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from preproc.criteo.raw_lines import NUM_CATEGORICAL, NUM_NUMERICAL
from preproc.split_dataset import SIZES_FILE, SPLITS, record_dtype, records_file
from runtime.cli import exit_status
from runtime.files.atomic import atomic_file

COLUMNS = [f"_c{i}" for i in range(1 + NUM_NUMERICAL + NUM_CATEGORICAL)]
ROWS_AT_ONCE = 65536
_DTYPE = record_dtype(NUM_NUMERICAL, NUM_CATEGORICAL)


def parquet_to_binary(source: Path, target: Path, num_threads: int) -> str:
    """Writes a file of records for each split; returns a line for the user.

    Args:
        source: Folder with a folder of Parquet files for each of `SPLITS`.
        target: Folder of the records; files of an earlier run are replaced.
        num_threads: Parquet files that are read at the same time.

    Raises:
        ValueError: A split has no files, or a column is missing or has missing values.
    """
    files = {split: sorted((source / split).glob("*.parquet")) for split in SPLITS}
    for split, paths in files.items():
        if not paths:
            raise ValueError(f"--src_dir {source}: expected Parquet files in {source / split}")
    num_rows = {
        split: _write_records(paths, records_file(target, split), num_threads)
        for split, paths in files.items()
    }
    if (source / SIZES_FILE).is_file():
        (target / SIZES_FILE).write_bytes((source / SIZES_FILE).read_bytes())
    return f"{target}: {', '.join(f'{rows:,} {split} rows' for split, rows in num_rows.items())}"


def _write_records(paths: list[Path], target: Path, num_threads: int) -> int:
    ends = np.cumsum([pq.read_metadata(path).num_rows for path in paths])
    with atomic_file(target) as stream:
        stream.truncate(int(ends[-1]) * _DTYPE.itemsize)
        if ends[-1] == 0:
            raise ValueError(f"{paths[0].parent}: expected rows in its Parquet files, got none")
        records = np.memmap(stream.name, _DTYPE, "r+")
        with ThreadPoolExecutor(num_threads) as pool:
            starts = [0, *ends[:-1]]
            list(pool.map(lambda path, start: _copy_rows(path, records[start:]), paths, starts))
        records.flush()
    return int(ends[-1])


def _copy_rows(path: Path, records: np.ndarray) -> None:
    file = pq.ParquetFile(path)
    missing = [name for name in COLUMNS if name not in file.schema_arrow.names]
    if missing:
        raise ValueError(
            f"{path}: expected the columns {COLUMNS[0]} to {COLUMNS[-1]} of NVIDIA's Spark job, "
            f"{', '.join(missing)} missing"
        )
    start = 0
    for batch in file.iter_batches(ROWS_AT_ONCE, columns=COLUMNS):
        part = records[start : start + batch.num_rows]
        start += batch.num_rows
        part["label"] = _values(path, batch, COLUMNS[0])
        for i in range(NUM_NUMERICAL):
            part["numerical"][:, i] = _values(path, batch, COLUMNS[1 + i])
        for i in range(NUM_CATEGORICAL):
            part["categorical"][:, i] = _values(path, batch, COLUMNS[1 + NUM_NUMERICAL + i])


def _values(path: Path, batch: pa.RecordBatch, name: str) -> np.ndarray:
    column = batch.column(name)
    if column.null_count:
        raise ValueError(f"{path}: column {name} has {column.null_count} missing values")
    return column.to_numpy(zero_copy_only=False)


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status; see `runtime.cli.exit_status`."""
    parser = argparse.ArgumentParser(
        description="Turns Parquet files of NVIDIA's Criteo preparation into records.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--src_dir", type=Path, required=True, metavar="DIR", help="output of the Spark job")
    add("--dst_dir", type=Path, required=True, metavar="DIR", help="folder of the records")
    add("--intermediate_dir", help="not needed: records are written where they belong")
    add("--parallel_jobs", type=int, default=40, help="files read at the same time (default 40)")
    flags = parser.parse_args(argv)
    return exit_status(
        lambda: print(parquet_to_binary(flags.src_dir, flags.dst_dir, flags.parallel_jobs))
    )


if __name__ == "__main__":
    sys.exit(main())
