"""Hundreds of mutated data files: rejected with a message, or read correctly.

The reference of stored files is a slow, independent reading (`StoredReading`). If it finds all rows
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


@st.composite
def mutated_text_files(draw):
    """Raw files in which one or two fields, lines or bytes are others."""
    files = dict(RAW_FILES)
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from(sorted(files)))
        lines = files[name].split(b"\n")
        at = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(["field", "field", "field", "drop", "double", "cut", "byte"]))
        if kind == "field":
            separator = b"\t" if name == "c.tsv" else b","
            fields = lines[at].split(separator)
            fields[draw(st.integers(0, len(fields) - 1))] = draw(ODD_FIELDS)
            lines[at] = separator.join(fields)
        elif kind == "drop":
            del lines[at]
        elif kind == "double":
            lines.insert(at, lines[at])
        data = b"\n".join(lines)
        if kind == "cut":
            data = data[: draw(st.integers(0, len(data)))]
        elif kind == "byte" and data:
            at = draw(st.integers(0, len(data) - 1))
            data = data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
        files[name] = data
    return files


@st.composite
def mutated_binaries(draw):
    """Stored files of which one or two are cut, longer, or have another byte, or are not there."""
    files = dict(STORED_FILES)
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from(sorted(files)))
        data = bytearray(files[name])
        kind = draw(st.sampled_from(["byte", "byte", "byte", "cut", "longer", "gone", "empty"]))
        if kind == "byte" and data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
        elif kind == "cut":
            del data[draw(st.integers(0, len(data))) :]
        elif kind == "longer":
            data += bytes(draw(st.integers(1, 8)))
        elif kind == "empty":
            data.clear()
        files[name] = bytes(data)
        if kind == "gone" and len(files) > 1:
            del files[name]
    return files


class Bad(Exception):
    """The slow reading finds the data wrong."""


class StoredReading:
    """Slow reading of split binaries: {(split, feature): [rows][values]}."""

    def __init__(self, folder: Path, spec: dict):
        self.values = {}
        for split, chunks in spec["source_spec"].items():
            lengths = set()
            for chunk in chunks:
                keys = {name: spec["feature_spec"][name] for name in chunk["features"]}
                widths = {
                    name: k.get("hotness", math.prod(k.get("dimensions", [])))
                    for name, k in keys.items()
                }
                dtype = np.dtype(next(iter(keys.values()))["dtype"])
                dtype = np.dtype("u1") if dtype.kind == "b" else dtype
                rows = []
                for file in chunk["files"]:
                    try:
                        data = (folder / file).read_bytes()
                    except OSError as error:
                        raise Bad(str(error)) from error
                    if len(data) % (sum(widths.values()) * dtype.itemsize):
                        raise Bad(file)
                    rows.append(np.frombuffer(data, dtype).reshape(-1, sum(widths.values())))
                rows = np.concatenate(rows)
                lengths.add(len(rows))
                begin = 0
                for name, width in widths.items():
                    part = rows[:, begin : begin + width].tolist()
                    self.values[split, name] = part
                    begin += width
                    self._check(spec, name, [value for row in part for value in row])
            if len(lengths) != 1 or 0 in lengths:
                raise Bad(str(lengths))

    @staticmethod
    def _check(spec: dict, name: str, values: list) -> None:
        channels = [c for c, names in spec["channel_spec"].items() if name in names]
        for value in values:
            if "label" in channels and value not in (0, 1):
                raise Bad(f"{name}: {value}")
            if "numerical" in channels and not abs(value) <= float(np.finfo(np.float32).max):
                raise Bad(f"{name}: {value}")
            top = spec["feature_spec"][name].get("cardinality")
            if "categorical" in channels and not 0 <= value < top:
                raise Bad(f"{name}: {value}")


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


def loaded(folder: Path, split: str, with_labels: bool = True) -> dict[str, list]:
    """Returns the values that a model receives: {feature: [rows][values]}."""
    spec = FeatureSpec.from_yaml(folder / "feature_spec.yaml")
    loader = StoredDataset(spec, split, 2, with_labels=with_labels)
    values = {name: [] for name in spec.feature_spec}
    for batch in loader.dataset():
        widths = np.cumsum([spec.hotness(name) for name in spec.channel("numerical")])
        numerical = np.split(batch.inputs.numerical.numpy(), widths[:-1], axis=1)
        arrays = dict(zip(spec.channel("numerical"), numerical, strict=len(widths) > 0))
        arrays |= {
            name: ids.numpy()
            for name, ids in zip(spec.channel("categorical"), batch.inputs.categorical, strict=True)
        }
        if with_labels:
            arrays[spec.channel("label")[0]] = batch.labels.numpy()
        for name, array in arrays.items():
            values[name] += array.tolist()
    return values


def is_bad(folder: Path, spec: dict) -> bool:
    try:
        StoredReading(folder, spec)
    except Bad:
        return True
    return False


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

    sweep(EXAMPLES // 5, mutated_text_files(), check)
    assert codes == {0, 2}


def check_loading(spec, files) -> bool:
    """Loads; True if it was refused with a message, False if the rows are the right ones."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, spec, files)
        try:
            result = loaded(folder, "train")
        except ValueError as error:
            assert len(str(error)) > 10
            return True
        except tf.errors.InvalidArgumentError as error:
            assert "found" in str(error)
            return True
        reading = StoredReading(folder, spec)  # raises where nothing should have been accepted
        channels = spec["channel_spec"]
        for feature in {n for c in ("label", "numerical", "categorical") for n in channels[c]}:
            assert result[feature] == reading.values["train", feature], feature
        return False


def test_stored_files(capsys):
    """The loader, the slow reading and `describe` agree on which files are good."""

    def check(files):
        refused = check_loading(STORED_SPEC, files)
        with tempfile.TemporaryDirectory() as name:
            write(Path(name), STORED_SPEC, files)
            assert refused == is_bad(Path(name), STORED_SPEC)
            code = describe.main([name])
        assert code == (1 if refused else 0)
        assert ("broken: " in capsys.readouterr().out) == refused

    sweep(EXAMPLES, mutated_binaries(), check)
