"""Files of rows through the command: scores by hand, every format, every kind of bad value."""

import gzip
import os
import re
import shutil
import signal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import yaml

from deployment.deploy import __main__ as deploy
from deployment.predict.__main__ import main
from deployment.predict.input import FileInput
from deployment.serving.interface import (
    Interface,
    ServedFeature,
    ServedLookup,
    ServedTable,
    ServedTensor,
)
from deployment.serving.scorer import RequestScorer
from deployment.triton.repository import write_origin
from preproc.transcode import __main__ as transcode
from tests.deployment import trained
from tests.deployment.serving.made_models import (
    CATEGORICAL,
    NUMERICAL,
    expected_scores,
    write_clicks,
)

HEADER = "city,price,words,tags,age,label"
# The rows of `made_models.request(3)`, columns in another order, and one without a feature.
LINES = ["0,1.5,5,1;1,2,1", "3,0,0;1;2,4;0,-3,0", "2,-1,,2;3,0.5,1"]
TABLE = {
    "tags": [[1, 1], [4, 0], [2, 3]],
    "city": [0, 3, 2],
    "words": [[5], [0, 1, 2], []],
    "price": [1.5, 0.0, -1.0],
    "age": [2.0, -3.0, 0.5],
    "label": [1, 0, 1],
}
ARRAYS = {
    NUMERICAL: np.float32([[1.5, 2], [0, -3], [-1, 0.5]]),
    CATEGORICAL: np.int32([[0, 1, 1, 5, -1, -1], [3, 4, 0, 0, 1, 2], [2, 2, 3, -1, -1, -1]]),
}


@pytest.fixture(scope="module")
def clicks(tmp_path_factory):
    return write_clicks(tmp_path_factory.mktemp("repository") / "clicks/1")


def csv_file(folder, *lines, header=HEADER, name="rows.csv"):
    path = folder / name
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def parquet_file(folder, **changes):
    path = folder / "rows.parquet"
    columns = {name: column for name, column in (TABLE | changes).items() if column is not None}
    pq.write_table(pa.table(columns), path)
    return path


def written(path):
    """The scores in a file, and the numbers of their rows where it has them."""
    if path.suffix == ".npy":
        return None, np.load(path)
    table = pa_csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)
    return table["row"].to_pylist(), table["score"].to_numpy().astype(np.float32)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npy"])
