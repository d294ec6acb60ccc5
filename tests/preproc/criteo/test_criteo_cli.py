"""Command lines of the tools."""

import gzip

import numpy as np
import pytest

from preproc.criteo import generate_logs
from preproc.criteo.__main__ import main
from runtime.cli import USER_ERROR
from tests.preproc.criteo import criteo_reference as reference


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generated") / "raw logs"
    flags = ["--output", str(folder), "--days", "3", "--rows_per_day", "1000", "--gzip"]
    assert generate_logs.main(flags) == 0
    return folder


def test_generated_logs_end_to_end(raw, tmp_path, capsys):
    flags = f"--output={tmp_path / 'out'} --frequency_threshold=3 --days=0-2".split()
    assert main([f"--input={raw}", *flags]) == 0
    files = [raw / f"day_{day}.gz" for day in range(3)]
    assert reference.files_of(tmp_path / "out") == reference.prepare(files, 3)
    printed = capsys.readouterr()
    assert printed.err.startswith("[1/56] parse day_0: 1,000 rows, 0 malformed lines, ")
    for part in ("train: 2,000 rows", "test: 500 rows", "cardinalities: ", "left out: 0"):
        assert part in printed.out


@pytest.mark.parametrize("flag", ["--days", "--rows_per_day", "--seed"])
def test_wrong_flags_of_the_generator(tmp_path, capsys, flag):
    assert generate_logs.main(["--output", str(tmp_path / "raw"), flag, "-1"]) == USER_ERROR
    assert f"{flag}: expected" in capsys.readouterr().err
    assert not (tmp_path / "raw").exists()


@pytest.mark.parametrize(
    ("flags", "unread"),
    [
        (["--master", "local"], "--master"),
        (["--spark_conf", "a=b"], "--spark_conf"),
        (["--engine", "spark", "--master", "local[4]", "--threads", "2"], "--threads"),
        (["--engine", "spark", "--master", "yarn", "--memory_limit", "4GB"], "--memory_limit"),
    ],
)
def test_flags_of_spark(flags, unread):
    common = ["--input", "raw", "--output", "out"]
    with pytest.raises(ValueError, match=f"^{unread} is only read with"):
        reference.parse([*common, *flags])
    assert reference.parse([*common, "--engine", "spark", "--master", "yarn"]).master == "yarn"


def test_generated_log(raw):
    """Forty fields, a quarter missing, other lines each day, the same at each call."""
    days = [gzip.decompress((raw / f"day_{day}.gz").read_bytes()) for day in range(3)]
    assert days[0] != days[1]
    fields = [line.split(b"\t") for line in days[0].splitlines()]
    assert {len(line) for line in fields} == {40}
    missing = np.mean([[not field for field in line[1:]] for line in fields])
    assert 0.18 < missing < 0.32
    assert all(len(field) in (0, 8) for line in fields for field in line[14:])
    common = np.mean([line[14 + 8] == fields[0][14 + 8] for line in fields])
    assert common > 0.1  # three values only in this column
    flags = ["--output", str(raw.parent / "b"), "--rows_per_day", "1000"]
    assert generate_logs.main(flags) == 0
    assert (raw.parent / "b" / "day_0").read_bytes() == days[0]


def test_clicks_by_field(raw):
    """Rows with a large num_0, which has the largest weight, are clicked more often."""
    rows = [row for day in range(3) for row in reference.read_rows(raw / f"day_{day}.gz")[0]]
    known = np.array([[int(row[0]), int(row[1])] for row in rows if row[1]])
    high = known[:, 1] > np.median(known[:, 1])
    clicks_high, clicks_low = known[high, 0].mean(), known[~high, 0].mean()
    assert clicks_high > clicks_low + 0.05
    assert 0.1 < known[:, 0].mean() < 0.45
