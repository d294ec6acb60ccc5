"""`python -m dataloading.describe`: facts by hand, and every fault of a broken data set."""

import re
import shutil

import numpy as np
import pytest
import yaml

from dataloading import describe
from dataloading.synthetic.dataset import synthetic_spec, write_dataset
from dataloading.transcribe import main as transcribe
from tests.interaction_data import write_interactions

# Four rows: (click, x, y0, y1, user, tag, tag), and a feature in no channel.
CONTENT = {
    "feature_spec": {
        "click": {"dtype": "bool"},
        "x": {"dtype": "float16"},
        "y": {"dtype": "float16", "hotness": 2},
        "user": {"dtype": "int16", "cardinality": 300},
        "tags": {"dtype": "int8", "cardinality": 9, "hotness": 2},
        "z": {"dtype": "float32"},
    },
    "source_spec": {
        "train": [
            {"type": "split_binary", "features": ["click"], "files": ["click.bin"]},
            {"type": "split_binary", "features": ["x", "y"], "files": ["n0.bin", "n1.bin"]},
            {"type": "split_binary", "features": ["user"], "files": ["user.bin"]},
            {"type": "split_binary", "features": ["tags"], "files": ["tags.bin"]},
            {"type": "split_binary", "features": ["z"], "files": ["z.bin"]},
        ]
    },
    "channel_spec": {"label": ["click"], "numerical": ["x", "y"], "categorical": ["user", "tags"]},
}
FILES = {
    "click.bin": np.array([1, 0, 0, 0], "u1"),
    "n0.bin": np.array([[1, 2, 3]], "<f2"),
    "n1.bin": np.array([[-3, 0, 0], [4, 5, 6], [6, 7, 8]], "<f2"),
    "user.bin": np.array([299, 7, 299, 0], "<i2"),
    "tags.bin": np.array([[1, 1], [1, 2], [3, 4], [5, 6]], "i1"),
    "z.bin": np.array([np.nan, 1, np.inf, -2], "<f4"),
}


def described(folder, capsys, content=CONTENT, **files) -> tuple[int, str]:
    for name, array in {**FILES, **{f"{n}.bin": a for n, a in files.items()}}.items():
        if array is None:
            (folder / name).unlink(missing_ok=True)
        else:
            array.tofile(folder / name)
    (folder / "feature_spec.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    code = describe.main([str(folder)])
    report = capsys.readouterr()
    return code, report.out + report.err


def test_facts_by_hand(tmp_path, capsys):
    code, report = described(tmp_path, capsys)
    assert code == 0
    assert report.splitlines() == [
        "train: 4 rows, share of 1 in click 0.2500, 60 bytes",
        "  click (label, bool): min 0, mean 0.25, max 1, zeros 75.0%",
        "  x (numerical, float16): min -3, mean 2, max 6, zeros 0.0%",
        "  y (numerical, float16 x 2): min 0, mean 3.875, max 8, zeros 25.0%",
        "  user (categorical, int16): cardinality 300, about 3 ids in use, min 0, mean 151.25, "
        "max 299, zeros 25.0%",
        "  tags (categorical, int8 x 2): cardinality 9, about 6 ids in use, min 1, mean 2.875, "
        "max 6, zeros 0.0%",
        "  z (no channel, float32): min -2, mean -0.5, max inf, zeros 0.0%, NaN 1, infinite 1",
        "complete: every file is there, has all its rows, and no value is out of range",
    ]


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({"user": None}, "split 'train': chunk 2: file 'user.bin' is not there"),
        ({"n1": np.zeros(7, "<f2")}, "'n1.bin' has 14 bytes, not a whole number of rows of 6 "),
        ({"user": np.zeros(5, "<i2")}, "'click' has 4 rows and feature 'user' has 5"),
        ({"user": np.array([0, -1, 300, 1], "<i2")}, r"'user': 2 ids outside of \[0, 300\)"),
        ({"n0": np.array([np.nan, 0, np.inf], "<f2")}, "'x': 1 numerical values that are not"),
        ({name[:-4]: array[:0] for name, array in FILES.items()}, "split 'train' has no rows"),
    ],
)
def test_faults(files, fault, tmp_path, capsys):
    code, report = described(tmp_path, capsys, **files)
    assert code == 1
    assert re.search("broken: .*\n.*" + fault, report, re.DOTALL), report


@pytest.mark.parametrize("value", [-1e300, 3.4028235e38])
def test_numerical_values_beyond_float32(tmp_path, capsys, value):
    content = {**CONTENT, "channel_spec": {"numerical": ["z"], "categorical": [], "label": []}}
    content["feature_spec"] = {**CONTENT["feature_spec"], "z": {"dtype": "float64"}}
    code, report = described(tmp_path, capsys, content, z=np.array([1, 2, value, 4]))
    assert code == 1 and "'z': 1 numerical values" in report


