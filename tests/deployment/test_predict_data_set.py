"""Encoded data sets through the command: scores, values out of range, data sets that do not fit."""

import numpy as np
import pytest
import yaml

from deployment.predict.__main__ import main
from deployment.serving.scorer import RequestScorer
from tests.deployment.serving.made_models import CATEGORICAL, NUMERICAL, request, write_clicks

ARRAYS = request(3)


def data_set(folder, **changes):
    """Writes six rows, `STORED`, as split binaries of every kind, the words in three files.

    changes: feature -> its keys in the feature spec, None leaves it out; `type`: of all chunks.
    """
    stored = {
        "x.bin": np.float16(np.tile(ARRAYS[NUMERICAL], (2, 1))),
        "city.bin": np.uint8(np.tile(ARRAYS[CATEGORICAL][:, :1], (2, 1))),
        "label.bin": np.uint8([1, 0, 1] * 2),
        "tags.bin": np.int64(np.tile(ARRAYS[CATEGORICAL][:, 1:3], (2, 1))),
        "words0.bin": np.int16(STORED[CATEGORICAL][:1, 3:]),
        "empty.bin": np.int16([]),
        "words1.bin": np.int16(STORED[CATEGORICAL][1:, 3:]),
    }
    folder.mkdir()
    for name, values in stored.items():
        values.tofile(folder / name)
    features = {
        "price": {"dtype": "float16"},
        "age": {"dtype": "float16"},
        "label": {"dtype": "bool"},
        "city": {"dtype": "uint8", "cardinality": 4},
        "tags": {"dtype": "int64", "cardinality": 5, "hotness": 2},
        "words": {"dtype": "int16", "cardinality": 6, "hotness": 3},
    }
    kind = {"type": changes.pop("type", "split_binary")}
    chunks = [
        {**kind, "features": ["price", "age"], "files": ["x.bin"]},
        {**kind, "features": ["label"], "files": ["label.bin"]},
        {**kind, "features": ["city"], "files": ["city.bin"]},
        {**kind, "features": ["tags"], "files": ["tags.bin"]},
        {**kind, "features": ["words"], "files": ["words0.bin", "empty.bin", "words1.bin"]},
    ]
    spec = {
        "feature_spec": {name: keys for name, keys in (features | changes).items() if keys},
        "source_spec": {"rows": chunks},
        "channel_spec": {"numerical": ["price", "age"], "categorical": []},
    }
    (folder / "feature_spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    return folder


STORED = {
    NUMERICAL: np.tile(ARRAYS[NUMERICAL], (2, 1)),
    CATEGORICAL: np.hstack(
        [
            np.tile(ARRAYS[CATEGORICAL][:, :3], (2, 1)),
            [[5, 5, 5], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 0]],
        ]
    ).astype(np.int32),
}


def test_scores_of_data_set(tmp_path, clicks, capsys):
    folder, output = data_set(tmp_path / "data"), tmp_path / "scores.npy"
    command_line = ["--model", str(clicks), "--input", str(folder), "--output", str(output)]
    assert main([*command_line, "--batch_size", "4"]) == 0
    assert np.array_equal(np.load(output), RequestScorer(clicks).score(STORED)[:, 0])
    assert capsys.readouterr().out.endswith("; ignored columns: label\n")


@pytest.mark.parametrize(
    ("file", "changes", "report"),
    [
        ("x.bin", {"price": np.inf}, "row 5, column 'price': got inf; numerical features are "),
        ("city.bin", {"city": 4}, "row 5, column 'city': got 4; ids lie in .*; --unknown_ids ze"),
        ("tags.bin", {"tags": -1}, "row 5: feature 'tags': found -1; expected ids of 0 or more"),
    ],
)
def test_bad_values_of_a_data_set(tmp_path, clicks, capsys, file, changes, report):
    """The fifth row is in the second request."""
    folder = data_set(tmp_path / "data")
    ((name, value),) = changes.items()
    dtype, width = {"price": ("f2", 2), "city": ("u1", 1), "tags": ("i8", 2)}[name]
    values = np.fromfile(folder / file, dtype)
    values[4 * width] = value
    values.tofile(folder / file)
    flags = ["--model", str(clicks), "--input", str(folder), "--batch_size", "3"]
    assert main(flags) == 2
    with pytest.raises(ValueError, match=f"^error: --input {folder}: split 'rows': {report}"):
        raise ValueError(capsys.readouterr().err.strip())


def test_unknown_and_negative_ids_of_data_set(tmp_path, capsys):
    model = write_clicks(tmp_path / "clicks/1", unknown_ids="zero")
    folder, output = data_set(tmp_path / "data"), tmp_path / "scores.npy"
    tags = STORED[CATEGORICAL][:, 1:3].astype(np.int64)
    tags[2] = [1 << 40, 3]
    tags.tofile(folder / "tags.bin")
    flags = ["--model", str(model), "--input", str(folder), "--output", str(output)]
    assert main(flags) == 0
    arrays = {name: array.copy() for name, array in STORED.items()}
    arrays[CATEGORICAL][2, 1] = 0
    assert np.array_equal(np.load(output), RequestScorer(model).score(arrays)[:, 0])
    tags[2] = [-1, 3]
    tags.tofile(folder / "tags.bin")
    assert main(flags) == 2
    assert "row 3: feature 'tags': found -1; expected ids of 0 or more" in (capsys.readouterr().err)


@pytest.mark.parametrize(
    ("changes", "flags", "message"),
    [
        ({"city": {"dtype": "uint8", "cardinality": 5}}, [], "'city': expected 4 different ids as"),
        ({"tags": {"dtype": "int64", "cardinality": 5}}, [], "'tags': expected 2 values per row"),
        ({"type": "tfrecord"}, [], "chunks of the type split_binary or torch_tensor, got tfrecord"),
        ({}, ["--mapping", "test"], "expected one of its splits by --mapping, rows, got test"),
        ({"age": {"dtype": "flot"}}, [], "is not a data set: "),
    ],
)
def test_data_sets_that_do_not_fit(tmp_path, clicks, capsys, changes, flags, message):
    folder = data_set(tmp_path / "data", **changes)
    assert main(["--model", str(clicks), "--input", str(folder), *flags]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --input {folder}: ") and message in error, error


def test_flags_of_tables_and_no_rows(tmp_path, clicks, capsys):
    folder = data_set(tmp_path / "data")
    flags = ["--model", str(clicks), "--input", str(folder)]
    assert main([*flags, "--on_bad_line", "skip"]) == 2
    assert capsys.readouterr().err.startswith("error: --on_bad_line is only read with a table")
    for path in folder.glob("*.bin"):
        path.write_bytes(b"")
    assert main(flags) == 2
    assert "split 'rows': has no rows" in capsys.readouterr().err
