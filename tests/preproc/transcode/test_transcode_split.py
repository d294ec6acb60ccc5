"""--split and --split_by_time: rows of train, validation and test."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preproc.engines.duckdb_engine import DuckDBBackend
from preproc.engines.engine import SPLIT
from preproc.transcode.raw.split import parse_shares
from tests.preproc.transcode.test_transcode import changed, raw, refused, run, stored

SHARES = "0.6,0.3,0.1"
NUMBERED = {
    "feature_spec": {"click": {}, "row": {}, "when": {}},
    "source_spec": {
        "train": [{"type": "csv", "features": ["click", "row", "when"], "files": ["a"]}]
    },
    "channel_spec": {"label": ["click"], "categorical": ["row"]},
}


def numbered(folder, times, files=1):
    """Rows of which the id is the number, in one file or several."""
    lines = [f"{i % 2},{i},{time}\n" for i, time in enumerate(times)]
    parts = np.array_split(np.arange(len(lines)), files)
    names = [f"part {i}" for i in range(files)]
    chunk = {**NUMBERED["source_spec"]["train"][0], "files": names}
    spec = {**NUMBERED, "source_spec": {"train": [chunk]}}
    content = {
        name: "".join(lines[i] for i in part) for name, part in zip(names, parts, strict=True)
    }
    return raw(folder, spec, **content)


def numbered_parquet(folder, when):
    table = pa.table(
        {"click": np.arange(len(when)) // 2 % 2, "row": range(len(when)), "when": when}
    )
    chunk = {**NUMBERED["source_spec"]["train"][0], "type": "parquet"}
    return raw(folder, {**NUMBERED, "source_spec": {"train": [chunk]}}, a=table)


def splits(out):
    return {name: stored(out, "row", name) for name in ("train", "validation", "test")}


def test_rows_by_share_in_any_files(tmp_path):
    one = numbered(tmp_path / "one", [0] * 3000)
    assert run(one, f"--split={SHARES}") == 0
    rows_of = splits(one / "out")
    assert sorted(row for rows in rows_of.values() for row in rows) == list(range(3000))
    for name, share in zip(rows_of, (0.6, 0.3, 0.1), strict=True):
        deviation = np.sqrt(share * (1 - share) / 3000)
        assert abs(len(rows_of[name]) / 3000 - share) < 4 * deviation, name
        assert rows_of[name] == sorted(rows_of[name]), "in the order of the input"
    many = numbered(tmp_path / "many", [0] * 3000, files=7)
    assert run(many, f"--split={SHARES}") == 0
    assert splits(many / "out") == rows_of
    assert run(many, f"--split={SHARES}", "--split_seed=1", output=tmp_path / "other") == 0
    assert splits(tmp_path / "other") != rows_of


def test_bad_value_of_divided_rows(tmp_path, capsys):
    folder = numbered(tmp_path, [0] * 30)
    (folder / "part 0").write_text((folder / "part 0").read_text().replace("1,7,", "2,7,"))
    refused(capsys, "'2' is first in .*part 0, row 8", folder, f"--split={SHARES}")


def test_queries_of_times(tmp_path, monkeypatch):
    """Texts of times are parsed to divide the rows, and not again for each column."""
    compile_sql, queries = DuckDBBackend._sql, []

    def record(engine, expression):
        queries.append(compile_sql(engine, expression))
        return queries[-1]

    monkeypatch.setattr(DuckDBBackend, "_sql", record)
    folder = numbered(tmp_path, [f"2024-01-{day:02d}" for day in range(1, 30)])
    assert run(folder, "--split_by_time=when") == 0
    divided = next(i for i, query in enumerate(queries) if SPLIT in query)
    assert [i for i, query in enumerate(queries) if "AS TIMESTAMP" in query][-1] == divided


def test_shares_by_hand():
    assert parse_shares("0.8,0.1,0.1") == {"train": 0.8, "validation": 0.1, "test": 0.1}
    assert parse_shares("0.9,0,0.1") == {"train": 0.9, "test": 0.1}


def test_order_of_many_rows(tmp_path):
    """Rows stay in their order over many batches, groups of rows and splits."""
    numbers = np.arange(200_000)
    table = pa.table({"click": numbers % 2, "row": numbers, "when": numbers * 7919 % 1_000_003})
    chunk = {**NUMBERED["source_spec"]["train"][0], "type": "parquet"}
    spec = {**NUMBERED, "source_spec": {"test": [chunk]}}
    spec["channel_spec"] = {"label": ["click"], "categorical": ["row", "when"]}
    folder = raw(tmp_path / "a", spec)
    pq.write_table(table, folder / "a", row_group_size=50_000)
    assert run(folder) == 0
    for name in ("row", "when"):
        np.testing.assert_array_equal(stored(folder / "out", name, "test"), table[name])
    folder = raw(tmp_path / "b", NUMBERED, a="".join(f"{i & 1},{i},{i}\n" for i in numbers))
    assert run(folder, "--split=0.2,0,0.8") == 0
    rows = [np.array(stored(folder / "out", "row", name)) for name in ("train", "test")]
    assert all((np.diff(own) > 0).all() for own in rows)
    assert sum(map(len, rows)) == len(numbers)


@pytest.mark.parametrize(
    "form",
    [
        lambda day: day * 10**16 + 1,
        lambda day: day / 4 - 1,
        lambda day: f"2024-01-{1 + day:02d}",
        lambda day: f"2024-01-01T{day % 2 * 5 + day:02d}:30:00{'+05:00' if day % 2 else 'Z'}",
    ],
    ids=["large", "fraction", "date", "offsets"],
)
def test_rows_by_time_with_ties(form, tmp_path):
    """20 rows of 10 days, shuffled: the shares cut at a day, never within one."""
    days = np.random.default_rng(0).permutation(np.arange(20) // 2)
    folder = numbered(tmp_path, [form(int(day)) for day in days])
    assert run(folder, "--split=0.55,0.25,0.2", "--split_by_time=when") == 0
    rows_of = {name: days[rows] for name, rows in splits(tmp_path / "out").items()}
    # Row 11 of 20 in the order of time is of day 5, which has rows 11 and 12.
    assert sorted(set(rows_of["train"])) == [0, 1, 2, 3, 4, 5] and len(rows_of["train"]) == 12
    assert sorted(set(rows_of["validation"])) == [6, 7]
    assert sorted(set(rows_of["test"])) == [8, 9]


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.date32(), pa.float32()])
def test_times_of_parquet(kind, tmp_path):
    step = 10**9 if kind == pa.timestamp("ns") else 1
    folder = numbered_parquet(tmp_path, pa.array([3 * step, 0, 2 * step, step], kind))
    assert run(folder, "--split=0.5,0,0.5", "--split_by_time=when") == 0
    assert stored(tmp_path / "out", "row") == [1, 3]
    assert stored(tmp_path / "out", "row", "test") == [0, 2]


@pytest.mark.parametrize(
    ("when", "message"),
    [
        (pa.array([[5], [3]]), "--split_by_time when: expected times, got a column of array"),
        (pa.array([0.0, np.nan]), "a, row 2 .*--split_by_time when is 'nan'; a time is a number"),
        (pa.array([1, None]), "row 2 .*--split_by_time when: expected .*, got no value"),
    ],
)
def test_bad_times_of_parquet(when, message, tmp_path, capsys):
    flags = ("--split=0.5,0,0.5", "--split_by_time=when")
    refused(capsys, message, numbered_parquet(tmp_path, when), *flags)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (["1", "", "2", "3"], "part 0, row 2 .*--split_by_time when: .*, got no value"),
        (["2024-01-01", "2024-01-02", "soon", "x"], "row 3 .*is 'soon'; a time is a number"),
        (["1.5", "2", "inf", "3"], "row 3 .*is 'inf'; a time"),
        (["5", "5", "5", "5"], "the split 'validation' has none of the 4 rows.*more different"),
    ],
)
def test_indivisible_times(times, message, tmp_path, capsys):
    folder = numbered(tmp_path, times)
    refused(capsys, message, folder, "--split=0.5,0.25,0.25", "--split_by_time=when")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--split=0.8,0.2"], "expected three shares"),
        (["--split=0,0.5,0.5"], "but not train"),
        (["--split=0.8,0.3,0.1"], "add up to 1"),
        (["--split_seed=1"], "--split_seed is only read with --split"),
        (["--split=0.8,0.1,0.1", "--split_seed=-1"], "--split_seed: expected at least 0, got -1"),
        (["--split_by_time=then"], "--split_by_time then: expected a column of .*click, row, when"),
        (["--split=0.999,0,0.001"], "the split 'test' has none of the 4 rows"),
    ],
)
def test_bad_splits(flags, message, tmp_path, capsys):
    refused(capsys, message, numbered(tmp_path, range(4)), *flags)


def test_splits_other_than_train(tmp_path, capsys):
    spec = changed()
    spec["source_spec"]["test"] = spec["source_spec"]["train"]
    message = "expected no other split in .*, got train, test"
    refused(capsys, message, raw(tmp_path, spec, a="1,2,3,4,0\n"), "--split=0.8,0.1,0.1")


def test_interactions(tmp_path, capsys):
    folder = tmp_path / "a"
    folder.mkdir()
    lines = "".join(f"u{i % 7},i{i % 11}\n" for i in range(200))
    (folder / "log.csv").write_text("who,what\n" + lines)
    flags = ("--user=who", "--item=what", f"--split={SHARES}")
    assert run(folder / "log.csv", *flags, output=tmp_path / "out") == 0
    users = [stored(tmp_path / "out", "who", name) for name in ("train", "validation", "test")]
    assert sum(map(len, users)) == 200 and min(map(len, users)) > 5
    spec = {
        "feature_spec": {"user": {}, "item": {}, "taken": {}},
        "source_spec": {
            "train": [{"type": "csv", "features": ["user", "item", "taken"], "files": ["a"]}]
        },
        "channel_spec": {"user": ["user"], "item": ["item"], "label": ["taken"]},
    }
    labelled = raw(tmp_path / "b", spec, a="1,2,1\n")
    refused(capsys, "--split: expected interactions without a label", labelled, "--split=0.8,0.2,0")
