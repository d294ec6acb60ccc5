"""Hundreds of mutated data files: rejected with a message, or read correctly.

The reference of stored files is a slow, independent reading (`slow_reading`). If it finds all rows
valid, the tools must return exactly these rows; if it finds an invalid one, they must reject the
data. No input may crash them.
"""

import math
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataloading import describe
from dataloading.formats.stored_dataset import StoredDataset
from dataloading.spec.feature_spec import FeatureSpec
from preproc.transcode import __main__ as transcode

pytestmark = pytest.mark.long

EXAMPLES = 1000

ALL_COLUMNS = {"features": ["click", "price", "user", "tags", "age", "city"], "files": ["d.csv"]}
TABS = {"header": True, "delimiter": "\t", "features": ["tags", "age", "city"], "files": ["c.tsv"]}
PLAIN = {"features": ["click", "price", "user"], "files": ["a.csv", "b.csv"]}
RAW_SPEC = {
    "feature_spec": {
        "click": {},
        "price": {},
        "age": {"dtype": "float32"},
        "user": {"cardinality": "auto"},
        "tags": {"hotness": 2, "cardinality": 50},
        "city": {"cardinality": 4, "dtype": "int16"},
    },
    "source_spec": {
        "train": [{"type": "csv", **PLAIN}, {"type": "csv", **TABS}],
        "test": [{"type": "csv", **ALL_COLUMNS}],
    },
    "channel_spec": {
        "label": ["click"],
        "numerical": ["price", "age"],
        "categorical": ["user", "tags", "city"],
    },
}
RAW_FILES = {
    "a.csv": b"1,0.5,3\n0,-2,700\n1,1e2,0\n",
    "b.csv": b"0,3.25,12\n",
    "c.tsv": b"age\tcity\textra\ttags\n1\t0\tx\t1;2\n2\t3\t\t0;49\n"
    b"-3.5\t1\tx\t7;7\n40\t2\tx\t3;3\n",
    "d.csv": b"1,7,5,1;1,0.1,3\n0,8,699,9;0,0.2,0\n",
}
STORED_SPEC = {
    "feature_spec": {
        "click": {"dtype": "bool"},
        "price": {"dtype": "float16"},
        "age": {"dtype": "float16", "hotness": 2},
        "user": {"dtype": "int16", "cardinality": 301},
        "tags": {"dtype": "int8", "cardinality": 50, "hotness": 3},
    },
    "source_spec": {
        "train": [
            {"type": "split_binary", "features": ["click"], "files": ["click.bin"]},
            {"type": "split_binary", "features": ["price", "age"], "files": ["x.bin", "y.bin"]},
            {"type": "split_binary", "features": ["user"], "files": ["user.bin"]},
            {"type": "split_binary", "features": ["tags"], "files": ["tags.bin"]},
        ]
    },
    "channel_spec": {
        "label": ["click"],
        "numerical": ["price", "age"],
        "categorical": ["tags", "user"],
    },
}
STORED_FILES = {
    "click.bin": bytes([0, 1, 1, 0, 1]),
    "x.bin": np.arange(6, dtype="<f2").tobytes(),
    "y.bin": np.arange(9, dtype="<f2").tobytes(),
    "user.bin": np.array([5, 300, 0, 7, 7], "<i2").tobytes(),
    "tags.bin": (np.arange(15) * 3).astype("i1").tobytes(),
}
# Replacements for a field of a file.
ODD_FIELDS = st.sampled_from([
    b"", b" ", b"-1", b"1.5", b"nan", b"inf", b"1e6", b"70000", b"1e40", b"x", b"0x1", b"007",
    b"2", b'"5\n6"', b'"3"4', b"49", b"50", b"9" * 30, b'"', b'"3"', b'"3', b"3;4", b"3;", b";",
    b"1,2", b"\xff", b"\x00", b"1_0", b"+5", b" 3 ", b"-0", "\u0663".encode(), b"\r", b"\n",
    b"true", b"1e2", b".5", b"NULL",
])  # fmt: skip


# Kinds of mutations of texts and of binaries.
TEXT = ("field", "field", "field", "drop", "double", "cut", "byte")
BINARY = ("byte", "byte", "byte", "cut", "longer", "gone", "empty")


@st.composite
def mutated(draw, files, kinds):
    """Files of which one or two have another field, line, byte or length, or are not there."""
    files = dict(files)
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from(sorted(files)))
        kind = draw(st.sampled_from(kinds))
        files[name] = changed(draw, files[name], kind, b"\t" if name == "c.tsv" else b",")
        if kind == "gone" and len(files) > 1:
            del files[name]
    return files


