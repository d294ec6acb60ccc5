"""Files of rows through the command: scores by hand, every format, every kind of bad value."""

import gzip
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from deployment.predict import main
from deployment.predict_rows import RowFile
from deployment.serving.interface import Feature, Interface, LookUp, Table, Tensor
from deployment.serving.scorer import Scorer
from tests.deployment.serving.made_models import (
    CATEGORICAL,
    NUMERICAL,
    expected_scores,
    write_clicks,
)

HEADER = "city,price,words,tags,age,label"
# The rows of `made_models.request(3)`, columns in another order, and one that no feature is.
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
def test_scores_are_those_of_the_scorer(tmp_path, clicks, capsys, kind, ending):
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
    assert np.array_equal(scores, Scorer(clicks).score(ARRAYS)[:, 0])
    np.testing.assert_allclose(scores, expected_scores(ARRAYS)[:, 0], rtol=0, atol=1e-7)
    said = capsys.readouterr().out
    assert said.startswith("3 rows scored in ") and f"by {clicks};" in said
    assert said.endswith("no feature is named after were ignored: label\n")


def test_to_stdout(tmp_path, clicks, capsys):
    path = csv_file(tmp_path, *LINES * 7)
    assert main(["--model", str(clicks), "--input", str(path)]) == 0
    done = capsys.readouterr()
    header, *lines = done.out.splitlines()
    assert header == "row,score"
    assert [int(line.split(",")[0]) for line in lines] == list(range(21))
    scores = np.array([line.split(",")[1] for line in lines], np.float32)
    assert np.array_equal(scores, np.tile(Scorer(clicks).score(ARRAYS)[:, 0], 7))
    assert done.err.startswith("21 rows scored in ")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("4,1,0,1;1,2,1", "row 4 (line 5): column 'city': found 4; needed: an id as in training"),
        ("-1,1,0,1;1,2,1", "column 'city': found -1; needed: an id as in training, of the whole"),
        ("1.5,1,0,1;1,2,1", "column 'city': found '1.5'; needed: an id"),
        ("Bern,1,0,1;1,2,1", "column 'city': found 'Bern'; needed: an id"),
        (",1,0,1;1,2,1", "column 'city': found no value; needed: an id"),
        ("0,nan,0,1;1,2,1", "column 'price': found nan; needed: a finite number"),
        ("0,1,0,1;1,,1", "column 'age': found no value; needed: a finite number (write 0"),
        ("0,1e39,0,1;1,2,1", "column 'price': found 1e+39; needed: a finite number"),
        ("0,1,0,1,2,1", "column 'tags': found 1 values; needed: 2 ids as in training"),
        ("0,1,0,1;1;1,2,1", "column 'tags': found 3 values; needed: 2 ids"),
        ("0,1,0,1;5,2,1", "column 'tags': found 5; needed: 2 ids as in training, whole numbers fr"),
        ("0,1,0,1;,2,1", "column 'tags': found ''; needed: 2 ids"),
        ("0,1,0;1;2;3,1;1,2,1", "column 'words': found 4 values; needed: at most 3 ids"),
        ("0,1,0;6,1;1,2,1", "column 'words': found 6; needed: at most 3 ids"),
        ("0,1,0;x,1;1,2,1", "column 'words': found 'x'; needed: at most 3 ids"),
        ("0,1,0,1;1,2", "row 4 has 5 fields, there are 6 columns"),
    ],
)
def test_bad_lines(tmp_path, clicks, capsys, line, said):
    """They come fourth, in the second batch; nothing is written."""
    path, output = csv_file(tmp_path, *LINES, line, *LINES), tmp_path / "scores.csv"
    flags = ["--model", str(clicks), "--input", str(path), "--batch_size", "3"]
    assert main([*flags, "--output", str(output)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}: ") and said in error and "row 4" in error
    assert not output.exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"city": [0, None, 2]}, "row 2: column 'city': found no value; needed: an id"),
        ({"age": [2.0, float("nan"), 0.5]}, "row 2: column 'age': found nan; needed: a finite"),
        ({"words": [[5], None, []]}, "row 2: column 'words': found no list; needed: at most 3"),
        ({"words": [[5], [0, None], []]}, "row 2: column 'words': found no value; needed"),
        ({"words": [[5], [-1, 0], []]}, "row 2: column 'words': found -1; needed: at most 3"),
        ({"words": [5, 0, 1]}, "row 1: column 'words': found one int64; needed: at most 3"),
        ({"tags": [[1, 1], [4], [2, 3]]}, "row 2: column 'tags': found 1 values; needed: 2"),
        ({"city": None, "tags": None}, "lacks the columns city, tags; needed: one for each"),
    ],
)
def test_bad_parquet(tmp_path, clicks, capsys, changes, said):
    path = parquet_file(tmp_path, **changes)
    assert main(["--model", str(clicks), "--input", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and str(path) in error and said in error
    assert "line" not in error


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.csv", None, "there is no such file"),
        ("rows.txt", b"", "its name says no format; allowed: .csv, .parquet"),
        ("rows.csv", b"", "is empty; needed: a header, then rows"),
        ("rows.csv", HEADER.encode(), "has no rows"),
        (
            "rows.csv",
            b"citty,price,words,tags,age\n",
            "lacks the columns city; .*; did you mean 'c",
        ),
        ("rows.csv", b"city,city,price,words,tags,age\n1", "'city' 2 times; needed: once"),
        ("rows.parquet", b"nothing", "is no Parquet file"),
    ],
)
def test_files_that_are_none(tmp_path, clicks, capsys, name, content, said):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert main(["--model", str(clicks), "--input", str(path)]) == 2
    error = capsys.readouterr().err
    with pytest.raises(ValueError, match=f"error: .*{name}.*{said}"):
        raise ValueError(error)


