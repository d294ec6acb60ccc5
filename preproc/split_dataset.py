"""Turns the records of NVIDIA's Criteo preparation into a data set for dlrm.py and dcnv2.py.

python preproc/split_dataset.py --dataset RECORDS --output DATA_SET

RECORDS holds train_data.bin, test_data.bin, validation_data.bin (see `record_dtype`; written by
parquet_to_binary.py) and model_size.json, the largest id of each categorical feature.
"""

import argparse
import contextlib
import json
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np

from dataloading.spec.output_folder import data_set_folder
from preproc.criteo.output.binary_files import LABEL_DTYPE, NUMERICAL_DTYPE
from preproc.criteo.output.data_set import feature_spec
from preproc.criteo.output.splits import Split
from preproc.criteo.raw_lines import NUM_NUMERICAL
from runtime.cli import exit_status

SPLITS = ("train", "test", "validation")
SIZES_FILE = "model_size.json"


def record_dtype(num_numerical: int, num_categorical: int) -> np.dtype:
    """Returns the dtype of a row: 4 bytes per value, little-endian."""
    return np.dtype(
        [
            ("label", "<i4"),
            ("numerical", "<f4", (num_numerical,)),
            ("categorical", "<i4", (num_categorical,)),
        ]
    )


def records_file(folder: Path, split: str) -> Path:
    """Returns the file of a split's records."""
    return folder / f"{split}_data.bin"


def split_dataset(
    records: Path, output: Path, batch_size: int = 32768, num_numerical: int = NUM_NUMERICAL
) -> str:
    """Writes a data set of split binaries; returns a line for the user.

    Args:
        records: Folder with a file of records for each of `SPLITS`, and `SIZES_FILE`.
        output: New or empty folder.

    Raises:
        ValueError: A file is missing, empty or no multiple of a row; a label is not 0 or 1; an id
            is not in [0, largest id of its feature].
    """
    sizes_file = records / SIZES_FILE
    if not sizes_file.is_file():
        raise ValueError(
            f"--dataset {records}: expected {SIZES_FILE} of NVIDIA's Spark job in it; copy it there"
        )
    largest = [int(size) for size in json.loads(sizes_file.read_text()).values()]
    cardinalities = {f"cat_{i}": size + 1 for i, size in enumerate(largest)}
    dtype = record_dtype(num_numerical, len(largest))
    rows = {split: _map_records(records_file(records, split), dtype) for split in SPLITS}
    splits = tuple(Split(split, 0, len(rows[split])) for split in SPLITS)
    metadata = {"rows": {split.name: split.num_rows for split in splits}}
    with data_set_folder(output) as folder:
        spec = feature_spec(
            folder, splits, cardinalities, metadata, with_labels=True, num_numerical=num_numerical
        )
        for split in SPLITS:
            dtypes = [spec.dtype(name).newbyteorder("<") for name in cardinalities]
            _write_split(folder / split, rows[split], dtypes, largest, batch_size)
        spec.to_yaml(folder / "feature_spec.yaml")
    return f"{output} is ready: {', '.join(f'{s.num_rows:,} {s.name} rows' for s in splits)}"


def _map_records(path: Path, dtype: np.dtype) -> np.memmap:
    if not path.is_file():
        raise ValueError(f"{path} does not exist; write it with parquet_to_binary.py")
    size_bytes = path.stat().st_size
    if size_bytes == 0 or size_bytes % dtype.itemsize:
        raise ValueError(
            f"{path}: expected whole rows of {dtype.itemsize} bytes "
            f"({dtype['numerical'].shape[0]} numerical and {dtype['categorical'].shape[0]} "
            f"categorical features), got {size_bytes} bytes"
        )
    return np.memmap(path, dtype, "r")


def _write_split(folder, rows, id_dtypes, largest_ids, batch_size: int) -> None:
    folder.mkdir()
    names = ["label", "numerical", *(f"cat_{i}" for i in range(len(id_dtypes)))]
    with contextlib.ExitStack() as stack:
        label, numerical, *categoricals = (
            stack.enter_context(open(folder / f"{name}.bin", "wb")) for name in names
        )
        for start in range(0, len(rows), batch_size):
            part = rows[start : start + batch_size]
            ids = np.ascontiguousarray(part["categorical"].T)  # [features, rows]
            _check(rows.filename, start, part["label"], ids, largest_ids)
            label.write(part["label"].astype(LABEL_DTYPE))
            numerical.write(part["numerical"].astype(NUMERICAL_DTYPE))
            for file, values, dtype in zip(categoricals, ids, id_dtypes, strict=True):
                file.write(values.astype(dtype))


def _check(path, start: int, labels: np.ndarray, ids: np.ndarray, largest: list[int]) -> None:
    bad = np.flatnonzero((labels != 0) & (labels != 1))
    if len(bad):
        raise ValueError(f"{path}: row {start + bad[0]}: the label is {labels[bad[0]]}, not 0 or 1")
    limits = np.array(largest)[:, np.newaxis]
    features, bad = np.nonzero((ids < 0) | (ids > limits))
    if len(bad):
        feature = features[0]
        raise ValueError(
            f"{path}: row {start + bad[0]}: the id of cat_{feature} is {ids[feature, bad[0]]}; "
            f"by {SIZES_FILE} ids are 0 to {largest[feature]}"
        )


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status; see `runtime.cli.exit_status`."""
    parser = argparse.ArgumentParser(
        description="Turns the records of NVIDIA's Criteo preparation into a data set.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--dataset", type=Path, required=True, metavar="DIR", help="folder with the records")
    add("--output", type=Path, required=True, metavar="DIR", help="data set to write")
    add("--batch_size", type=int, default=32768, help="rows converted at a time (default 32768)")
    add("--numerical_features", type=int, default=NUM_NUMERICAL, help="default 13")
    flags = parser.parse_args(argv)
    return exit_status(
        lambda: print(
            split_dataset(flags.dataset, flags.output, flags.batch_size, flags.numerical_features)
        )
    )


if __name__ == "__main__":
    sys.exit(main())