def changed(draw, data: bytes, kind: str, separator: bytes) -> bytes:
    if kind in ("field", "drop", "double"):
        lines = data.split(b"\n")
        at = draw(st.integers(0, len(lines) - 1))
        fields = lines[at].split(separator)
        if kind == "field":
            fields[draw(st.integers(0, len(fields) - 1))] = draw(ODD_FIELDS)
        line = separator.join(fields)
        lines[at : at + 1] = {"field": [line], "drop": [], "double": [line] * 2}[kind]
        return b"\n".join(lines)
    if kind == "byte" and data:
        at = draw(st.integers(0, len(data) - 1))
        return data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
    if kind == "cut":
        return data[: draw(st.integers(0, len(data)))]
    if kind == "longer":
        return data + bytes(draw(st.integers(1, 8)))
    return b"" if kind == "empty" else data


VALID = {
    "click": lambda value: value in (0, 1),
    "price": math.isfinite,
    "age": math.isfinite,
    "user": lambda value: 0 <= value < 301,
    "tags": lambda value: 0 <= value < 50,
}


def slow_reading(folder: Path) -> dict[str, list] | None:
    """Reads the stored files: {feature: [rows][values]}, None where any of them is invalid."""
    result = {name: [] for name in VALID}
    for chunk in STORED_SPEC["source_spec"]["train"]:
        keys = {name: STORED_SPEC["feature_spec"][name] for name in chunk["features"]}
        width = sum(key.get("hotness", 1) for key in keys.values())
        (dtype,) = {np.dtype(key["dtype"].replace("bool", "uint8")) for key in keys.values()}
        for file in chunk["files"]:
            if not (folder / file).exists():
                return None
            data = (folder / file).read_bytes()
            if len(data) % (width * dtype.itemsize):
                return None
            for row in np.frombuffer(data, dtype).reshape(-1, width).tolist():
                for name, key in keys.items():
                    values, row = row[: key.get("hotness", 1)], row[key.get("hotness", 1) :]
                    result[name].append(values)
    is_valid = all(VALID[name](v) for name, rows in result.items() for row in rows for v in row)
    lengths = {len(rows) for rows in result.values()}
    return result if is_valid and len(lengths) == 1 and 0 not in lengths else None


def sweep(examples: int, strategy, check) -> None:
    """Calls `check` with up to `examples` values, equal in every run."""
    limits = settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )

    def checked(value):
        check(value)

    limits(given(strategy)(checked))()


def write(folder: Path, spec, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    (folder / "feature_spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))


def loaded(folder: Path) -> dict[str, list]:
    """Returns the values that a model receives: {feature: [rows][values]}."""
    result = {name: [] for name in VALID}
    spec = FeatureSpec.from_yaml(folder / "feature_spec.yaml")
    for batch in StoredDataset(spec, "train", 2).dataset():
        numerical = batch.inputs.numerical.numpy()
        columns = [batch.labels.numpy(), numerical[:, :1], numerical[:, 1:]]
        columns += [ids.numpy() for ids in batch.inputs.categorical]
        for name, column in zip(["click", "price", "age", "tags", "user"], columns, strict=True):
            result[name] += column.tolist()
    return result


def test_raw_files(capsys):
    """`transcode` refuses files with a message and leaves nothing, or writes a whole data set."""
    codes = set()

    def check(files):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write(folder, RAW_SPEC, files)
            codes.add(code := transcode.main([f"--input={folder}", f"--output={folder / 'out'}"]))
            message = capsys.readouterr().err
            if code:
                assert code == 2 and re.fullmatch(r"error: .{10,}\n", message, re.DOTALL), message
                assert not (folder / "out").exists()
            else:
                assert describe.main([str(folder / "out")]) == 0

    sweep(EXAMPLES // 5, mutated(RAW_FILES, TEXT), check)
    assert codes == {0, 2}


def test_stored_files(capsys):
    """The loader, the slow reading and `describe` agree on which files are good."""

    def check(files):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write(folder, STORED_SPEC, files)
            try:
                result = loaded(folder)
            except (ValueError, tf.errors.InvalidArgumentError) as error:
                assert len(str(error)) > 10
                result = None
            assert result == slow_reading(folder)
            assert describe.main([name]) == (1 if result is None else 0)
            assert ("broken: " in capsys.readouterr().out) == (result is None)

    sweep(EXAMPLES, mutated(STORED_FILES, BINARY), check)