def test_unknown_ids_are_zero_where_the_model_says_so(tmp_path):
    folder = write_clicks(tmp_path / "clicks/1", unknown_ids="zero")
    lines = [LINES[0], f"{2**40},0,0;1;77,4;9,-3,0"]
    output = tmp_path / "scores.npy"
    flags = ["--model", str(folder), "--input", str(csv_file(tmp_path, *lines))]
    assert main([*flags, "--output", str(output)]) == 0
    arrays = {name: array[:2].copy() for name, array in ARRAYS.items()}
    arrays[CATEGORICAL][1] = [0, 4, 0, 0, 1, 0]
    np.testing.assert_allclose(np.load(output), expected_scores(arrays)[:, 0], rtol=0, atol=1e-7)


def test_unknown_ids_are_zero_but_not_negative_ones(tmp_path, capsys):
    folder = write_clicks(tmp_path / "clicks/1", unknown_ids="zero")
    path = csv_file(tmp_path, "-1,1,0,1;1,2,1")
    assert main(["--model", str(folder), "--input", str(path)]) == 2
    assert "found -1; needed: an id as in training, of the whole numbers of 0 or more" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--batch_size", "0"], "--batch_size is 0; allowed: 1 to 8, the model's max_batch_size"),
        (["--batch_size", "9"], "--batch_size is 9; allowed: 1 to 8"),
        (["--threads", "-1"], "--threads is -1; allowed: 0 (one for each core) or more"),
        (["--output", "scores.txt"], "scores.txt ends with '.txt'; allowed: .parquet, .csv, .npy"),
    ],
)
def test_bad_flags(tmp_path, clicks, capsys, flags, said):
    path = csv_file(tmp_path, *LINES)
    assert main(["--model", str(clicks), "--input", str(path), *flags]) == 2
    assert said in capsys.readouterr().err


def test_where_scores_go_is_looked_at_before_the_work(tmp_path, clicks, capsys):
    rows, output = tmp_path / "none.csv", tmp_path / "scores.csv"
    output.mkdir()
    flags = ["--model", str(clicks), "--input", str(rows), "--output", str(output)]
    assert main(flags) == 2
    assert f"{output} exists and is no file" in capsys.readouterr().err


def test_a_score_that_is_no_number(tmp_path, clicks, capsys):
    """The sum of two rows of the last tag is large, and 1.25 times it too large for float32."""
    folder = tmp_path / "clicks/1"
    shutil.copytree(clicks, folder)
    rows = np.load(folder / "tables/two.npy")
    rows[8] = 1.5e38
    np.save(folder / "tables/two.npy", rows)
    path = csv_file(tmp_path, *LINES[1:], "0,0,5,4;4,1,1")
    assert main(["--model", str(folder), "--input", str(path)]) == 2
    error = capsys.readouterr().err
    assert f"error: {path}: row 1 (line 2) and those behind it: the score of row 2" in error