@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_scores_of_files(tmp_path, clicks, capsys, kind, ending):
    path = parquet_file(tmp_path)
    if kind != "parquet":
        path = csv_file(tmp_path, *LINES)
    if kind == "csv.gz":
        (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
        path = tmp_path / "rows.csv.gz"
    output = tmp_path / f"scores{ending}"
    flags = ("--model", str(clicks), "--input", str(path), "--threads", "1")
    assert main([*flags, "--output", str(output), "--batch_size", "2"]) == 0
    rows, scores = written(output)
    assert rows in (None, [0, 1, 2])
    assert np.array_equal(scores, RequestScorer(clicks).score(ARRAYS)[:, 0])
    np.testing.assert_allclose(scores, expected_scores(ARRAYS)[:, 0], rtol=0, atol=1e-7)
    report = capsys.readouterr().out
    assert report.startswith("3 rows scored in ") and f"by {clicks};" in report
    assert report.endswith("no feature is named after were ignored: label\n")


def test_scores_on_stdout(tmp_path, clicks, capsys):
    path = csv_file(tmp_path, *LINES * 7)
    assert main(["--model", str(clicks), "--input", str(path)]) == 0
    done = capsys.readouterr()
    header, *lines = done.out.splitlines()
    assert header == "row,score"
    assert [int(line.split(",")[0]) for line in lines] == list(range(21))
    scores = np.array([line.split(",")[1] for line in lines], np.float32)
    assert np.array_equal(scores, np.tile(RequestScorer(clicks).score(ARRAYS)[:, 0], 7))
    assert done.err.startswith("21 rows scored in ")


@pytest.mark.parametrize(
    ("line", "column", "found"),
    [
        ("4,1,0,1;1,2,1", "city", "4"),
        ("-1,1,0,1;1,2,1", "city", "-1"),
        ("1.0,1,0,1;1,2,1", "city", "'1.0'"),
        ("Bern,1,0,1;1,2,1", "city", "'Bern'"),
        (",1,0,1;1,2,1", "city", "no value"),
        ("0,nan,0,1;1,2,1", "price", "nan"),
        ("0,1,0,1;1,,1", "age", "no value"),
        ("0,1e39,0,1;1,2,1", "price", "1e+39"),
        ("0,1,0,1,2,1", "tags", "1 values"),
        ("0,1,0,1;1;1,2,1", "tags", "3 values"),
        ("0,1,0,1;5,2,1", "tags", "5"),
        ("0,1,0,1;,2,1", "tags", "''"),
        ("0,1,0;1;2;3,1;1,2,1", "words", "4 values"),
        ("0,1,0;6,1;1,2,1", "words", "6"),
        ("0,1,0;-1,1;1,2,1", "words", "-1"),
        ("0,1,0;x,1;1,2,1", "words", "'x'"),
        ("", "price", "no value"),
        ('0,1,0,1;1,2,"1', None, "quotation mark"),
        ("0,1,0,1;1,2", None, "5 fields"),
    ],
)
def test_bad_lines(tmp_path, clicks, capsys, line, column, found):
    """The bad line is the fourth, in the second batch; nothing is written."""
    path, output = csv_file(tmp_path, *LINES, line, *LINES), tmp_path / "scores.csv"
    flags = ["--model", str(clicks), "--input", str(path), "--batch_size", "3"]
    assert main([*flags, "--output", str(output)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --input {path}: row 4 "), error
    named = found if column is None else f"(line 5): column '{column}': found {found}; "
    assert named in error, error
    assert not output.exists()


@pytest.mark.parametrize(
    ("changes", "row", "column", "found"),
    [
        ({"city": [0, None, 2]}, 2, "city", "no value"),
        ({"age": [2.0, float("nan"), 0.5]}, 2, "age", "nan"),
        ({"words": [[5], None, []]}, 2, "words", "no list"),
        ({"words": [[5], [0, None], []]}, 2, "words", "no value"),
        ({"words": [[5], [-1, 0], []]}, 2, "words", "-1"),
        ({"words": [5, 0, 1]}, 1, "words", "one int64"),
        ({"tags": [[1, 1], [4], [2, 3]]}, 2, "tags", "1 values"),
    ],
)
def test_bad_parquet(tmp_path, clicks, capsys, changes, row, column, found):
    path = parquet_file(tmp_path, **changes)
    assert main(["--model", str(clicks), "--input", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --input {path}: row {row}: column '{column}': found {found};")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "does not exist"),
        ("rows.txt", b"", ".csv, .csv.gz, .parquet"),
        ("rows.csv", b"", "got 0 for price, age, city, tags, words"),
        ("rows.csv.gz", b"", "expected one column"),
        ("rows.csv", HEADER.encode(), "has no rows"),
        ("rows.csv", b"citty,price,words,tags,age\n1", "mean 'citty'"),
        ("rows.csv", b"price,age,label\n1", "for city, tags, words. It has price, a"),
        ("rows.csv", b"city;price;words\n1", "It has city;price;words"),
        ("rows.csv", b"city,city,price,words,tags,age\n1", "got 2 for city. It has"),
        ("rows.csv", b'"%s"\n1' % (b"x" * 200_000), "field la"),
        # The second message is that of csv in Python 3.10.
        ("rows.csv", HEADER.encode("utf-16"), "expected one column|line contains NUL"),
        ("rows.csv.gz", b"city\n1", "is not a csv file"),
        ("rows.parquet", b"nothing", "is not a parquet file"),
    ],
)
def test_invalid_files(tmp_path, clicks, capsys, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert main(["--model", str(clicks), "--input", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --input {path}: ") and re.search(message, error), error


def test_suggested_names(tmp_path):
    features = tuple(ServedFeature(f"cat_{i}", "ids", i, 1, 9) for i in (0, 1))
    interface = Interface("dlrm", (ServedTensor("ids", "int32", (2,)),), features, (), (), (), 0)
    with pytest.raises(ValueError, match="got 0 for cat_1. It has cat_0$"):
        FileInput(csv_file(tmp_path, "1", header="cat_0"), interface)


@pytest.mark.parametrize("flags", [[], ["--output", "scores.csv"]])
def test_truncated_file(tmp_path, clicks, capsys, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    noise = np.random.default_rng(0).integers(
        0, 1 << 62, (300, 700)
    )  # values of the ignored column
    rows = [",".join(["0,1,5,1;1,2", "".join(map(str, numbers))]) for numbers in noise]
    text = "\n".join([HEADER, *rows]).encode()
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(text, 1)[:-100])
    assert main(["--model", str(clicks), "--input", "rows.csv.gz", *flags]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: --input rows.csv.gz: is not a csv file that can be read")
    assert error.endswith("Truncated compressed stream\n")
    assert os.listdir(tmp_path) == ["rows.csv.gz"]


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_output_equal_to_input(tmp_path, clicks, capsys, link):
    path = output = csv_file(tmp_path, *LINES)
    before = path.read_bytes()
    if link:
        output = tmp_path / "linked.csv"
        link(path, output)
    assert main(["--model", str(clicks), "--input", str(path), "--output", str(output)]) == 2
    report = f"error: --output {output}: is the same file as {path} of --input, which it would repl"
    assert report in capsys.readouterr().err
    assert path.read_bytes() == before


def test_sigterm(tmp_path, clicks, capsys, monkeypatch):
    """Leaves no file, even if a second signal comes while the hidden file is removed."""

    def score(self, arrays):
        assert len(os.listdir(tmp_path)) == 2  # the hidden file, too
        monkeypatch.setattr("pathlib.Path.unlink", unlink)
        signal.raise_signal(signal.SIGTERM)

    def unlink(path, **_):
        signal.raise_signal(signal.SIGTERM)
        os.unlink(path)

    monkeypatch.setattr(RequestScorer, "score", score)
    before = signal.getsignal(signal.SIGTERM)
    flags = ["--model", str(clicks), "--input", str(csv_file(tmp_path, *LINES))]
    assert main([*flags, "--output", str(tmp_path / "scores.csv")]) == 130
    assert capsys.readouterr().err == "interrupted; nothing was written to --output\n"
    assert os.listdir(tmp_path) == ["rows.csv"]
    assert signal.getsignal(signal.SIGTERM) is before

    def interrupt(*_):  # as Ctrl-C does, which a process in the background does not receive
        raise KeyboardInterrupt

    monkeypatch.setattr(RequestScorer, "score", interrupt)
    assert main(flags) == 130
    assert capsys.readouterr().err == "interrupted; the table on stdout is partial\n"


@pytest.mark.parametrize("flags", [[], ["--output", "scores.npy"]])
def test_closed_stdout(tmp_path, clicks, capsys, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stdout:  # closed without an error
        monkeypatch.setattr("sys.stdout", stdout)
        path = csv_file(tmp_path, *LINES)
        assert main(["--model", str(clicks), "--input", str(path), *flags]) == 141
    assert capsys.readouterr().err == ""


def test_batches_before_bad_row(tmp_path, clicks, capsys):
    path = csv_file(tmp_path, *LINES, "4,1,0,1;1,2,1")
    flags = ["--model", str(clicks), "--input", str(path)]
    assert main(flags) == 2
    assert capsys.readouterr().out == ""
    assert main([*flags, "--batch_size", "2"]) == 2
    assert [line.split(",")[0] for line in capsys.readouterr().out.split()] == ["row", "0", "1"]


def data_set(folder, **changes):
    """Writes six rows, `STORED`, as split binaries of every kind, the words in three files.

    changes: feature -> its keys in the feature spec, None leaves it out; `rows`: the source spec,
        None writes two splits; `type`: the type of all chunks.
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
    rows = changes.pop("rows", {"rows": chunks})
    spec = {
        "feature_spec": {name: keys for name, keys in (features | changes).items() if keys},
        "source_spec": rows or {"rows": chunks, "others": chunks},
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


@pytest.mark.parametrize("flags", [[], ["--mapping", "rows"]])
def test_scores_of_data_set(tmp_path, clicks, capsys, flags):
    folder, output = data_set(tmp_path / "data"), tmp_path / "scores.npy"
    command_line = ["--model", str(clicks), "--input", str(folder), "--output", str(output)]
    assert main([*command_line, "--batch_size", "4", *flags]) == 0
    assert np.array_equal(np.load(output), RequestScorer(clicks).score(STORED)[:, 0])
    assert capsys.readouterr().out.endswith("no feature is named after were ignored: label\n")


@pytest.mark.parametrize(
    ("file", "changes", "report"),
    [
        ("x.bin", {"price": np.inf}, "row 5: column 'price': found inf; numerical features are "),
        ("city.bin", {"city": 4}, "row 5: column 'city': found 4; ids lie in .*; --unknown_ids ze"),
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


def test_folders_without_data_set(tmp_path, clicks, capsys):
    model = ["--model", str(clicks), "--input"]
    assert main([*model, str(tmp_path)]) == 2
    assert "or the folder of a data set, got a folder without feature_spec.yaml" in (
        capsys.readouterr().err
    )
    folder = data_set(tmp_path / "data")
    for path in folder.glob("*.bin"):
        path.write_bytes(b"")
    assert main([*model, str(folder)]) == 2
    assert "split 'rows': has no rows" in capsys.readouterr().err
    path = csv_file(tmp_path, *LINES)
    assert main([*model, str(path), "--mapping", "rows"]) == 2
    assert f"--mapping rows: expected the folder of a data set as --input, got {path}" in (
        capsys.readouterr().err
    )


def test_texts_by_training_vocabulary(trained_of_texts, tmp_path, capsys):
    """Encodes new rows of texts as in training: the scores are those of `--mode predict`."""
    raw, data = tmp_path / "raw", tmp_path / "data"
    trained.write_shop(raw / "tomorrow.csv", 50, seed=2, label=False)
    columns = ["city", "user", "tags", "price"]
    chunk = {"type": "csv", "header": True, "features": columns, "files": ["tomorrow.csv"]}
    spec = {
        "feature_spec": {"price": {}, "city": {}, "user": {}, "tags": {"hotness": 2}},
        "source_spec": {"test": [chunk]},
        "channel_spec": {"numerical": ["price"], "categorical": ["city", "user", "tags"]},
    }
    (raw / "feature_spec.yaml").write_text(yaml.safe_dump(spec))
    vocabulary = f"--vocabulary={trained_of_texts.data}"
    assert transcode.main([f"--input={raw}", f"--output={data}", vocabulary]) == 0
    models = tmp_path / "models"
    where = [f"--checkpoint_dir={trained_of_texts.checkpoint}", f"--model_repository={models}"]
    assert deploy.main([*where, "--monolithic"]) == 0
    output = tmp_path / "scores.npy"
    flags = ["--model", str(models), "--output", str(output), "--input"]
    assert main([*flags, str(data)]) == 0
    expected = trained_of_texts._replace(data=data).scores(tmp_path / "predicted")
    assert len(expected) == 50 and len(set(expected)) > 25
    np.testing.assert_allclose(np.load(output), expected, rtol=0, atol=1e-6)
    assert main([*flags, str(raw / "tomorrow.csv")]) == 2
    assert "`python -m preproc.transcode --vocabulary DATA`" in capsys.readouterr().err


def test_unknown_ids(tmp_path):
    folder = write_clicks(tmp_path / "clicks/1", unknown_ids="zero")
    lines = [LINES[0], f"{2**40},0,0;1;77,4;9,-3,0"]
    output = tmp_path / "scores.npy"
    flags = ["--model", str(folder), "--input", str(csv_file(tmp_path, *lines))]
    assert main([*flags, "--output", str(output)]) == 0
    arrays = {name: array[:2].copy() for name, array in ARRAYS.items()}
    arrays[CATEGORICAL][1] = [0, 4, 0, 0, 1, 0]
    np.testing.assert_allclose(np.load(output), expected_scores(arrays)[:, 0], rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    "flags", ["--batch_size 0", "--batch_size 9", "--threads -1", "--output scores.txt"]
)
def test_bad_flags(tmp_path, clicks, capsys, flags):
    path = csv_file(tmp_path, *LINES)
    assert main(["--model", str(clicks), "--input", str(path), *flags.split()]) == 2
    name, value = flags.split()
    error = capsys.readouterr().err
    assert error.startswith(f"error: {name}") and value in error


def test_invalid_output_before_input(tmp_path, clicks, capsys):
    rows, output = tmp_path / "none.csv", tmp_path / "scores.csv"
    output.mkdir()
    flags = ["--model", str(clicks), "--input", str(rows), "--output", str(output)]
    assert main(flags) == 2
    assert "directory: '" + str(output) in capsys.readouterr().err


def test_score_of_nan(tmp_path, clicks, capsys):
    """The sum of two rows of the last tag is large, and 1.25 times this sum exceeds float32."""
    folder = tmp_path / "clicks/1"
    shutil.copytree(clicks, folder)
    rows = np.load(folder / "tables/two.npy")
    rows[8] = 1.5e38
    np.save(folder / "tables/two.npy", rows)
    path = csv_file(tmp_path, *LINES[1:], "0,0,5,4;4,1,1")
    assert main(["--model", str(folder), "--input", str(path)]) == 2
    error = capsys.readouterr().err
    assert f"error: --input {path}: row 3 (line 4): found a score of NaN; its logit is not" in error


def models(repository, **roles):
    """Writes models of these roles to a repository; the role ensemble is that of all others."""
    for name, role in roles.items():
        folder = repository / name / "1"
        if role == "ensemble":
            folder.mkdir(parents=True)
            parts = [part for part in roles if part.startswith(f"{name}_")]
            write_origin(folder.parent, {}, [*parts, name])
        else:
            write_clicks(folder, role=role)
    return repository


ENSEMBLE = {"e": "ensemble", "e_sparse": "sparse", "e_dense": "dense"}


@pytest.mark.parametrize(
    ("roles", "path", "by"),
    [
        ({"a": "scorer"}, ".", ["a/1"]),
        ({"a": "scorer"}, "a", ["a/1"]),
        ({"a": "scorer"}, "a/1", ["a/1"]),
        (ENSEMBLE, ".", ["e_sparse/1", "e_dense/1"]),
        (ENSEMBLE, "e", ["e_sparse/1", "e_dense/1"]),
        (ENSEMBLE | {"a": "scorer"}, "a", ["a/1"]),
        ({"a": "scorer", "a_checks": "checks"}, ".", ["a/1"]),
    ],
)
def test_model_of_path(tmp_path, capsys, roles, path, by):
    repository = models(tmp_path / "repository", **roles)
    rows = csv_file(tmp_path, *LINES)
    output = tmp_path / "scores.npy"
    flags = ["--model", str(repository / path), "--input", str(rows), "--output", str(output)]
    assert main(flags) == 0
    folders = " and ".join(str(repository / folder) for folder in by)
    assert f" s by {folders}; columns" in capsys.readouterr().out
    np.testing.assert_allclose(np.load(output), expected_scores(ARRAYS)[:, 0], rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("roles", "path", "report"),
    [
        ({}, "none", "does not exist"),
        ({}, ".", "has no model"),
        ({"a": "scorer"} | ENSEMBLE, ".", "several models; name one of them: .*/a, .*/e$"),
        ({"a_checks": "checks", "b": "ensemble"}, ".", "only a part of an ensemble"),
        ({"b": "ensemble", "b_sparse": "sparse"}, "b", "only a part of an ensemble"),
        (ENSEMBLE, "e_dense", "only a part of an ensemble"),
        (ENSEMBLE, "e_sparse/1", "only a part of an ensemble"),
    ],
)
def test_paths_without_model(tmp_path, capsys, roles, path, report):
    repository = models(tmp_path / "repository", **roles)
    repository.mkdir(exist_ok=True)
    rows = csv_file(tmp_path, *LINES)
    assert main(["--model", str(repository / path), "--input", str(rows)]) == 2
    assert re.match(f"error: --model .*{report}", capsys.readouterr().err.strip())


def test_alignment_of_histories(tmp_path):
    """The latest id of a sequence comes last; a shorter sequence starts with zeros."""
    interface = Interface(
        "sim",
        (
            ServedTensor(NUMERICAL, "float32", (2,)),
            ServedTensor("target", "int64", (1,)),
            ServedTensor("history", "int64", (1, 2)),
        ),
        (
            ServedFeature("a", NUMERICAL, 0, 2, None),
            ServedFeature("target", "target", 0, 1, 9),
            ServedFeature("items", "history", 0, 2, 9),
        ),
        (ServedLookup("item", "target", 0, 1, None), ServedLookup("item", "history", 0, 2, None)),
        (ServedTable("item", 9, 2, "float32", "item.npy"),),
        (NUMERICAL,),
        6,
        histories=("history",),
    )
    table = {"a": [[1.0, 2.0]] * 3, "target": [3, 4, 8], "items": [[7, 2], [5], []]}
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(table), path)
    (result,) = FileInput(path, interface).requests(8)
    assert result.first_row == 1
    assert result.arrays["history"].tolist() == [[[7, 2]], [[0, 5]], [[0, 0]]]
    assert result.arrays["target"].tolist() == [[3], [4], [8]]
    assert result.arrays["history"].dtype == np.int64
    assert result.arrays[NUMERICAL].tolist() == [[1, 2]] * 3


def test_command_as_process(tmp_path, clicks, run_script):
    path = csv_file(tmp_path, *LINES)
    done = run_script("-m", "deployment.predict", "--model", clicks, "--input", path)
    assert done.returncode == 0 and done.stdout.count("\n") == 4, done.stderr
    assert run_script("-m", "deployment.predict", "--mod", clicks).returncode == 2