def test_nothing_to_describe(tmp_path, capsys):
    assert describe.main([str(tmp_path)]) == 2
    assert "error: " in capsys.readouterr().err
    code, report = described(tmp_path, capsys, {**CONTENT, "source_spec": {}})
    assert code == 2 and "source_spec names no chunk" in report


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Generated rows as split binaries and, in prebatches of 60 rows, as split TFRecords."""
    folder = tmp_path_factory.mktemp("recorded")
    spec = synthetic_spec([50, 7], [3, 1], num_numerical=2)
    write_dataset(folder / "binary", spec, {"train": 200, "test": 100})
    arguments = {"src_dataset_path": folder / "binary", "dst_dataset_path": folder / "records"}
    flags = [f"--{name}={value}" for name, value in arguments.items()]
    assert transcribe([*flags, "--src_dataset_type=tf_raw", "--dst_prebatch_size=60"]) == 0
    return folder


def values_of(folder, capsys, code=0):
    assert describe.main([str(folder)]) == code
    report = capsys.readouterr().out
    return [line for line in report.splitlines() if line.startswith("  ")], report


@pytest.mark.parametrize("as_the_original", [False, True])
def test_split_tfrecords(recorded, tmp_path, capsys, as_the_original):
    """Facts equal those of the split binaries, also with the spec of the original."""
    expected, _ = values_of(recorded / "binary", capsys)
    folder = tmp_path / "records"
    shutil.copytree(recorded / "records", folder)
    if as_the_original:
        content = yaml.safe_load((folder / "feature_spec.yaml").read_text())
        (folder / "feature_spec.yaml").write_text(yaml.safe_dump(content | {"source_spec": None}))
    lines_found, report = values_of(folder, capsys)
    assert sorted(lines_found) == sorted(expected) and len(lines_found) == 2 * 5
    assert "train: 200 rows, share of 1" in report and "test: 100 rows" in report
    assert report.endswith(
        "complete: every file is there, has all its rows, and no value is out of range\n"
    )


def test_damaged_record(recorded, tmp_path, capsys):
    folder = tmp_path / "records"
    shutil.copytree(recorded / "records", folder)
    (path,) = (folder / "train" / "categorical_0").glob("*.tfrecords")
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    _, report = values_of(folder, capsys, code=1)
    assert "broken: 1 faults" in report and "feature 'cat_0'" in report and "damaged" in report


def test_missing_record(recorded, tmp_path, capsys):
    """The last prebatch of 20 rows is cut off, cleanly, of all features: length.json reports it."""
    folder = tmp_path / "records"
    shutil.copytree(recorded / "records", folder)
    for name in ("label", "numerical", "categorical_0", "categorical_1"):
        (path,) = (folder / "train" / name).glob("*.tfrecords")
        content = path.read_bytes()
        start = 0
        for _ in range(3):
            start += 16 + int.from_bytes(content[start : start + 8], "little")
        path.write_bytes(content[:start])
    _, report = values_of(folder, capsys, code=1)
    assert report.count("length.json states 4 prebatches, and the files of feature") == 4


INTERACTIONS = {"user": [0, 1, 2, 3, 0], "item": [0, 1, 1, 2, 1]}
LISTS = {"user": [0, 0, 1, 1, 0, 0], "item": [5, 1, 2, 2, 5, 3], "label": [1, 0, 0, 1, 1, 0]}


def described_lists(folder, capsys, lists, code):
    """Five interactions, and candidate lists of two rows."""
    splits = {"train": INTERACTIONS, "test": lists}
    spec = write_interactions(folder, 4, 6, splits, {"test_samples_per_series": 2})
    spec.to_yaml(folder / "feature_spec.yaml")
    return values_of(folder, capsys, code)[1]


def test_candidate_lists(tmp_path, capsys):
    report = described_lists(tmp_path, capsys, LISTS, 0)
    assert "train: 5 rows, 40 bytes" in report
    assert "item (item, int32): cardinality 6, about 3 ids in use, min 0, mean 1, max 2" in report
    assert "test: 6 rows, share of 1 in label 0.5000, 3 candidate lists of 2, 54 bytes" in report


@pytest.mark.parametrize(
    "lists",
    [
        LISTS | {"user": [0, 0, 1, 2, 0, 1]},
        LISTS | {"label": [1, 0, 0, 1, 0, 0]},
        {name: values[:1] for name, values in LISTS.items()},
    ],
    ids=["two users", "no positive", "shorter than a list"],
)
def test_broken_lists(lists, tmp_path, capsys):
    report = described_lists(tmp_path, capsys, lists, 1)
    assert re.search("broken: 1 faults\n.*split 'test'.*test_samples_per_series", report), report
