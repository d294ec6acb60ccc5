"""Logs in CSV, JSON and Parquet tables: types, features, malformed rows."""

import datetime
import json
import math
import random
import tempfile
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from config.command import parse
from dataloading.spec.feature_spec import FeatureSpec
from preproc.engines.open_engine import open_engine
from preproc.histories.logs.own_tables import read_tables
from preproc.histories.options import HistoryOptions
from preproc.histories.prepare import prepare
from tests.preproc.amazon_books import amazon_reference as reference
from tests.preproc.amazon_books.test_amazon_prepare import ENGINES

HEADER = "user_id,item_id,time,cat\n"


def options(tmp_path, *flags):
    inputs = ["--output_path", tmp_path / "out", "--input_format", "tables", *flags]
    argv = [*map(str, inputs), "--engine", "duckdb", "--threads", "2"]
    return parse(HistoryOptions, argv, "preproc.histories")


def csv_file(path, rows, delimiter=","):
    path.write_text("".join(delimiter.join(map(str, row)) + "\n" for row in rows))
    return path


def log_file(path, *rows):
    return csv_file(path, [("user_id", "item_id", "time"), *rows])


def staged(tmp_path, *flags):
    """Returns the number of bad rows, and events and features as Arrow tables."""
    read = options(tmp_path, *flags)
    scratch = Path(tempfile.mkdtemp(dir=tmp_path))
    with open_engine("duckdb", scratch, **read.engine_settings()) as engine:
        log = read_tables(read, engine)
        tables = [log.events, *(features.table for features in log.features.values())]
        return log.num_bad, [engine.fetch(table) for table in tables]


def column(table, name):
    return table[name].type, table[name].to_pylist()


