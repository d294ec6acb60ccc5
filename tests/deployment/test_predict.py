"""Raw rows through the command: scores by hand, by evaluation, bad rows, encoded data sets."""

import dataclasses
import gzip
import json
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

from deployment.predict.__main__ import main
from deployment.serving.scorer import RequestScorer
from preproc.encoding.encoder import Encoder
from preproc.transcode import __main__ as transcode
from tests.deployment.serving.made_models import expected_scores, request

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
ARRAYS = request(3)


def csv_file(folder, *lines, header=HEADER, name="rows.csv"):
    path = folder / name
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def table_file(folder, kind):
    """The rows as a file, or a folder of two part files."""
    path = folder / f"rows.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table(TABLE), path)
    elif kind == "jsonl":
        rows = pa.table(TABLE).to_pylist()
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    elif kind == "parts":
        path.mkdir()
        csv_file(path, *LINES[:1], name="part-2.csv")
        csv_file(path, *LINES[1:], name="part-10.csv")
    else:
        text = "\n".join([HEADER, *LINES])
        text = text.replace(",", "\t") if kind == "tsv" else text
        path.write_bytes(gzip.compress(text.encode()) if kind == "csv.gz" else text.encode())
    return path


def written(path):
    """The scores in a file, and the numbers of their rows where it has them."""
    if path.suffix == ".npy":
        return None, np.load(path)
    table = pa_csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)
    return table["row"].to_pylist(), table["score"].to_numpy().astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "ending"),
    [*(("csv.gz", ".parquet"), ("tsv", ".npy"), ("jsonl", ".csv"), ("parts", ".npy"))],
)
def test_scores_of_files(tmp_path, clicks, capsys, kind, ending):
    path, output = table_file(tmp_path, kind), tmp_path / f"scores{ending}"
    flags = ("--model", str(clicks), "--input", str(path), "--threads", "1")
    assert main([*flags, "--output", str(output), "--batch_size", "2"]) == 0
    rows, scores = written(output)
    assert rows in (None, [0, 1, 2])
    assert np.array_equal(scores, RequestScorer(clicks).score(ARRAYS)[:, 0])
    np.testing.assert_allclose(scores, expected_scores(ARRAYS)[:, 0], rtol=0, atol=1e-7)
    report = capsys.readouterr().out
    assert report.startswith("3 rows scored in ")
    assert report.endswith(f"by {clicks}; ignored columns: label\n")


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


def test_kept_columns(tmp_path, clicks):
    """Texts as they are in a CSV file, types and lists of a Parquet file."""
    flags = ["--model", str(clicks), "--keep", "label,words", "--input"]
    output = tmp_path / "scores.csv"
    assert main([*flags, str(table_file(tmp_path, "csv")), "--output", str(output)]) == 0
    rows = [line.rpartition(",")[0] for line in output.read_text().splitlines()]
    assert rows == ["row,label,words", '0,"1","5"', '1,"0","0;1;2"', '2,"1",']
    output = tmp_path / "scores.parquet"
    assert main([*flags, str(table_file(tmp_path, "parquet")), "--output", str(output)]) == 0
    table = pq.read_table(output)
    assert table.column_names == ["row", "label", "words", "score"]
    assert table["label"].to_pylist() == [1, 0, 1]
    assert table["words"].to_pylist() == [[5], [0, 1, 2], []]


