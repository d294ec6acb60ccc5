"""Counts and encodes Criteo logs, with the flags of NVIDIA's PySpark program of this name.

python preproc/spark_data_utils.py --mode generate_models --input_folder RAW --days 0-23 \\
    --model_folder MODELS --frequency_limit 15
python preproc/spark_data_utils.py --mode transform --input_folder RAW --days 0-22 \\
    --model_folder MODELS --output_folder OUTPUT/train --model_size_file OUTPUT/model_size.json

MODELS receives the vocabulary, OUTPUT/train Parquet files for parquet_to_binary.py. DuckDB does the
work on this machine, also under spark-submit; `run_spark_cpu.sh` is the preparation on a cluster.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import shutil
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataloading.spec.feature_spec import TRAIN, FeatureSpec
from preproc.arguments import MachineOptions, complete_machine_flags
from preproc.criteo.log_files import parse_days
from preproc.criteo.options import CriteoOptions, parse_thresholds, threshold_of_limit
from preproc.criteo.output.data_set import CATEGORICALS
from preproc.criteo.prepare import prepare
from preproc.criteo.raw_lines import NUM_NUMERICAL
from runtime.cli import exit_status
from runtime.files.atomic import atomic_file, atomic_folder
from runtime.files.staging import SPEC_FILE
from runtime.options import add_flags

FINISHED = "_SUCCESS"
ROWS_PER_FILE = 1 << 23
ROWS_AT_ONCE = 1 << 16
# Flags that only tune the shuffles and joins of NVIDIA's Spark job, and their defaults.
_TUNING = {
    "low_mem": False,
    "dict_build_shuffle_parallel_per_day": 2,
    "apply_shuffle_parallel_per_day": 25,
    "skew_broadcast_pct": 1.0,
}


def generate_models(flags: argparse.Namespace) -> None:
    """Writes the vocabulary of the days to `--model_folder`."""
    threshold, columns = 0, ()
    if flags.frequency_limit:
        threshold, columns = parse_thresholds(threshold_of_limit(flags.frequency_limit))
    prepare(
        _options(
            flags,
            output=flags.model_folder,
            vocabulary_only=True,
            frequency_threshold=threshold,
            column_thresholds=columns,
            days=parse_days(flags.days),
            overwrite=flags.write_mode == "overwrite",
        )
    )


def transform(flags: argparse.Namespace) -> None:
    """Writes the days as Parquet files to `--output_folder`, and `--model_size_file`.

    Raises:
        ValueError: `--output_folder` is missing; it or `--model_size_file` exists without
            `--write_mode overwrite`; `--model_folder` has no vocabulary; rows have no labels.
    """
    if flags.output_folder is None:
        raise ValueError("--mode transform writes to --output_folder, which is missing")
    overwrite = flags.write_mode == "overwrite"
    _check_output(flags.output_folder, overwrite)
    if flags.model_size_file and flags.model_size_file.exists() and not overwrite:
        raise ValueError(f"{flags.model_size_file} exists: replace it with --write_mode overwrite")
    days = parse_days(flags.days)
    binaries = flags.output_folder.with_name(f"{flags.output_folder.name}.binaries")
    with atomic_folder(flags.output_folder, overwrite) as folder:
        for number, (part_days, names) in enumerate(_partitions(flags, days)):
            data_set = binaries / str(number)
            data_set.parent.mkdir(parents=True, exist_ok=True)
            options = _options(
                flags,
                output=data_set,
                days=part_days,
                encode_only=True,
                vocabulary=flags.model_folder,
                encoded_split=TRAIN,
                output_ordering=flags.output_ordering,
                overwrite=True,
            )
            with contextlib.redirect_stdout(sys.stderr):
                spec = prepare(options)
            _write_parquet(data_set, spec, [folder / name for name in names])
            if not flags.debug_mode:
                shutil.rmtree(data_set)
        (folder / FINISHED).touch()
    if not flags.debug_mode:
        binaries.rmdir()
    print(f"{flags.output_folder} is ready")
    if flags.model_size_file:
        spec = FeatureSpec.from_yaml(flags.model_folder / SPEC_FILE)
        first = 1 + NUM_NUMERICAL
        sizes = {
            f"_c{first + i}": spec.cardinality(name) - 1 for i, name in enumerate(CATEGORICALS)
        }
        with atomic_file(flags.model_size_file) as file:
            file.write(json.dumps(sizes, indent=4).encode())


def _check_output(folder: Path, overwrite: bool) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not overwrite:
        raise ValueError(
            f"--output_folder {folder} exists: replace it with --write_mode overwrite, or choose "
            "another"
        )
    if not (folder / FINISHED).exists():
        raise ValueError(
            f"--output_folder {folder} has no {FINISHED}, so it is not an earlier output, and is "
            "not replaced: remove it, or choose another"
        )


def _partitions(
    flags: argparse.Namespace, days: tuple[int, ...]
) -> list[tuple[tuple[int, ...], list[str]]]:
    """Returns (days, names of the folders over which their rows are divided evenly)."""
    if flags.output_partitioning == "none":
        return [(days, [""])]
    if flags.output_ordering == "total_random":  # a row's day is random, too
        return [(days, [f"day={number}" for number in range(len(days))])]
    return [((day,), [f"day={day}"]) for day in days]


def _write_parquet(data_set: Path, spec: FeatureSpec, folders: list[Path]) -> None:
    label, numerical = data_set / TRAIN / "label.bin", data_set / TRAIN / "numerical.bin"
    if not label.exists():
        raise ValueError("the lines have no labels: expected 0 or 1 in the first field")
    columns = {"_c0": np.memmap(label, "?", "r")}
    matrix = np.memmap(numerical, "<f2", "r").reshape(-1, NUM_NUMERICAL)
    columns |= {f"_c{1 + i}": matrix[:, i] for i in range(NUM_NUMERICAL)}
    for i, name in enumerate(CATEGORICALS):
        file = data_set / TRAIN / f"{name}.bin"
        columns[f"_c{1 + NUM_NUMERICAL + i}"] = np.memmap(file, spec.dtype(name), "r")
    bounds = [len(matrix) * i // len(folders) for i in range(len(folders) + 1)]
    for folder, (start, stop) in zip(folders, itertools.pairwise(bounds), strict=True):
        folder.mkdir(exist_ok=True)
        for number, first in enumerate(range(start, stop, ROWS_PER_FILE)):
            file = folder / f"part-{number:05d}.snappy.parquet"
            _write_file(file, columns, range(first, min(first + ROWS_PER_FILE, stop)))


def _write_file(file: Path, columns: dict[str, np.ndarray], rows: range) -> None:
    numericals = [f"_c{1 + i}" for i in range(NUM_NUMERICAL)]
    dtypes = {name: np.dtype("f4" if name in numericals else "i4") for name in columns}
    schema = pa.schema({name: pa.from_numpy_dtype(dtype) for name, dtype in dtypes.items()})
    with pq.ParquetWriter(file, schema) as writer:
        for first in range(rows.start, rows.stop, ROWS_AT_ONCE):
            part = slice(first, min(first + ROWS_AT_ONCE, rows.stop))
            arrays = [pa.array(values[part].astype(dtypes[n])) for n, values in columns.items()]
            writer.write_batch(pa.record_batch(arrays, schema))


def _options(flags: argparse.Namespace, **options) -> CriteoOptions:
    machine = {field.name.removesuffix("_bytes") for field in dataclasses.fields(MachineOptions)}
    passed = {name: getattr(flags, name) for name in machine if getattr(flags, name) is not None}
    return CriteoOptions(
        input=flags.input_folder,
        on_bad_line=flags.on_bad_line,
        **options,
        **complete_machine_flags(passed),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--mode", required=True, choices=("generate_models", "transform"))
    add("--days", required=True, metavar="A-B", help="days to read, like 0-22")
    add("--input_folder", type=Path, required=True, help="folder with day_0, day_1, ...")
    add("--model_folder", type=Path, required=True, help="folder of the vocabulary")
    add("--output_folder", type=Path, help="of transform: folder of the Parquet files")
    add("--model_size_file", type=Path, help="of transform: JSON file, the largest id per column")
    add("--write_mode", choices=("overwrite", "errorifexists"), default="errorifexists")
    add(
        "--frequency_limit",
        help="of generate_models: rarer values get id 0; 15,14:30 is 30 for field 14 and 15 for "
        "the others (default: all values are kept)",
    )
    orderings = ("total_random", "day_random", "any", "input")
    add("--output_ordering", choices=orderings, default="total_random")
    add("--output_partitioning", choices=("day", "none"), default="none")
    add("--on_bad_line", choices=("error", "skip"), default="error", help="malformed lines")
    add("--debug_mode", action="store_true", help="of transform: keep OUTPUT_FOLDER.binaries")
    add("--no_numeric_log_col", action="store_true", help="not supported")
    for name, default in _TUNING.items():
        kind = {"action": "store_true"} if default is False else {"type": type(default)}
        add(f"--{name}", default=default, help="accepted without effect", **kind)
    add_flags(parser, MachineOptions)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs a command; see `runtime.cli.exit_status`."""

    def work() -> None:
        flags = _parser().parse_args(argv)
        if flags.no_numeric_log_col:
            raise ValueError(
                "--no_numeric_log_col is not supported: data sets store log(x + 3) in float16, "
                "which has no room for integers above 65,504; leave the flag out"
            )
        for name, default in _TUNING.items():
            if getattr(flags, name) != default:
                note = "tunes Spark's joins and has no effect; see --memory_limit"
                print(f"note: --{name} {note}", file=sys.stderr)
        if flags.mode == "generate_models" and flags.debug_mode:
            note = "has no effect on generate_models, which has no second result"
            print(f"note: --debug_mode {note}", file=sys.stderr)
        {"generate_models": generate_models, "transform": transform}[flags.mode](flags)

    return exit_status(work, "interrupted; run it again to resume")


if __name__ == "__main__":
    sys.exit(main())
