"""Tables without a header, or with other delimiters."""

import re

import pytest

from deployment.predict.source_rows import open_rows
from preproc.encoding.encoder import Encoder
from tests.preproc.transcode.test_transcode import run, stored

ROWS = [f"{i % 2},{i / 7:.3f},{('Bern', 'Oslo', 'Rome')[i % 3]}" for i in range(60)]
FLAGS = ("--label=c1", "--frequency_threshold=0")


def write(path, rows=ROWS, header="", delimiter=","):
    lines = [header, *rows] if header else rows
    path.write_text("".join(line.replace(",", delimiter) + "\n" for line in lines))
    return path


def test_columns_without_names(tmp_path, capsys):
    path = write(tmp_path / "rows.csv")
    out = tmp_path / "out"
    assert run(path, *FLAGS, output=out) == 2
    message = capsys.readouterr().err
    assert "got the numbers 0, 0.000; possible solutions: add a header, or --no_header" in message
    assert run(path, *FLAGS, "--no_header", output=out) == 0
    assert stored(out, "c1") == [i % 2 for i in range(60)]
    assert [f.column for f in Encoder.load(out / "encoder").features] == ["c1", "c2", "c3"]
    later = write(tmp_path / "later.csv", ["1,0.5,Rome", "0,1,Bern"])
    known = (f"--vocabulary={out}", "--no_header")
    assert run(later, *known, output=tmp_path / "new") == 0
    assert stored(tmp_path / "new", "c1", "test") == [1, 0]
    # The same rows with a header of these names.
    named = write(tmp_path / "named.csv", ["Rome,0.5", "Bern,1"], "c3,c2")
    assert run(named, known[0], output=tmp_path / "named") == 0
    assert stored(tmp_path / "named", "c3", "test") == stored(tmp_path / "new", "c3", "test")
    with open_rows(later, ["c3", "c2"], has_header=False) as rows:  # as deployment.predict does
        assert [batch.to_pylist() for batch in rows.batches()] == [
            [{"c3": "Rome", "c2": "0.5"}, {"c3": "Bern", "c2": "1"}]
        ]
        assert rows.ignored == ["c1"]
    capsys.readouterr()
    unlabeled = write(tmp_path / "unlabeled.csv", ["0.5,Rome", "1,Bern"])
    assert run(unlabeled, *known, output=tmp_path / "refused") == 2
    assert "expected 3 as in the files of" in (message := capsys.readouterr().err)
    assert "got 2 in" in message and "add a header with the names c1, c2" in message


@pytest.mark.parametrize(
    ("name", "text", "flags", "message"),
    [
        ("rows.json", '{"a": 1}\n', ["--no_header"], "--no_header: expected files of CSV"),
        ("rows.csv", "", ["--no_header"], "the file is empty; expected rows"),
        (
            "rows.csv",
            "no,Bern\nyes,Oslo\nno,Rome\nyes,Bern\n",
            ["--label=no"],
            "got no, Bern, which are values of these columns in later lines, too; .*--no_header",
        ),
    ],
)
def test_errors(name, text, flags, message, tmp_path, capsys):
    path = tmp_path / name
    path.write_text(text)
    assert run(path, *flags, output=tmp_path / "out") == 2
    assert re.search(message, capsys.readouterr().err)


def test_part_files_without_a_header(tmp_path):
    (tmp_path / "day").mkdir()
    write(tmp_path / "day/part-0.csv", ROWS[:30], delimiter="|")
    write(tmp_path / "day/part-1.csv", ROWS[30:], delimiter="|")
    assert run(tmp_path / "day", *FLAGS, "--no_header", output=tmp_path / "out") == 0
    assert stored(tmp_path / "out", "c1") == [i % 2 for i in range(60)]
    names = [f.column for f in Encoder.load(tmp_path / "out/encoder").features]
    assert names == ["c1", "c2", "c3"]


def test_names_of_pandas(tmp_path):
    """The names of a frame without names are numbers in order."""
    path = write(tmp_path / "rows.csv", [f"{i},{row},3" for i, row in enumerate(ROWS)], ",0,1,2,3")
    assert run(path, "--label=0", output=tmp_path / "out") == 0
    assert stored(tmp_path / "out", "0") == [i % 2 for i in range(60)]


def test_answers_with_the_name_of_their_column(tmp_path):
    path = write(tmp_path / "rows.csv", ["1,red,", "0,,blue", "1,red,blue"] * 9, "y,red,blue")
    assert run(path, "--label=y", output=tmp_path / "out") == 0


def test_spec_with_header(tmp_path, capsys):
    (tmp_path / "feature_spec.yaml").write_text("{}")
    assert run(tmp_path, "--no_header") == 2
    assert "--no_header: 'header' of the chunks in" in capsys.readouterr().err