def test_kept_columns_of_groups(tmp_path, clicks, monkeypatch):
    """Row groups of the output end elsewhere than the batches of the input."""
    monkeypatch.setattr("preproc.engines.duckdb_session._BATCH_ROWS", 2048)
    monkeypatch.setattr("runtime.files.column_files.GROUP_ROWS", 3000)
    num_rows = 10_000
    columns = {"city": [0] * num_rows, "tags": [[1, 1]] * num_rows, "words": [[5]] * num_rows}
    columns |= {"price": [1.5] * num_rows, "age": [2.0] * num_rows, "order": range(num_rows)}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    flags = ["--model", str(clicks), "--input", str(tmp_path / "rows.parquet"), "--keep", "order"]
    assert main([*flags, "--output", str(tmp_path / "scores.parquet")]) == 0
    table = pq.read_table(tmp_path / "scores.parquet")
    assert table["order"].to_pylist() == table["row"].to_pylist() == list(range(num_rows))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("4,1,0,1;1,2,1", "row 4 .*, column 'city': got '4'; expected an id in [0, 4)"),
        ("0,1,0,1;1,,1", "row 4 .*, column 'age': got no value; expected a value"),
        ("0,1,[,1;1,2,1", "row 4 .*, column 'words': got '['; expected a JSON array"),
        ("0,1,0,1;1,2", "line 5: expected 6 fields"),
    ],
)
def test_bad_rows(tmp_path, clicks, capsys, line, problem):
    """The bad row is the fourth, in the second batch; nothing is written."""
    path, output = csv_file(tmp_path, *LINES, line, *LINES), tmp_path / "scores.csv"
    flags = ["--model", str(clicks), "--input", str(path), "--batch_size", "3"]
    assert main([*flags, "--output", str(output)]) == 2
    pattern = re.escape(problem).replace(re.escape(".*"), ".*")
    assert re.match(f"error: {re.escape(str(path))}, {pattern}", capsys.readouterr().err)
    assert not output.exists()


def test_skipped_line(tmp_path, clicks, capsys):
    path = csv_file(tmp_path, *LINES * 40, "0,1")
    output = tmp_path / "scores.npy"
    flags = ["--model", str(clicks), "--input", str(path), "--output", str(output)]
    assert main([*flags, "--on_bad_line", "skip"]) == 0
    assert len(np.load(output)) == 120
    assert "skipped 1 of 121 lines" in capsys.readouterr().err


