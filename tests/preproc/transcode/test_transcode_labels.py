"""Labels of a table: errors, shares, splits of one class, later rows."""

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preproc.encoding.encoder import Encoder
from tests.preproc.transcode.test_label_spellings import write
from tests.preproc.transcode.test_transcode import run, stored


def prepare(folder, labels, *flags, suffix=".csv", output="out"):
    path = write(folder / f"rows{suffix}", labels)
    return run(path, "--label=y", *flags, output=folder / output)


@pytest.mark.parametrize(
    ("labels", "flags", "message"),
    [
        ([0, 1] * 9 + [7], [], r"got 3 values, .*; '7' is first in .*rows.csv, row 19"),
        (["a", "b"], ["--positive=c"], r"--positive c: expected a value of 'y', which has 'a' \(1"),
        (["a", "b"], ["--positive=a", "--label_above=1"], "give one of the two"),
        ([1, 2, 3], ["--label_above=x"], "--label_above: expected a number, got 'x'"),
        ([1, 2, 3], ["--label_above=3"], "below the largest label of train, which are 1 and 3"),
        (["3", "4", "many"], ["--label_above=3"], "row 3 .*'y': expected a number, got 'many'"),
        ([1] * 9, [], r"expected both classes in train, got y=1 in all 9 rows: .*--user and"),
        (["good"] * 9, [], r"expected two values .*, got 'good' \(9 rows\) only"),
        (["yes", "no", "NA"], [], "row 3 .*expected 'no' or 'yes', got no value, as 'NA' is a"),
        (["0", "1", ""], [], "row 3 .*'y': expected 0 or 1, got no value: leave the row out"),
        (["NA", "None"], [], "row 1 .*'y': expected 0 or 1, got no value, as 'NA'"),
    ],
)
def test_errors(labels, flags, message, tmp_path, capsys):
    assert prepare(tmp_path, labels, *flags) == 2
    assert re.search(message, capsys.readouterr().err)


def test_missing_spelling_of_a_label(tmp_path):
    """A spelling of missing numbers is a label where it makes a known pair."""
    assert prepare(tmp_path, [0, 1, 0], "--missing_values=0") == 0
    assert stored(tmp_path / "out", "y") == [0, 1, 0]


def test_class_of_a_split(tmp_path, capsys):
    """A split of one class is a warning, and an error with --strict; the remedy helps."""
    labels = [i % 2 if i < 90 else 1 for i in range(100)]
    path = write(tmp_path / "rows.parquet", labels)
    table = pq.read_table(path).append_column("t", pa.array(range(100)))
    pq.write_table(table, path)
    flags = ["--label=y", "--split=0.8,0.1,0.1"]
    by_time = [*flags, "--split_by_time=t"]
    assert run(path, *by_time, output=tmp_path / "a") == 0
    report = capsys.readouterr().out
    assert "warning: all rows of test have y=1: divide the rows at random" in report
    assert "train: 80 rows, share of y=1 0.5000, of y=0 0.5000" in report
    assert "\nleft out: t (divides the rows)\n\n" in report
    assert run(path, *by_time, "--strict", output=tmp_path / "b") == 2
    assert "all rows of test have y=1" in capsys.readouterr().err
    assert run(path, *flags, output=tmp_path / "c") == 0
    assert "all rows of" not in capsys.readouterr().out


def test_later_rows(tmp_path, capsys):
    """--vocabulary and --grow read labels as the first data set; flags of labels contradict it."""
    assert prepare(tmp_path, ["bad", "good", "bad"], "--positive=good") == 0
    known = f"--vocabulary={tmp_path / 'out'}"
    label = Encoder.load(tmp_path / "out/encoder")["y"]
    assert label.spellings == ("bad", "good")
    assert label.decode([0, 1]).to_pylist() == ["bad", "good"]
    later = write(tmp_path / "later.csv", ["GOOD", "bad"])
    for number, flags in enumerate(((), ("--grow", "--allow_mostly_new"))):
        assert run(later, known, *flags[:1], output=tmp_path / f"n{number}") == 0
        split = "train" if flags else "test"
        assert stored(tmp_path / f"n{number}", "y", split) == [1, 0]
    capsys.readouterr()
    for flag in ("--positive=good", "--label_above=1"):
        assert run(later, known, flag, output=tmp_path / "refused") == 2
        assert "and --vocabulary: the encoding is that of" in capsys.readouterr().err
    other = write(tmp_path / "other.csv", ["good", "1"])
    assert run(other, known, output=tmp_path / "refused") == 2
    assert "row 2 (rows are" in (message := capsys.readouterr().err)
    assert "'y': expected 'bad' or 'good', got '1'" in message