def models(repository, **roles):
    """Models of these roles in a repository; of the role ensemble only a folder of Triton's."""
    for name, role in roles.items():
        folder = repository / name / "1"
        if role == "ensemble":
            folder.mkdir(parents=True)
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
def test_which_model_a_path_means(tmp_path, capsys, roles, path, by):
    repository = models(tmp_path / "repository", **roles)
    rows = csv_file(tmp_path, *LINES)
    output = tmp_path / "scores.npy"
    flags = ["--model", str(repository / path), "--input", str(rows), "--output", str(output)]
    assert main(flags) == 0
    folders = " and ".join(str(repository / folder) for folder in by)
    assert f" s by {folders}; columns" in capsys.readouterr().out
    np.testing.assert_allclose(np.load(output), expected_scores(ARRAYS)[:, 0], rtol=0, atol=1e-7)


def test_the_highest_version_is_taken(tmp_path, capsys):
    repository = models(tmp_path / "repository", a="scorer")
    for version in (9, 10):
        shutil.copytree(repository / "a/1", repository / f"a/{version}")
    assert main(["--model", str(repository), "--input", str(csv_file(tmp_path, *LINES))]) == 0
    assert f"by {repository / 'a/10'};" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("roles", "path", "said"),
    [
        ({}, "none", "there is no such folder; allowed: a version folder"),
        ({}, ".", "has no models; allowed: a version folder"),
        ({"a": "scorer"} | ENSEMBLE, ".", "has a, e; name one of them: .*/a$"),
        ({"a_checks": "checks", "b": "ensemble"}, ".", "has a_checks, b; allowed: a version"),
        ({"b": "ensemble", "b_sparse": "sparse"}, "b", "no interface.json in its version 1, and "),
        (ENSEMBLE, "e_dense", "is the part dense of an ensemble; name the ensemble's folder"),
        (ENSEMBLE, "e_sparse/1", "is the part sparse of an ensemble; name"),
    ],
)
def test_paths_that_mean_no_model(tmp_path, capsys, roles, path, said):
    repository = models(tmp_path / "repository", **roles)
    repository.mkdir(exist_ok=True)
    rows = csv_file(tmp_path, *LINES)
    assert main(["--model", str(repository / path), "--input", str(rows)]) == 2
    with pytest.raises(ValueError, match=f"^error: --model .*{said}"):
        raise ValueError(capsys.readouterr().err.strip())


def test_histories_are_right_aligned(tmp_path):
    """Of a sequence the latest id comes last; a shorter one has zeros in front."""
    interface = Interface(
        "sim",
        (
            Tensor(NUMERICAL, "float32", (2,)),
            Tensor("target", "int64", (1,)),
            Tensor("history", "int64", (1, 2)),
        ),
        (
            Feature("a", NUMERICAL, 0, 2, None),
            Feature("target", "target", 0, 1, 9),
            Feature("items", "history", 0, 2, 9),
        ),
        (LookUp("item", "target", 0, 1, None), LookUp("item", "history", 0, 2, None)),
        (Table("item", 9, 2, "float32", "item.npy"),),
        (NUMERICAL,),
        6,
    )
    table = {"a": [[1.0, 2.0]] * 3, "target": [3, 4, 8], "items": [[7, 2], [5], []]}
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(table), path)
    (found,) = RowFile(path, interface).requests(8)
    assert found.first_row == 1
    assert found.arrays["history"].tolist() == [[[7, 2]], [[0, 5]], [[0, 0]]]
    assert found.arrays["target"].tolist() == [[3], [4], [8]]
    assert found.arrays["history"].dtype == np.int64
    assert found.arrays[NUMERICAL].tolist() == [[1, 2]] * 3


def test_as_a_program(tmp_path, clicks, run_script):
    path = csv_file(tmp_path, *LINES)
    done = run_script("-m", "deployment.predict", "--model", clicks, "--input", path)
    assert done.returncode == 0 and done.stdout.count("\n") == 4, done.stderr
    assert run_script("-m", "deployment.predict", "--mod", clicks).returncode == 2