def test_bad_row_of_parts(tmp_path, clicks, capsys):
    """The second file has it."""
    path = table_file(tmp_path, "parts")
    csv_file(path, *LINES[1:], "9,0,0,1;1,2,1", name="part-10.csv")
    assert main(["--model", str(clicks), "--input", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {path / 'part-10.csv'}, row 3 ")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "does not exist"),
        ("rows.csv", HEADER.encode(), "expected rows, got the names of columns alone"),
        ("rows.csv", b"citty,price,words,tags,age\nx", "the columns city, got .*called 'citty'"),
        ("rows.jsonl", b'{"price": 1, "age": 2}\n', "the columns city, tags, words, got price"),
    ],
)
def test_invalid_files(tmp_path, clicks, capsys, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert main(["--model", str(clicks), "--input", str(path)]) == 2
    error = capsys.readouterr().err
    assert str(path) in error and re.search(message, error), error


def test_output_equal_to_input(tmp_path, clicks, capsys):
    path, output = csv_file(tmp_path, *LINES), tmp_path / "linked.csv"
    before = path.read_bytes()
    os.link(path, output)
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


@pytest.fixture(scope="module")
def shop_models(trained_of_texts, tmp_path_factory):
    """The model of texts, with the encoder of its data set."""
    models = tmp_path_factory.mktemp("shop") / "models"
    assert trained_of_texts.deploy(models, "--monolithic") == 0
    return models


def test_unknown_and_missing_values(trained_of_texts, shop_models, tmp_path, capsys):
    """They have id 0, as `transcode --vocabulary` encodes them; the report counts the unknown."""
    raw, data, output = tmp_path / "raw", tmp_path / "data", tmp_path / "scores.npy"
    raw.mkdir()
    lines = [
        "Bern,user3,new;sale,9.5",
        "Lima,user4,red,1",
        "NA,,,2.25",
        "Oslo,nobody,old;red;new,3",
    ]
    path = csv_file(raw, *lines, header="city,user,tags,price", name="rows.csv")
    flags = ["--model", str(shop_models), "--output", str(output), "--input"]
    assert main([*flags, str(path)]) == 0
    report = capsys.readouterr().out
    # Of 3 cities, 1 is unknown; of 5 tags that are read, 1; a third tag is not.
    first, checks = report.splitlines()
    assert first.endswith("; unknown values: city 33.33%, tags 20.00%; truncated lists: tags 1")
    assert checks == "checks: 2 passed"  # of so few values, a share is chance
    scores = np.load(output)
    columns = ["city", "user", "tags", "price"]
    chunk = {"type": "csv", "header": True, "features": columns, "files": ["rows.csv"]}
    spec = {
        "feature_spec": {"price": {}, "city": {}, "user": {}, "tags": {"hotness": 2}},
        "source_spec": {"test": [chunk]},
        "channel_spec": {"numerical": ["price"], "categorical": ["city", "user", "tags"]},
    }
    (raw / "feature_spec.yaml").write_text(yaml.safe_dump(spec))
    vocabulary = f"--vocabulary={trained_of_texts.data}"
    assert transcode.main([f"--input={raw}", f"--output={data}", vocabulary]) == 0
    assert main([*flags, str(data)]) == 0
    assert np.array_equal(scores, np.load(output))


@pytest.mark.parametrize("name", ["city", "price"])
def test_data_set_of_another_encoding(trained_of_texts, shop_models, tmp_path, capsys, name):
    """Its ids are other values, or its numbers have another scale."""
    data, scores = tmp_path / "data", tmp_path / "scores.npy"
    shutil.copytree(trained_of_texts.data, data)
    flags = ["--model", str(shop_models), "--input", str(data), "--output", str(scores)]
    assert main([*flags, "--mapping", "train"]) == 0
    encoder = Encoder.load(data / "encoder")
    encoding = encoder[name]
    if name == "city":
        changed = dataclasses.replace(encoding, values=encoding.values[::-1])
    else:
        changed = dataclasses.replace(encoding, transformation="standardize", mean=5.0)
    features = tuple(changed if each is encoding else each for each in encoder.features)
    shutil.rmtree(data / "encoder")
    other = dataclasses.replace(encoder, features=features)
    other.save(data / "encoder")
    spec = data / "feature_spec.yaml"
    spec.write_text(spec.read_text().replace(encoder.digest, other.digest))
    assert main([*flags, "--mapping", "train"]) == 2
    assert f"feature '{name}': expected the encoding of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ("--batch_size 9", "--batch_size"),
        ("--output scores.txt", "--output"),
        ("--output scores.npy --keep label", "--output"),
        ("--keep label", "--keep"),
        ("--memory_limit 1", "--memory_limit"),
        ("--engine spark --output x.csv --master yarn --memory_limit 2GB", "--memory_limit"),
    ],
)
def test_bad_flags(tmp_path, clicks, capsys, monkeypatch, flags, name):
    monkeypatch.chdir(tmp_path)
    path = csv_file(tmp_path, *LINES)
    assert main(["--model", str(clicks), "--input", str(path), *flags.split()]) == 2
    assert capsys.readouterr().err.startswith(f"error: {name}")


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
    assert error.startswith(f"error: {path}, row 3 ") and "got a score of NaN; its logit" in error


def test_rows_unlike_those_of_training(trained_of_texts, shop_models, tmp_path, capsys):
    """Numbers in other units and unknown values are named, and --strict refuses them."""
    lines = [f"nowhere,user{i % 9},red,{1000 + i}" for i in range(50)]
    path = csv_file(tmp_path, *lines, header="city,user,tags,price", name="rows.csv")
    output = tmp_path / "scores.csv"
    flags = ["--model", str(shop_models), "--output", str(output), "--input", str(path)]
    assert main([*flags, "--strict"]) == 2
    assert (
        "--strict: 1 checks warn:\n  drift: 'price': the mean is 1024.5" in capsys.readouterr().err
    )
    assert not output.exists()
    assert main(flags) == 0
    report = capsys.readouterr().out
    assert "100.0% of the numbers are outside of its range" in report
    assert "'city': 100.00% of the values of the input have id 0" in report
    assert output.exists()
    path.write_text(path.read_text().replace(",10", ","))
    assert main([*flags, "--strict"]) == 2
    assert "--strict: 1 checks warn:\n  unknown_values: 'city'" in capsys.readouterr().err
