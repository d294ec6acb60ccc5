"""Error messages of the preparation of ratings; after an error no files remain."""

import gzip
import re

import pytest

from preproc.movielens.__main__ import main
from tests.preproc.movielens.movielens_reference import CSV_HEADER

GOOD = "1,10,3.0,5\n1,11,3.0,6\n"
LOG = f"{CSV_HEADER}\n{GOOD}"


@pytest.fixture
def refused(tmp_path, capsys):
    """Runs the command on files, which must fail; returns its error message."""

    def run(files: dict[str, str], inputs, *flags) -> str:
        for name, text in files.items():
            data = text.encode(errors="surrogateescape")
            (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        output = tmp_path / "work" / "out"
        command = ["--input", *(tmp_path / name for name in inputs), *flags, "--output", output]
        assert main([*map(str, command)]) == 2
        assert not output.parent.exists() or not any(output.parent.iterdir())
        error = capsys.readouterr().err
        assert error.count("error: ") == 1
        return error

    return run


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        (f"{LOG}1, 12,3.0,7\n", (), "row 3 .*: movieId is ' 12'"),
        (f'{LOG}"1\t",12,3.0,7\n', (), r"row 3 .*: userId is '1\\t'"),
        (f"{CSV_HEADER}\n\n\n{GOOD},12,3.0,7\n", (), "row 3 .*: no userId"),
        (f"{LOG}1,2,good,3\n", ("--min_rating=4",), "row 3 .*: rating is 'good'; .* a number"),
        (CSV_HEADER, ("--user_column=who",), "no column 'who'.*--user_column"),
        ('{"userId": 1}\n', (), "ratings.csv: expected CSV, got JSON: rename it to .*.jsonl"),
        ("x" * 200_000, (), "ratings.csv: expected a header"),
        (CSV_HEADER, (), "ratings.csv: no ratings"),
        (LOG, ("--valid_negative=0",), "--valid_negative"),
        (LOG, ("--min_ratings=1",), "--min_ratings must be 2"),
        (LOG, ("--min_ratings=2", "--validation"), "--min_ratings must be 3"),
        (LOG, ("--temp_dir=nowhere",), "--temp_dir nowhere"),
        (LOG, ("--delimiter=::",), "--delimiter"),
        (LOG, ("--item_column=userId",), "--item_column"),
        (LOG, ("--min_ratings=2", "--valid_negative=1073741824", "--memory_limit=512MiB"),
         "--memory_limit of 4417 MiB"),
        # Only user "b", the second, touched all but one.
        (f"{CSV_HEADER}\nb,1,3,1\nb,2,3,2\nb,3,3,2\na,3,3,1\na,4,3,1\n",
         ("--min_ratings=2", "--valid_negative=2"), "user b touched 3 of 4 items"),
    ],
)  # fmt: skip
def test_logs_and_flags(refused, text, flags, message):
    assert re.search(message, refused({"ratings.csv": text}, ["ratings.csv"], *flags))


def test_json_and_delimiters(refused):
    log = {"log.jsonl": '{"user": 1, "movieId": 2, "timestamp": 3}\n'}
    assert "no line has the key 'userId': specify" in refused(log, ["log.jsonl"])
    error = refused(log, ["log.jsonl"], "--delimiter=tab")
    assert "--delimiter: expected files of CSV" in error


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1::2::3::4\n1::2::3\n", "line 2: expected 4 fields"),
        ("1::2::3::4\n\n::2::3::4\n", "row 2 .*: no user"),
        ("1::2::3::4\r1::2::3::four\r", "row 2 .*: time is 'four'"),
        ("1::\udce9::3::4\n", "line 1: expected UTF-8"),
    ],
)
def test_bad_lines_of_the_second_dat(tmp_path, refused, rows, message):
    """The message names the gzip file with the error, not the first file or a copy."""
    files = {"a.dat": "1::1::3::4\n", "b.dat.gz": rows}
    assert re.search(f"error: {tmp_path}/b.dat.gz.* {message}", refused(files, files))


PAPER = {"a.csv": "", "b.dat": "", "x.train.rating": "", "y.train.rating": ""}
TESTS = dict.fromkeys(["x.test.rating", "x.test.negative"], "")


@pytest.mark.parametrize(
    ("files", "inputs", "message"),
    [
        ({}, ["."], "got none of them"),
        (PAPER, [".", "a.csv"], ": expected files or one folder, got both"),
        (PAPER, ["a.csv", "a.csv"], "--input names a file twice"),
        (PAPER, ["a.csv", "b.dat"], "files of one form"),
        (PAPER, ["x.train.rating", "y.train.rating"], "files of one form"),
        (PAPER, ["x.train.rating"], "x.test.rating or x.test.rating.gz"),
        (PAPER | TESTS | {"x.test.rating.gz": ""}, ["x.train.rating"], "got both of them"),
    ],
)
def test_files(refused, files, inputs, message):
    assert message in refused(files, inputs)


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("a.dat", "--user_column=u"),
        ("x.train.rating", "--time_column=t"),
        ("x.train.rating", "--min_ratings=5"),
        ("x.train.rating", "--valid_negative=9"),
    ],
)
def test_unread_flags(tmp_path, refused, name, flag):
    error = refused({name: ""} | TESTS, [name], flag)
    assert f"{flag.partition('=')[0]} is only read with" in error and str(tmp_path / name) in error
