"""Labels of a table: spellings in files of all types, remedies, errors, shares, later rows."""

import json
import re
import shlex

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from preproc.encoding.arrow_columns import MISSING_VALUES
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import Label
from preproc.engines.open_engine import open_engine
from preproc.fitting.label_expression import label_number
from preproc.sources.part_files import find_table
from preproc.transcode.raw.labels import fit_label
from preproc.transcode.raw.raw_tables import RawTables
from preproc.transcode.transcode_flags import parse
from tests.preproc.transcode.test_transcode import run, stored

PATTERN = [0, 0, 1, 0, 1]
ROWS = 100
EXPECTED = PATTERN * (ROWS // len(PATTERN))

# Texts and values of 0 and 1, in files of several types; tests/preproc/encoding/test_label.py has
# all spellings.
NO_YES = ("no", "yes")
CASES = [
    *((("0.0", "1.0"), ".csv"), (("False", "True"), ".csv"), (NO_YES, ".parquet")),
    *((("-1", "1"), ".csv"), (("1", "2"), ".parquet"), ((" No", "Yes "), ".csv")),
    *((("-", "+"), ".csv"), (("0", "1"), ".tsv"), ((False, True), ".parquet")),
    *(((0.0, 1.0), ".parquet"), ((-1, 1), ".parquet"), ((1.0, 2.0), ".parquet")),
    ((False, True), ".jsonl"),
]


def write(path, labels):
    """Writes labels with a number and a text per row."""
    columns = {
        "y": labels,
        "x": [i % 7 / 2 for i in range(len(labels))],
        "city": ["Bern" if i % 3 else "Oslo" for i in range(len(labels))],
    }
    table = pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        options = pa.csv.WriteOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
        pa.csv.write_csv(table, path, options)
    return path


def fitted(engine, path, *flags):
    """Returns the labels as they are stored; the fit reads the same ones."""
    table = engine.read([find_table(path)])
    requested = parse([*flags, "--label=y"])
    raw = RawTables(engine, {"train": table}, MISSING_VALUES)
    label = fit_label(raw, Label(name="y", column="y"), requested.positive, requested.label_above)
    stored = label.encode(engine.fetch(table.select("y"))["y"])["y"].ravel().tolist()
    numbers = label_number(table.y, label, MISSING_VALUES)
    assert engine.fetch(table.select(y=numbers))["y"].to_pylist() == stored
    return label, stored


def check_spellings(engine, folder, pair, suffix):
    path = write(folder / f"rows{suffix}", [pair[i] for i in EXPECTED])
    label, stored = fitted(engine, path)
    assert stored == EXPECTED
    # The types of later files do not matter.
    texts = pa.array([str(pair[i]).swapcase() for i in (1, 0, 1)])
    assert label.encode(texts)["y"].ravel().tolist() == [1, 0, 1]
    later = write(folder / f"later{suffix}", [pair[1], pair[1]])
    column = engine.fetch(engine.read([find_table(later)]).select("y"))["y"]
    assert label.encode(column)["y"].ravel().tolist() == [1, 1]


@pytest.mark.parametrize(("pair", "suffix"), CASES)
def test_spellings(pair, suffix, duckdb, tmp_path):
    check_spellings(duckdb, tmp_path, pair, suffix)


@pytest.mark.engines("pyspark")
def test_spellings_on_spark(one_spark, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with open_engine(
        "spark", scratch, memory_limit_bytes=2 << 30, threads=2, master="local[2]"
    ) as spark:
        check_spellings(spark, tmp_path, NO_YES, ".csv")
        path = write(tmp_path / "ratings.parquet", [i % 50 / 10 for i in range(100)])
        assert sum(fitted(spark, path, "--label_above=3.5")[1]) == 28
        path = write(tmp_path / "actions.csv", ["view", "buy", "cart", "view"])
        assert fitted(spark, path, "--positive=buy")[1] == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("values", "flags"),
    [
        (("good", "bad"), ["--positive good", "--positive bad"]),
        ((">50K", "<=50K"), ["--positive '>50K'", "--positive '<=50K'"]),
        (("-a", "it's"), ["--positive=-a", """--positive 'it'"'"'s'"""]),
        ((1, 2, 3, 4, 5), ["--label_above 3", "--positive 1"]),
        ((-3.5, -2.5, -1.5), ["--label_above=-2.51", "--positive=-3.5"]),
        (("view", "cart", "buy"), ["--positive view"]),
        (tuple(i / 7 for i in range(400)), ["--label_above 28.5", "--positive 0"]),
        (("churned", "None"), ["--positive churned", "--positive None"]),
    ],
)
def test_remedies(values, flags, duckdb, tmp_path):
    """One error names the flags; each of them works."""
    suffix = ".csv" if isinstance(values[0], str) else ".parquet"
    labels = [values[i % len(values)] for i in range(max(ROWS, len(values)))]
    path = write(tmp_path / f"rows{suffix}", labels)
    with pytest.raises(ValueError, match="of labels: expected two values such as") as error:
        fitted(duckdb, path)
    quoted = r"'(?:[^']|'\"'\"')*'"
    pattern = rf"--(?:positive|label_above)[ =](?:{quoted}|[^ ;\n]+)"
    assert re.findall(pattern, str(error.value)) == flags
    for flag in flags:
        name, value = re.split("[ =]", " ".join(shlex.split(flag)), maxsplit=1)
        if name == "--positive":
            expected = [
                f"{label:g}" == value if suffix != ".csv" else label == value for label in labels
            ]
        else:
            expected = [label > float(value) for label in labels]
        assert fitted(duckdb, path, *shlex.split(flag))[1] == expected


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