@pytest.mark.quick("numbers-csv", "numbers-parquet", "text-txt", "text-jsonl")
@pytest.mark.parametrize("form", ["csv", "txt", "parquet", "jsonl"])
@pytest.mark.parametrize("kind", ["numbers", "text"])
def test_whole_preparation(tmp_path, kind, form):
    """Integers are ordered as numbers; features of users and items from tables, with gaps."""
    draw = random.Random(1)
    users = [2, 10, 100, 9] if kind == "numbers" else ["u2", "u10", "Ü", "u 1"]
    items = [7, 70, 8, 11, 101] if kind == "numbers" else ["i7", "i70", "I", "ß", "i 'q'"]
    events = [(draw.choice(users), draw.choice(items), draw.random()) for _ in range(60)]
    category = {item: value for item, value in zip(items, [30, 4, 30, None, 5], strict=True)}
    brand = {item: value for item, value in zip(items[1:], ["x", None, "é", "x"], strict=True)}
    age = {user: value for user, value in zip(users[:3], [30, 4, None], strict=True)}
    tables = {
        "log": [["t", "who", "more", "what"], *((t, u, "", i) for u, i, t in events)],
        "items": [["what", "cat", "brand"], *((i, category[i], brand.get(i)) for i in brand)],
        "users": [["age", "who"], *((age[user], user) for user in age)],
    }
    del category[items[0]]  # not in the table
    for name, (header, *rows) in tables.items():
        path = tmp_path / f"{name}.{form}"
        if form == "parquet":
            columns = zip(*rows, strict=True)
            table = pa.table(dict(zip(header, map(list, columns), strict=True)))
            if name == "items":
                table = table.set_column(2, "brand", table["brand"].dictionary_encode())
            pq.write_table(table, path)
        elif form == "jsonl":
            objects = (dict(zip(header, row, strict=True)) for row in rows)
            path.write_text("".join(f"{json.dumps(own)}\n" for own in objects))
        else:
            csv_file(
                path,
                [header, *([("" if v is None else v) for v in row] for row in rows)],
                "~" if form == "csv" else ";",
            )
    flags = ["--interactions", tmp_path / f"log.{form}", "--items", tmp_path / f"items.{form}"]
    flags += ["--users", tmp_path / f"users.{form}", "--user_column", "who"]
    flags += ["--item_column", "what"]
    flags += ["--time_column", "t", "--user_features", "age", "--item_features", "brand,cat"]
    flags += ["--delimiter", "~"] if form == "csv" else []
    flags += ["--min_events", 12, "--max_history", 5]
    prepare(options(tmp_path, *flags))
    expected, _ = reference.prepare(events, [brand, category], [age], min_events=12, max_history=5)
    result = reference.rows_of(tmp_path / "out")
    assert result == expected
    assert len(result["test"]) > 2
    names = list(FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml").feature_spec)
    assert names[:5] == ["label", "user_id", "age", "item_id_trgt", "brand_trgt"]
    assert names[-3:] == ["item_id_neg", "brand_neg", "cat_neg"]


def test_features_from_the_log(tmp_path):
    rows = [("user_id", "item_id", "time", "cat"), *((1, i, i, "ab"[i % 2]) for i in range(4))]
    log = csv_file(tmp_path / "log.csv", rows)
    flags = ["--interactions", log, "--item_features", "cat", "--min_events", 2]
    prepare(options(tmp_path, *flags))
    (last, _) = reference.rows_of(tmp_path / "out")["test"]
    assert last[:4] == (1, 1, 4, 2)
    csv_file(log, [*rows, (1, 2, 9, "z")])
    for value, values in (("z", "'a' and 'z'"), ("", "none and 'a'")):
        csv_file(log, [*rows, (1, 2, 9, value)])
        with pytest.raises(ValueError, match=f"item 2 .* cat in .*log.csv: {values}"):
            prepare(options(tmp_path, *flags, "--output_path", tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_features_in_names_of_folders(tmp_path):
    rows = [(1 + i // 4, i % 4, i) for i in range(8)]
    flat = csv_file(
        tmp_path / "log.csv",
        [("user_id", "item_id", "time", "cat"), *((*row, "ab"[row[1] % 2]) for row in rows)],
    )
    for number, name in enumerate("ab"):
        folder = tmp_path / f"parts/cat={name}"
        folder.mkdir(parents=True)
        log_file(folder / "part.csv", *(row for row in rows if row[1] % 2 == number))
    flags = ["--item_features", "cat", "--min_events", 2]
    results = []
    for source in (flat, tmp_path / "parts"):
        prepare(options(tmp_path, "--interactions", source, *flags, "--overwrite"))
        results.append(reference.rows_of(tmp_path / "out"))
    assert results[0] == results[1]


@pytest.mark.parametrize("name", ENGINES)
def test_too_few_events(tmp_path, name):
    log = log_file(tmp_path / "log.csv", (1, 2, 3), (1, 3, 3))
    flags = ["--interactions", log, "--engine", name, "--memory_limit", "1GB"]
    with pytest.raises(ValueError, match="--min_events 3 .* 2: require at most that"):
        prepare(options(tmp_path, *flags, "--min_events", 3))
    log_file(log)
    with pytest.raises(ValueError, match="--min_events 20 .* 0: prepare a larger log"):
        prepare(options(tmp_path, "--interactions", log))


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["1", "007", "0"], ["1", "007", "0"]),
        (["1", str(2**63 - 1), str(-(2**63))], [1, 2**63 - 1, -(2**63)]),
        (["1", str(2**63)], ["1", str(2**63)]),
        (["1", "-0"], ["1", "-0"]),
    ],
    ids=["leading zeros", "64 bits", "more than that", "minus zero"],
)
def test_integers_or_text(tmp_path, texts, values):
    log = log_file(tmp_path / "log.csv", *((text, "x", 1) for text in texts))
    _, (events,) = staged(tmp_path, "--interactions", log)
    expected = pa.int64() if isinstance(values[0], int) else pa.string()
    assert column(events, "user") == (expected, values)


def test_one_type_per_key(tmp_path):
    log = log_file(tmp_path / "log.csv", (5, 1, 1), (7, 2, 1))
    more = log_file(tmp_path / "more.csv", (6, 3, 1))
    items = csv_file(tmp_path / "items.csv", [("item_id", "cat"), (1, 8), ("x", 9)])
    flags = ["--interactions", log, more, "--items", items, "--item_features", "cat"]
    _, (events, features) = staged(tmp_path, *flags)
    assert column(events, "user") == (pa.int64(), [5, 7, 6])
    assert column(events, "item") == (pa.string(), ["1", "2", "3"])
    assert column(features, "item") == (pa.string(), ["1", "x"])
    assert column(features, "item_0") == (pa.int64(), [8, 9])


def test_integers_with_a_point(tmp_path):
    """A gap makes pandas write 7.0 for 7; versions such as 1.0 and 1.1 stay text."""
    log = log_file(tmp_path / "log.csv", (5, 7, 1), (5, 12, 2))
    rows = [("item_id", "cat", "version"), ("7.0", "3.0", "1.0"), ("12.0", "", "1.1")]
    flags = ["--interactions", log, "--items", csv_file(tmp_path / "items.csv", rows)]
    _, (events, items) = staged(tmp_path, *flags, "--item_features", "cat,version")
    assert column(events, "item") == (pa.int64(), [7, 12])
    assert column(items, "item") == (pa.int64(), [7, 12])
    assert column(items, "item_0") == (pa.int64(), [3, None])
    assert column(items, "item_1") == (pa.string(), ["1.0", "1.1"])
    (tmp_path / "gaps.csv").write_text(HEADER + "1,2,3,\n" * 20 + "1,3,3,10\n" + "1,4,3,9\n")
    gaps = ["--interactions", tmp_path / "gaps.csv", "--item_features", "cat"]
    _, (_, gaps_of_items) = staged(tmp_path, *gaps)
    assert column(gaps_of_items, "item_0") == (pa.int64(), [None] * 20 + [10, 9])
    mixed = log_file(tmp_path / "more.csv", ("a", 1, 1))
    floats = log_file(tmp_path / "log2.csv", ("5.0", 1, 1))
    _, (events,) = staged(tmp_path, "--interactions", floats, mixed)
    assert column(events, "user") == (pa.string(), ["5.0", "a"])


def test_keys_of_parquet(tmp_path):
    """Users and items are those of CSV: floats where pandas has gaps, booleans, in parts."""

    def typed(name, **columns):
        table = pa.table({"reviewer": [1, 2], "item_id": [7, 8], "at": [1, 2]} | columns)
        pq.write_table(table, tmp_path / name)
        return tmp_path / name

    flags = "--user_column", "reviewer", "--item_column", "item_id", "--time_column", "at"
    floats = typed("floats.parquet", item_id=[7.0, 8.0], cat=[math.nan, 3.0], new=[True, False])
    flags += "--interactions", floats
    _, (events, items) = staged(tmp_path, *flags, "--item_features", "cat,new")
    assert column(events, "item") == (pa.int64(), [7, 8])
    assert column(items, "item_0") == (pa.int64(), [None, 3])
    assert column(items, "item_1") == (pa.string(), ["true", "false"])
    _, (events,) = staged(tmp_path, *flags, typed("whole.parquet"))
    assert column(events, "item") == (pa.string(), ["7", "8"] * 2)
    fractions = typed("fractions.parquet", item_id=[7.0, 7.5])
    with pytest.raises(ValueError, match="row 2.*7.5.*convert it to text"):
        staged(tmp_path, *flags[:-1], fractions)


def test_repeated_file(tmp_path):
    log = log_file(tmp_path / "log.csv", (5, 1, 1))
    with pytest.raises(ValueError, match="--interactions"):
        options(tmp_path, "--interactions", log, tmp_path / ".." / tmp_path.name / "log.csv")


def ns(*moment):
    date = datetime.datetime(*moment, tzinfo=datetime.timezone.utc)
    return int(date.timestamp()) * 10**9


@pytest.mark.parametrize(
    ("times", "dtype", "expected"),
    [
        (["5", "-7", "007"], int, [5, -7, 7]),
        (["5", "2.5", "1e3"], float, [5, 2.5, 1000]),
        ([str(2**53 + 1), ".5", "-3."], int, [10 * 2**53 + 10, 5, -30]),
        (["1406073600.100000000000", "7"], int, [14060736001, 70]),
        (["0.1", f"{0.1 + 0.2}", str(2**53)], float, [0.1, 0.1 + 0.2, 2**53]),
        (["2014-07-23", "1969-12-31 23:59:59"], int, [ns(2014, 7, 23), -(10**9)]),
        (["2014-07-23 12:30:00+02"], int, [ns(2014, 7, 23, 10, 30)]),
        (["2014-07-23T12:00:00.000002Z"], int, [ns(2014, 7, 23, 12) + 2000]),
    ],
)
def test_times(tmp_path, times, dtype, expected):
    log = log_file(tmp_path / "log.csv", *((1, 2, time) for time in times))
    _, (events,) = staged(tmp_path, "--interactions", log)
    assert column(events, "time") == ({int: pa.int64(), float: pa.float64()}[dtype], expected)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (pa.array([5, 6], pa.int32()), [5, 6]),
        (pa.array([5.5e-9, 6.0]), [5.5e-9, 6]),
        (pa.array([Decimal("5.1"), Decimal("1406073600.123456701")]), [1, 1406073600123456701]),
        (pa.array([1, 2], pa.timestamp("s", "Europe/Berlin")), [10**9, 2 * 10**9]),
        (pa.array([1, 2], pa.date32()), [ns(1970, 1, 2), ns(1970, 1, 3)]),
        (pa.array(["1970-01-02", "1970-01-03"]), [ns(1970, 1, 2), ns(1970, 1, 3)]),
    ],
    ids=["integers", "exponents", "decimals", "timestamps", "dates", "text"],
)
def test_times_of_parquet(tmp_path, times, expected):
    log = tmp_path / "log.parquet"
    users = pa.array(["", "x"]).cast(pa.large_string())
    pq.write_table(pa.table({"user_id": users, "item_id": [1, 2], "time": times}), log)
    flags = ["--interactions", log, "--on_bad_line", "skip"]
    bad, (events,) = staged(tmp_path, *flags)
    assert bad == 1
    assert events["time"].to_pylist() == expected[1:]
    assert column(events, "user") == (pa.string(), ["x"])


