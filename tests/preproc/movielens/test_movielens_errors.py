"""Error messages of the preparation of ratings; after an error no files remain."""

import gzip
import re

import pytest

from preproc.movielens.__main__ import main
from tests.preproc.movielens.movielens_reference import CSV_HEADER

GOOD = "1,10,3.0,5\n1,11,3.0,6\n"


@pytest.fixture
def refused(tmp_path, capsys):
    """Runs the command, which must fail; returns its error message."""

    def run(*flags) -> str:
        output = tmp_path / "work" / "out"
        assert main([*map(str, flags), "--output", str(output)]) == 2
        assert not output.parent.exists() or not any(output.parent.iterdir())
        error = capsys.readouterr().err
        assert error.count("error: ") == 1
        return error

    return run


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (GOOD + "1,12,3.0\n", "line 4: expected 4 fields"),
        ("\n\n" + GOOD + ",12,3.0,7\n", "row 3 .*: no userId"),
        (GOOD + "1, 12,3.0,7\n", "row 3 .*: movieId is ' 12'"),
        (GOOD + '"1\t",12,3.0,7\n', r"row 3 .*: userId is '1\\t'"),
        (GOOD + "NULL,12,3.0,7\n", r"row 3 .*: no userId \('NULL' is a spelling of"),
        (GOOD + "1,12,3.0,\n" + GOOD, "row 3 .*: no timestamp"),
        (GOOD + "1,12,3.0,soon\n", "row 3 .*: timestamp is 'soon'"),
        (GOOD + "1,12,3.0,2014-02-03\n", "row 3 .*: timestamp is '2014-02-03'.* numbers"),
        # Two of them would otherwise hide the rows between them.
        (GOOD + '"1,2,3.0,7\n1,13,3.0,8\n"2,2,3.0,9\n', "line 4: "),
    ],
)
def test_bad_lines(tmp_path, refused, rows, message):
    log = tmp_path / "ratings.csv"
    log.write_text(f"{CSV_HEADER}\n{rows}", encoding="utf-8", errors="surrogateescape")
    assert re.search(rf"ratings\.csv.* {message}", refused("--input", log))


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
    (tmp_path / "a.dat").write_text("1::1::3::4\n")
    (tmp_path / "b.dat.gz").write_bytes(gzip.compress(rows.encode(errors="surrogateescape")))
    output = refused("--input", tmp_path / "a.dat", tmp_path / "b.dat.gz")
    assert re.search(f"error: {tmp_path}/b.dat.gz.* {message}", output)


@pytest.mark.parametrize(
    ("header", "flags", "message"),
    [
        ("userId,movieId,rating", (), "no column 'timestamp'"),
        (CSV_HEADER, ("--user_column", "who"), "no column 'who'.*--user_column"),
        (CSV_HEADER, ("--delimiter", "tab"), f"'{CSV_HEADER}'.*--delimiter"),
        ("x" * 200_000, (), "ratings.csv: expected a header"),
        (CSV_HEADER, (), "ratings.csv: no ratings"),
    ],
)
def test_headers(tmp_path, refused, header, flags, message):
    log = tmp_path / "ratings.csv"
    log.write_text(header)
    assert re.search(message, refused("--input", log, *flags))


def test_too_few_ratings(tmp_path, refused):
    log = tmp_path / "ratings.csv"
    log.write_text(f"{CSV_HEADER}\n{GOOD}{GOOD}")
    messages = refused("--input", log)
    assert "--min_ratings 20" in messages and "one has is 2" in messages
    messages = refused("--input", log, "--min_ratings", 2)
    assert "user 1 touched 2 of 2 items" in messages and "--valid_negative" not in messages
    # Only user "b", the second, touched all but one.
    log.write_text(f"{CSV_HEADER}\nb,1,3,1\nb,2,3,2\nb,3,3,2\na,3,3,1\na,4,3,1\n")
    messages = refused("--input", log, "--min_ratings", 2, "--valid_negative", 2)
    assert "user b touched 3 of 4 items" in messages and "--valid_negative 1 or less" in messages
    log.write_text(f"{CSV_HEADER}\n{GOOD}")
    flags = ("--min_ratings", 2, "--valid_negative", 1 << 30, "--memory_limit", "512MiB")
    assert "--memory_limit of 4417 MiB" in refused("--input", log, *flags)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "got none of them"),
        (["ratings.csv", "x.train.rating"], "got ratings.csv, x.train.rating"),
    ],
)
def test_folders(tmp_path, refused, names, message):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    assert message in refused("--input", folder)


def test_files(tmp_path, refused):
    csv, dat, train = (tmp_path / name for name in ("a.csv", "b.dat", "x.train.rating"))
    for path in (csv, dat, train):
        path.touch()
    (tmp_path / "y.train.rating").touch()
    for files, message in (
        ([tmp_path, csv], f"--input {tmp_path}: expected files or one folder, got both"),
        ([csv, csv], "--input names a file twice"),
        ([csv, dat], "files of one form"),
        ([train, tmp_path / "y.train.rating"], "files of one form"),
        ([train], "x.test.rating or x.test.rating.gz"),
    ):
        assert message in refused("--input", *files)
    for name in ("x.test.rating", "x.test.rating.gz"):
        (tmp_path / name).touch()
    assert "got both of them" in refused("--input", train)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--valid_negative", 0), "--valid_negative"),
        (("--min_ratings", 1), "--min_ratings must be 2"),
        (("--min_ratings", 2, "--validation"), "--min_ratings must be 3"),
        (("--temp_dir", "nowhere"), "--temp_dir nowhere"),
        (("--delimiter", "::"), "--delimiter"),
        (("--item_column", "userId"), "--item_column"),
    ],
)
def test_flags(tmp_path, refused, flags, message):
    log = tmp_path / "ratings.csv"
    log.write_text(f"{CSV_HEADER}\n{GOOD}")
    assert message in refused("--input", log, *flags)


@pytest.mark.parametrize(
    ("name", "flag", "value"),
    [
        ("a.dat", "user_column", "u"),
        ("x.train.rating", "time_column", "t"),
        ("x.train.rating", "min_ratings", 5),
        ("x.train.rating", "valid_negative", 9),
    ],
)
def test_unread_flags(tmp_path, refused, name, flag, value):
    for each in (name, "x.test.rating", "x.test.negative"):
        (tmp_path / each).touch()
    messages = refused("--input", tmp_path / name, f"--{flag}", value)
    assert f"--{flag} is only read with" in messages and str(tmp_path / name) in messages
