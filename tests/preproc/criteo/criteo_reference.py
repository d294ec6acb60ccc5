"""Reference of the preparation in plain Python, which every engine must match byte for byte."""

import gzip
import math
import re
import struct
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from config import command
from dataloading.spec.feature_spec import FeatureSpec
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output.output_order import permuted
from preproc.encoding.encoder import Encoder
from tests.preproc.contents import contents

INTEGER = re.compile(r"-?[0-9]{1,18}|")
CONTROL = re.compile("[\x00-\x1f\x7f]")


def parse(argv: list[str]) -> CriteoOptions:
    return command.parse(CriteoOptions, argv, "preproc.criteo")


def read_rows(path: Path) -> tuple[list[list[str]], list[int]]:
    """Returns the fields of good lines, and the numbers of malformed lines."""
    data = path.read_bytes()
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    lines = [line.removesuffix(b"\r") for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    rows, bad = [], []
    for number, line in enumerate(lines, 1):
        try:
            fields = line.decode().split("\t")
        except UnicodeDecodeError:
            fields = []
        good = (
            len(fields) == 40
            and fields[0] in ("0", "1")
            and all(INTEGER.fullmatch(field) for field in fields[1:14])
            and not any(CONTROL.search(field) for field in fields[14:])
        )
        fields[14:] = [field.strip(" ") for field in fields[14:]]
        rows.append(fields) if good else bad.append(number)
    return rows, bad


def numerical(text: str) -> bytes:
    x = int(text) if text else -3
    return struct.pack("<e", math.log(x + 3) if x + 3 > 0 else 0.0)


def numerical_bin(text: str) -> bytes:
    x = int(text) if text else -3
    return struct.pack("<b", 1 + math.floor(2 * math.log(x + 3)) if x + 3 > 0 else 0)


def vocabulary(values: list[str], threshold: int) -> list[tuple[str, int]]:
    counts = Counter(value for value in values if value)
    kept = [(value, count) for value, count in counts.items() if count >= threshold]
    return sorted(kept, key=lambda item: (-item[1], item[0].encode()))


def permuted_rows(rows: list, seed: int) -> list:
    """Rows in the order of `--output_ordering total_random`."""
    stored = [None] * len(rows)
    positions = permuted(np.arange(len(rows)), len(rows), (seed, 0))
    for row, position in zip(rows, positions, strict=True):
        stored[position] = row
    return stored


def encode(values: list[str], known: list[tuple[str, int]]) -> bytes:
    ids = {value: i for i, (value, _) in enumerate(known, 1)}
    for dtype in ("<i1", "<i2", "<i4", "<i8"):
        if len(known) <= np.iinfo(dtype).max:
            return b"".join(np.array(ids.get(value, 0), dtype).tobytes() for value in values)
    raise AssertionError


def prepare(
    files: list[Path],
    threshold: int,
    *,
    column_thresholds: tuple[tuple[int, int], ...] = (),
    vocabulary_files: list[Path] | None = None,
    vocabulary_training_rows: bool = False,
    holdout_fraction: float | None = None,
    validation_fraction: float = 0.0,
    bin_numericals: bool = False,
    seed: int | None = 0,
) -> dict[str, bytes]:
    """Returns every binary and vocabulary of the data set: name -> content, as `files_of`.

    Args:
        seed: of the random order of the training rows; None: input order.
    """
    per_file = [read_rows(path)[0] for path in files]
    rows = [row for file_rows in per_file for row in file_rows]
    if holdout_fraction is None:
        half = len(per_file[-1]) // 2
        end_of_train = len(rows) - len(per_file[-1])
        splits = {
            "train": rows[:end_of_train],
            "test": rows[end_of_train : end_of_train + half],
            "validation": rows[end_of_train + half :],
        }
    else:
        num_test = math.floor(len(rows) * holdout_fraction + 0.5)
        num_validation = math.floor(len(rows) * validation_fraction + 0.5)
        num_train = len(rows) - num_test - num_validation
        splits = {"train": rows[:num_train], "test": rows[len(rows) - num_test :]}
        if num_validation:
            splits["validation"] = rows[num_train : num_train + num_validation]
    counted = rows
    if vocabulary_training_rows:
        counted = splits["train"]
    elif vocabulary_files is not None:
        counted = [row for path in vocabulary_files for row in read_rows(path)[0]]

    if seed is not None:
        splits["train"] = permuted_rows(splits["train"], seed)

    result = {}
    for name, part in splits.items():
        result[f"{name}/label.bin"] = b"".join(
            b"\x01" if row[0] == "1" else b"\x00" for row in part
        )
        result[f"{name}/numerical.bin"] = b"".join(
            numerical(text) for row in part for text in row[1:14]
        )
        for i in range(13) if bin_numericals else ():
            bins = b"".join(numerical_bin(row[1 + i]) for row in part)
            result[f"{name}/bin_{i}.bin"] = bins
    for i in range(26):
        least = dict(column_thresholds).get(i, threshold)
        known = vocabulary([row[14 + i] for row in counted], least)
        lines = [f"{value}\t{count}\n" for value, count in known]
        result[f"cat_{i}"] = "".join(lines).encode()
        for name, part in splits.items():
            result[f"{name}/cat_{i}.bin"] = encode([row[14 + i] for row in part], known)
    return result


def files_of(data_set: Path) -> dict[str, bytes]:
    """Returns the binaries of a prepared data set, and its vocabularies as lines: value, count."""
    files = {name: data for name, data in contents(data_set).items() if name.endswith(".bin")}
    return files | {f"cat_{i}": vocabulary_text(data_set, i) for i in range(26)}


def vocabulary_text(data_set: Path, column: int) -> bytes:
    """Returns the vocabulary of a column as lines: value, tab, count."""
    table = pq.read_table(data_set / f"encoder/vocabulary/cat_{column}.parquet")
    lines = (f"{row['value']}\t{row['count']}\n" for row in table.to_pylist())
    return "".join(lines).encode()


def encode_raw(data_set: Path, files: list[Path]) -> dict[str, bytes]:
    """Encodes the rows of a log with the encoder of a data set, one batch per file: file in the
    data set -> its content over all splits, in the order of the log."""
    encoder = Encoder.load(data_set / "encoder")
    assert (
        encoder.digest == FeatureSpec.from_yaml(data_set / "feature_spec.yaml").metadata["encoder"]
    )
    columns = ["label", *(f"num_{i}" for i in range(13)), *(f"cat_{i}" for i in range(26))]
    result = defaultdict(bytes)
    for path in files:
        data = path.read_bytes()
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        rows = [line.split("\t") for line in data.decode().removesuffix("\n").split("\n")]
        encoded = encoder.encode(dict(zip(columns, zip(*rows, strict=True), strict=True)))
        numbers = [encoded.pop(f"num_{i}") for i in range(13)]
        for name, array in (encoded | {"numerical": np.concatenate(numbers, axis=1)}).items():
            result[f"{name}.bin"] += array.tobytes()
    return dict(result)


def in_log_order(data_set: Path) -> dict[str, bytes]:
    """Returns the binaries of a data set in the order of the log: file -> content."""
    names = {path.name for path in data_set.rglob("*.bin")}
    splits = [split for split in ("train", "test", "validation") if (data_set / split).is_dir()]
    return {n: b"".join((data_set / s / n).read_bytes() for s in splits) for n in names}


def line(label="0", numericals=None, categoricals=None) -> str:
    """Returns a raw line; fields without a value are empty. Keys are column numbers."""
    fields = [str(label)] + [""] * 39
    for i, value in (numericals or {}).items():
        fields[1 + i] = str(value)
    for i, value in (categoricals or {}).items():
        fields[14 + i] = value
    return "\t".join(fields)
