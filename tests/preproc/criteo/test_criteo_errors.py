"""Error messages of the preparation; after an error there is no output."""

from pathlib import Path

import duckdb
import pytest

from preproc.criteo.engines.single_machine import CriteoDuckDBEngine
from preproc.criteo.log_files import find_log_files, parse_days
from preproc.criteo.options import CriteoOptions, parse_thresholds
from preproc.criteo.output.splits import split_by_day
from preproc.criteo.prepare import prepare
from preproc.engines.size_flags import parse_bytes
from tests.preproc.criteo import criteo_reference as reference

GOOD = reference.line(1, {0: 4}, {0: "aa"})


@pytest.fixture
def raw(tmp_path):
    """Two days of four rows."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for day in range(2):
        (folder / f"day_{day}").write_text(f"{GOOD}\n" * 4)
    return folder


def run(source, output, **options):
    return prepare(
        CriteoOptions(input=source, output=output, memory_limit_bytes=1 << 30, **options)
    )


def test_days():
    assert parse_days("0,1,5-7") == (0, 1, 5, 6, 7) and parse_days("3, 0 - 1") == (0, 1, 3)
    for text, message in (("", "got ''"), ("5-3", "'5-3'"), ("0-3,2", "day 2 twice")):
        with pytest.raises(ValueError, match=message):
            parse_days(text)


def test_sizes():
    assert parse_bytes("512 MiB") == 512 << 20 and parse_bytes("1.5gib") == 3 << 29
    for text in ("", "GB", "-1GB", "99999999999999GB"):
        with pytest.raises(ValueError, match="expected a size like"):
            parse_bytes(text)


def test_thresholds():
    assert parse_thresholds("15") == (15, ())
    assert parse_thresholds(" 3 , 25:0,0:7 ") == (3, ((0, 7), (25, 0)))
    wrong = {"5:30": "'5:30'", "15,26:3": "column 26; .* 0 to 25", "15,5:3,5:4": "column 5 twice"}
    for text, message in wrong.items():
        with pytest.raises(ValueError, match=message):
            parse_thresholds(text)


def test_names_of_day_files(tmp_path):
    names = ["day_0", "day_1.gz", "dlrmjl_day_2.gz", "x.day_3.tsv", "day_10.txt.gz"]
    for name in [*names, "day_4.md", "day_x", "readme", "day_5.gz.old"]:
        (tmp_path / name).touch()
    (tmp_path / "day_7").mkdir()
    result = find_log_files(tmp_path, None)
    assert [file.path.name for file in result] == names
    assert [file.day for file in result] == [0, 1, 2, 3, 10]
    assert [file.day for file in find_log_files(tmp_path, (1, 10))] == [1, 10]
    with pytest.raises(ValueError, match="no day files"):
        find_log_files(tmp_path / "day_7", None)
    (tmp_path / "copy_day_0.gz").touch()
    with pytest.raises(ValueError, match="day 0 .*copy_day_0.gz and day_0"):
        find_log_files(tmp_path, (1,))


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"frequency_threshold": -1}, "--frequency_threshold"),
        ({"threads": 0}, "--threads"),
        ({"memory_limit_bytes": 1 << 20}, "--memory_limit"),
        ({"temp_dir": Path("nowhere")}, "--temp_dir nowhere"),
        ({"holdout_fraction": 1.0}, "--holdout_fraction"),
        ({"holdout_fraction": 0.5, "validation_fraction": 0.5}, "--validation_fraction"),
        ({"validation_fraction": 0.5}, "--validation_fraction 0.5 needs --holdout_fraction"),
        ({"input": "day_0"}, "single file: .*--holdout_fraction"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_bad_options(raw, tmp_path, options, flag):
    options = options | {"input": raw / options.get("input", "")}
    with pytest.raises(ValueError, match=flag):
        CriteoOptions(output=tmp_path / "out", **options)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("nowhere", {}, "--input .*nowhere"),
        (".", {"days": (0, 1, 2, 3)}, "day_2, day_3"),
        (".", {"days": (1,)}, "--holdout_fraction"),
        (".", {"vocabulary_days": (0, 7)}, "--vocabulary_days .* 7"),
        (".", {"days": (0,), "vocabulary_days": (0, 1)}, "names day 1, .*: day_0; add"),
        ("day_0", {"holdout_fraction": 0.2, "vocabulary_days": (0,)}, "--vocabulary_days train"),
        ("day_0", {"days": (0,), "holdout_fraction": 0.5}, "--days"),
    ],
)
def test_options_against_files(raw, tmp_path, source, options, message):
    with pytest.raises(ValueError, match=message):
        run(raw / source, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("rows", "name"), [([0, 4], "train"), ([4, 1], "test"), ([4, 0], "test"), ([4], "one day")]
)
def test_too_few_rows_by_day(rows, name):
    with pytest.raises(ValueError, match=name):
        split_by_day(rows)


def test_bad_lines(raw, tmp_path):
    """The message names the first bad file; `skip` uses finished stages and drops bad lines."""
    lines = [GOOD, GOOD, "rubbish", GOOD, f"2{GOOD[1:]}", *[GOOD] * 197]
    (raw / "day_1").write_text("\n".join(lines))
    with pytest.raises(ValueError, match="day_1, line 3: .* --on_bad_line skip"):
        run(raw, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    spec = run(raw, tmp_path / "out", on_bad_line="skip", frequency_threshold=0)
    assert spec.metadata["bad_lines"] == 2
    assert spec.metadata["rows"] == {"train": 4, "test": 100, "validation": 100}
    expected = reference.prepare([raw / "day_0", raw / "day_1"], 0)
    assert reference.files_of(tmp_path / "out") == expected
    (raw / "day_1").write_text("\n".join(lines[:199]))
    with pytest.raises(ValueError, match=r"at most 1% bad lines, got 2 of 199 lines .* line 3"):
        run(raw, tmp_path / "other", on_bad_line="skip")


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_input_without_rows(raw, tmp_path, content):
    for path in raw.iterdir():
        path.write_text(content)
    with pytest.raises(ValueError, match="holds no rows"):
        run(raw, tmp_path / "out", on_bad_line="skip")
    assert not (tmp_path / "out").exists()


def test_empty_day_among_others(raw, tmp_path):
    (raw / "day_2").write_text(f"{GOOD}\n" * 4)
    (raw / "day_1").write_text("")
    spec = run(raw, tmp_path / "out", frequency_threshold=2)
    assert spec.metadata["rows"] == {"train": 4, "validation": 2, "test": 2}
    expected = reference.prepare([raw / f"day_{day}" for day in range(3)], 2)
    assert reference.files_of(tmp_path / "out") == expected


@pytest.mark.parametrize("output", [".", ".."])
def test_input_within_output(raw, output):
    with pytest.raises(ValueError, match="apart from the input|cannot be replaced"):
        run(raw, raw / output, overwrite=True)


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("SELECT list(i) FROM range(100_000_000) t(i)", ValueError, "--memory_limit 500 MiB"),
        ("COPY (SELECT 1) TO '/dev/full' (FORMAT parquet)", OSError, "No space left on device"),
    ],
)
def test_memory_and_disk(query, error, message):
    options = CriteoOptions(input=Path("raw"), output=Path("out"), memory_limit_bytes=500 << 20)
    engine = CriteoDuckDBEngine(options, Path("scratch"))
    limits = {"memory_limit": "20MB", "max_temp_directory_size": "0B"}
    with (
        duckdb.connect(config=limits) as connection,
        pytest.raises(error, match=message),
        engine.explained_errors(),
    ):
        connection.execute(query).fetchall()