@pytest.mark.parametrize(
    ("text", "num_good", "message"),
    [
        ("1,2,3,x\n,2,3,x\n", 1, "log.csv, row 2 .*: no user_id.* skip"),
        ('1,"2",3,x\n1,2,"",x\n', 1, "row 2 .*: no time"),
        ("1,2,3,x\n NULL,2,3,x\n", 1, r"row 2 .*: no user_id \('NULL' is"),
        ("1,2,3,x\n1,2,3\n", 1, "line 3: expected 4 fields.*--on_bad_line skip"),
    ],
)
def test_bad_rows(tmp_path, text, num_good, message):
    log = tmp_path / "log.csv"
    log.write_text(HEADER + text + "1,2,3,\n" * 100)
    with pytest.raises(ValueError, match=message):
        staged(tmp_path, "--interactions", log)
    bad, (events,) = staged(tmp_path, "--interactions", log, "--on_bad_line", "skip")
    assert bad == 1
    assert len(events) == num_good + 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "1,2,3,x\n1,2,soon,x\n", "row 2 .*: time is 'soon'"),
        (HEADER + "1,2,9999-12-31,x\n", "is '9999-12-31'"),
        (HEADER + f"1,2,1e3,x\n1,2,-{2**53 + 1},x\n", f"row 2 .* is -{2**53 + 1}"),
        (HEADER + f"1,2,1.{'1' * 18},x\n1,2,99,x\n", "row 1 .* is 1.1+"),
        (HEADER + "1,2,3,x\n1,2,2014-07-23,x\n", "row 2 .* numbers"),
        ("user_id,item_id,date\n1,2,3\n", "no column 'time'"),
        ("user_id,item_id,time,time\n1,2,3,4\n", "'time' and 'time'"),
        ("", "the file is empty"),
        (HEADER + '"1,2,3,x\n1,2,3,x\n"1,2,3,x\n', "line 2"),
        (HEADER.encode() + b"\xff,2,3,x\n", "ine:? 2.*utf-8"),
    ],
)
def test_bad_files(tmp_path, text, message):
    log = tmp_path / "log.csv"
    log.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message):
        staged(tmp_path, "--interactions", log, "--on_bad_line", "skip")


def test_times_of_two_kinds_in_two_files(tmp_path):
    logs = [tmp_path / "1.csv", tmp_path / "2.csv"]
    for log, time in zip(logs, ("5", "2014-07-23"), strict=True):
        log.write_text(HEADER + f"1,2,{time},x\n")
    with pytest.raises(ValueError, match="2.csv, row 1 .*: time is '2014-07-23'"):
        staged(tmp_path, "--interactions", *logs)
    logs[1].write_text(HEADER + "1,2,5.5,x\n")
    _, (events,) = staged(tmp_path, "--interactions", *logs)
    assert events["time"].to_pylist() == [50, 55]
    logs[0].write_text(HEADER + f"1,2,3,x\n1,2,{2**60},x\n")
    with pytest.raises(ValueError, match=f"1.csv, row 2 .*: time is {2**60}"):
        staged(tmp_path, "--interactions", *logs)
    logs = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    for log, time in zip(logs, (1 << 60, 0.5), strict=True):
        pq.write_table(pa.table({"user_id": [1], "item_id": [1], "time": [time]}), log)
    with pytest.raises(ValueError, match=f"1.parquet, row 1 .*: time is {1 << 60}"):
        staged(tmp_path, "--interactions", *logs)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"user_id": [1.5]}, "row 1 .*: user_id is 1.5"),
        ({"user_id": pa.array([2**63], pa.uint64())}, "row 1 .*: user_id is 9223372036854775808"),
        ({"cat": [Decimal(1)]}, "cat holds decimal"),
        ({"time": [float("nan")]}, "row 1 .*: time is 'nan'"),
        ({"USER_ID": [2]}, "'user_id' and 'USER_ID'"),
    ],
)
def test_types_of_parquet(tmp_path, columns, message):
    log = tmp_path / "log.parquet"
    table = {"user_id": [1], "item_id": [1], "time": [1], "cat": ["x"]} | columns
    pq.write_table(pa.table(table), log)
    with pytest.raises(ValueError, match=message):
        flags = ["--interactions", log, "--item_features", "cat"]
        staged(tmp_path, *flags)
    log.write_text("no Parquet")
    with pytest.raises(ValueError, match="log.parquet: expected a Parquet file"):
        staged(tmp_path, "--interactions", log)


@pytest.mark.parametrize("name", ENGINES)
def test_near_times_and_missing_features(tmp_path, name, capsys):
    """Events a nanosecond apart: the last one of each user is item 1; by item it would be 25.

    Items 3 to 25 are not in the table, item 2 has an empty value there.
    """
    items = [*range(2, 26), 1]
    times = [f"1406073600.{123456000 + i:09}" for i in range(25)]
    rows = [(user, *row) for user in range(3) for row in zip(items, times, strict=True)]
    log = log_file(tmp_path / "log.csv", *rows)
    items = csv_file(tmp_path / "items.csv", [("item_id", "cat"), (1, "b"), (2, "")])
    flags = ["--interactions", log, "--items", items, "--item_features", "cat"]
    prepare(options(tmp_path, *flags, "--engine", name, "--memory_limit", "1GB"))
    test = reference.rows_of(tmp_path / "out")["test"]
    assert [row[2] for row in test[::2]] == [1, 1, 1]
    assert f"24 users or items have no cat in {items}" in capsys.readouterr().err
