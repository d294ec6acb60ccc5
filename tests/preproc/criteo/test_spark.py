"""Spark's operations one by one, in one local session, against the slow reference."""

import contextlib
import errno
import gzip
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="needs pyspark: run .venv-engines/bin/python")

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from preproc.criteo.engines import open_engine, parts
from preproc.criteo.engines.engine_interface import CategoricalColumn, DayFile
from preproc.criteo.engines.spark import spark_engine as spark_engine
from preproc.criteo.engines.spark.spark_engine import SparkEngine
from preproc.criteo.generate_logs import generate_day
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output.binary_files import SplitLayout
from preproc.criteo.output.data_set import categorical_files, numerical_files
from preproc.criteo.output.output_order import output_order
from preproc.criteo.output.splits import split_by_day
from preproc.criteo.prepare import prepare
from preproc.engines.spark import session as sessions
from preproc.engines.spark.tasks import RunToken
from tests.preproc import shared_spark
from tests.preproc.contents import contents
from tests.preproc.criteo import criteo_reference as reference
from tests.preproc.criteo.test_criteo_lines import GOOD, MALFORMED

pytestmark = pytest.mark.engines("pyspark")
PYSPARK_USERS = ("preproc.criteo.engines.spark", "preproc.engines.spark.session")
RANGE_BYTES = 16 << 10  # some 200 lines


def options(output, **changes):
    changes = {"threads": 2, "memory_limit_bytes": 3 << 30} | changes
    return CriteoOptions(input=output, output=output, engine="spark", **changes)


@contextlib.contextmanager
def opened(session, folder):
    """Engine in the session that all tests share."""
    engine = SparkEngine(options(folder / "out"), folder, folder)
    with shared_spark.used(session), engine:
        yield engine


@pytest.fixture
def engine(spark_session, tmp_path):
    with opened(spark_session, tmp_path) as engine:
        yield engine


# Lines


def test_lines(engine, tmp_path, monkeypatch):
    """Every kind of malformed line between good ones, plain and gzip, in ranges of a few lines."""
    monkeypatch.setattr(spark_engine, "_RANGE_BYTES", 200)
    monkeypatch.setattr(spark_engine, "_LEAST_RANGE_BYTES", 1)
    lines = [GOOD]
    for bad, _ in MALFORMED.values():
        lines += [bad, GOOD]
    lines += [b"", GOOD, b"", b""]
    good = 2 + len(MALFORMED)
    for name, line_end, pack in (("lf", b"\n", bytes), ("crlf.gz", b"\r\n", gzip.compress)):
        source, target = tmp_path / f"_{name} [1]*", tmp_path / f"{name}.staged"
        source.write_bytes(pack(line_end.join(lines)))
        counts = engine.parse_day(source, target, tmp_path)
        assert counts == {"rows": good, "bad_lines": 1 + len(MALFORMED), "first_bad_line": 2}
        assert len(parts.part_files(target)) > 3
        day = DayFile(target, good, 5)
        pieces = parts.row_groups([day])
        assert [piece.num_rows for piece in parts.row_groups([day], 7)] == [
            min(piece.num_rows, 7 - piece.first_row) for piece in pieces if piece.first_row < 7
        ]
        assert pieces[0].first_row == 5 and sum(piece.num_rows for piece in pieces) == good
    assert not (tmp_path / "plain.tsv").exists()


def test_damaged_gzip(engine, tmp_path):
    (tmp_path / "raw").write_bytes(gzip.compress(b"\n".join([GOOD] * 99))[:-3])
    with pytest.raises(ValueError, match="raw: the gzip data is cut off or damaged"):
        engine.parse_day(tmp_path / "raw", tmp_path / "staged", tmp_path)
    assert not (tmp_path / "plain.tsv").exists()


# Rows


def stored(column):
    """Returns the vocabulary of a column."""
    return [(row["value"], row["count"]) for row in pq.read_table(column.vocabulary).to_pylist()]


@pytest.fixture(scope="module")
def log(spark_session, tmp_path_factory):
    """Two days, parsed, and their fields: cat_0 half "hot", cat_1 odd scripts and no value."""
    folder = tmp_path_factory.mktemp("log")
    random = np.random.default_rng(5)
    for day in range(2):
        lines = []
        for _ in range(400):
            hot = "hot" if random.random() < 0.5 else f"v{random.integers(60)}"
            text = chr(int(random.choice([0x41, 0xE9, 0x6F22, 0xFFFD, 0x1F600])))
            number = int(random.integers(-4, 10**6))
            cats = {0: hot, 1: text * int(random.integers(9))}
            lines.append(reference.line(random.integers(2), {0: number}, cats))
        (folder / f"day_{day}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    days, lines = [], []
    with opened(spark_session, folder) as engine, pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_engine, "_RANGE_BYTES", RANGE_BYTES)
        patch.setattr(spark_engine, "_LEAST_RANGE_BYTES", 1)
        for day in range(2):
            source, target = folder / f"day_{day}", folder / f"day_{day}.staged"
            counts = engine.parse_day(source, target, folder)
            days.append(DayFile(target, counts["rows"], len(lines)))
            lines += reference.read_rows(source)[0]
    return days, lines


@pytest.mark.parametrize(
    ("join", "ordering", "thresholds"),
    [("large", "total_random", (0, 6)), ("small", "input", (6, 0)), ("mixed", "input", (0, 6))],
)
def test_columns(engine, log, tmp_path, monkeypatch, join, ordering, thresholds):
    """Vocabularies, texts and ids of two columns, by each way of lookup; pieces of 64 rows."""
    monkeypatch.setattr(spark_engine, "_PIECE_ROWS", 64)
    limit = {"large": 0, "small": 1 << 20, "mixed": 61}[join]  # cat_1 has fewer values
    monkeypatch.setattr(spark_engine, "_SMALL_VALUES", limit)
    days, lines = log
    splits = tuple(split_by_day([day.num_rows for day in days]))
    order = output_order(ordering, 3, splits, [day.num_rows for day in days])
    columns = [
        CategoricalColumn(f"cat_{i}", threshold, tmp_path / f"cat_{i}")
        for i, threshold in enumerate(thresholds)
    ]
    values = [[line[14 + i] for line in lines] for i in range(2)]
    known = [
        reference.vocabulary(each, threshold)
        for each, threshold in zip(values, thresholds, strict=True)
    ]
    assert engine.count_columns(columns, days, len(lines)) == list(map(len, known))
    layout = SplitLayout(tmp_path / "data", splits, order)
    for i, column in enumerate(columns):
        assert stored(column) == known[i]
        columns[i] = replace(column, files=categorical_files(layout, column.name, 300))
        columns[i].files.create()
    written = engine.write_columns(columns, days)
    for i, column in enumerate(columns):
        ids = {value: n for n, (value, _) in enumerate(known[i], 1)}
        assert written[i] == sum(value in ids for value in values[i])
        expected = np.zeros(len(lines), column.files.dtype)
        expected[order.positions(np.arange(len(lines)))] = [ids.get(v, 0) for v in values[i]]
        result = b"".join(column.files.path(split).read_bytes() for split in splits)
        assert result == expected.tobytes()


def test_numerical_features(engine, log, tmp_path, monkeypatch):
    monkeypatch.setattr(spark_engine, "_PIECE_ROWS", 64)
    days, lines = log
    splits = tuple(split_by_day([day.num_rows for day in days]))
    order = output_order("day_random", 3, splits, [day.num_rows for day in days])
    encoded = numerical_files(
        SplitLayout(tmp_path / "data", splits, order), with_labels=True, with_bins=True
    )
    for files in encoded.files:
        files.create()
    clicks = engine.write_numericals(days, encoded)
    labels = np.array([line[0] == "1" for line in lines])
    assert clicks == {s.name: labels[s.start : s.stop].sum() for s in splits}
    rows = np.argsort(order.positions(np.arange(len(lines))))
    for files, of_line in zip(
        encoded.files,
        (
            lambda line: b"\x01" if line[0] == "1" else b"\x00",
            lambda line: b"".join(map(reference.numerical, line[1:14])),
            lambda line: reference.numerical_bin(line[1]),
        ),
        strict=False,
    ):
        result = b"".join(files.path(split).read_bytes() for split in splits)
        assert result == b"".join(of_line(lines[i]) for i in rows)


def test_encoder(one_spark, log, tmp_path):
    """The encoder makes of the raw rows what Spark has written, and is that of DuckDB."""
    raw = log[0][0].path.parent
    common = {"input": raw, "frequency_threshold": 2, "bin_numericals": True}
    common |= {"output_ordering": "input", "memory_limit_bytes": 3 << 30, "threads": 2}
    spec = prepare(CriteoOptions(output=tmp_path / "spark", engine="spark", **common))
    encoded = reference.encode_raw(tmp_path / "spark", [raw / "day_0", raw / "day_1"])
    assert encoded == reference.in_log_order(tmp_path / "spark")
    assert spec.metadata == prepare(CriteoOptions(output=tmp_path / "duckdb", **common)).metadata


@pytest.mark.long
def test_a_million_rows(one_spark, tmp_path):
    for day in range(3):
        generate_day(tmp_path / f"raw/day_{day}", 340_000, day)
    common = {"input": tmp_path / "raw", "bin_numericals": True, "threads": 2}
    for engine, limit in (("duckdb", 1 << 30), ("spark", 3 << 30)):
        output = {"output": tmp_path / engine, "memory_limit_bytes": limit}
        prepare(CriteoOptions(engine=engine, **common, **output))
    assert contents(tmp_path / "spark") == contents(tmp_path / "duckdb")


def test_vocabulary_of_the_first_rows(engine, log, tmp_path):
    """The first 500 of 800 rows: all of day 0, a part of day 1, or 100 rows of day 1 alone."""
    days, lines = log
    column = CategoricalColumn("cat_0", 2, tmp_path / "vocabulary")
    for chosen, start in ((days, 0), (days[1:], 400)):
        known = reference.vocabulary([line[14] for line in lines[start:500]], 2)
        assert engine.count_columns([column], chosen, 500) == [len(known)]
        assert stored(column) == known


def test_empty_vocabulary(engine, log, tmp_path):
    days, _ = log
    column = CategoricalColumn("cat_7", 0, tmp_path / "vocabulary")
    assert engine.count_columns([column], days, 800) == [0]
    assert stored(column) == []
    splits = tuple(split_by_day([day.num_rows for day in days]))
    files = categorical_files(SplitLayout(tmp_path / "data", splits), "cat_7", 1)
    files.create()
    assert engine.write_columns([replace(column, files=files)], days) == [0]


# Settings and errors


def settings(tmp_path, **changes):
    return sessions.settings(options(tmp_path / "out", **changes), tmp_path, "tests")


def test_settings(tmp_path, monkeypatch):
    result = settings(tmp_path, spark_conf=("spark.sql.shuffle.partitions=7", "spark.a=b=c"))
    assert result["spark.master"] == "local[2]"
    assert result["spark.driver.memory"] == f"{3072 - 640 - 2 * 448}m"
    assert result["spark.local.dir"] == str(tmp_path)
    assert result["spark.sql.ansi.enabled"] == "false"
    assert (result["spark.sql.shuffle.partitions"], result["spark.a"]) == ("7", "b=c")
    result = settings(tmp_path, master="spark://somewhere:7077")
    assert result["spark.master"] == "spark://somewhere:7077"
    assert "spark.driver.memory" not in result
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # spark-submit has its own --master
    assert "spark.master" not in settings(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spark_conf": ("a=b",)}, "--spark_conf 'a=b'"),
        ({"spark_conf": ("spark.a",)}, "--spark_conf 'spark.a'"),
        ({"memory_limit_bytes": 1 << 30, "master": "local[3]"}, "--memory_limit 1024 MiB"),
    ],
)
def test_wrong_settings(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        settings(tmp_path, **changes)


class Context:
    """Stand-in for a SparkContext."""

    def __init__(self, is_stopped):
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: is_stopped))
        self.master = "local[2]"
        self.stops = 0

    def setLogLevel(self, _):
        pass

    def addPyFile(self, _):
        raise Py4JError("no file server")

    def stop(self):
        self.stops += 1
        raise Py4JError("stopping what has stopped")


@pytest.mark.parametrize(
    ("is_stopped", "cause"), [(True, "no master answers"), (False, "no file server")]
)
def test_start_with_broken_context(tmp_path, monkeypatch, is_stopped, cause):
    context, ended = Context(is_stopped), []
    monkeypatch.setattr(sessions, "SparkContext", lambda conf: context)
    monkeypatch.setattr(sessions, "stop_gateway", lambda: ended.append(context.stops))
    with pytest.raises(
        ValueError, match=rf"^Spark does not start with --master local\[2\]: {cause}"
    ):
        sessions.start(options(tmp_path / "out"), tmp_path, "tests")
    assert ended == [1]


def test_start_failure(tmp_path, monkeypatch):
    """The JVM reports the cause of the failure before it ends."""
    ended = []

    class Failed(Py4JError):
        def __str__(self):
            return "Connection refused" if ended else "org.apache.spark.SparkException: 0 threads"

    def context(conf):
        raise Failed

    monkeypatch.setattr(sessions, "SparkContext", context)
    monkeypatch.setattr(sessions, "stop_gateway", lambda: ended.append(True))
    with pytest.raises(ValueError, match="0 threads; it needs Java"):
        sessions.start(options(tmp_path / "out"), tmp_path, "tests")
    assert ended


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*]", True), ("local[2, 3]", True), ("yarn", False), ("x", False)],
)
def test_local_masters(master, local):
    assert sessions.is_local(master) == local


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (PySparkException("Lost task:\njava.io.IOException: No space left on device\n\tat x"),
         OSError, "No space left on device"),
        (PySparkException("Job aborted\nCaused by: java.lang.OutOfMemoryError: Java heap space"),
         ValueError, "Java heap space; .*--memory_limit"),
        (Py4JNetworkError("Answer from Java side is empty"), ValueError, "or its JVM died"),
        (PySparkException('  File "x"\nValueError: a rule\n\n\tat y'), ValueError, "^a rule$"),
        (PySparkException("x\nOSError: [Errno 5] broken\n"), OSError, "broken"),
        (Py4JError("odd"), ValueError, "Spark failed: odd"),
        (PySparkException(""), ValueError, "Spark failed: PySparkException"),
    ],
)  # fmt: skip
def test_explained_errors(tmp_path, raised, kind, message):
    with pytest.raises(kind, match=message) as result, sessions.explained_errors(options(tmp_path)):
        raise raised
    if "space" in message and kind is OSError:
        assert result.value.errno == errno.ENOSPC


def test_error_of_a_task(engine, log, tmp_path):
    """Tasks of a run without its token write nothing; their error message reaches the driver."""
    days, _ = log
    engine.token.path.unlink()
    splits = tuple(split_by_day([day.num_rows for day in days]))
    encoded = numerical_files(
        SplitLayout(tmp_path / "data", splits), with_labels=True, with_bins=False
    )
    for files in encoded.files:
        files.create()
    with (
        pytest.raises(ValueError, match="^a Spark worker on .* does not see .*spark_run as"),
        engine.explained_errors(),
    ):
        engine.write_numericals(days, encoded)
    assert not any(any(path.read_bytes()) for path in encoded.files[0].paths)


def test_another_token(tmp_path):
    RunToken(tmp_path / "token", "theirs").create()
    with pytest.raises(ValueError, match="another run has taken over"):
        RunToken(tmp_path / "token", "ours").check()


def test_packages_of_the_container(root, run_script):
    """requirements/spark.lock has what the driver imports."""
    done = run_script(
        "-c",
        "import sys; before = set(sys.modules); from importlib.metadata import *\n"
        "import duckdb, preproc.criteo.__main__, preproc.criteo.engines.spark.spark_engine\n"
        "owners, new = packages_distributions(), set(sys.modules) - before\n"
        "print(*{owner for name in new for owner in owners.get(name, ())})",
    )
    optional = {"cloudpickle", "psutil"}  # Spark's and Arrow's, which use them if they are there
    imported = {name.lower().replace("_", "-") for name in done.stdout.split()} - optional
    assert {"numpy", "pyspark", "duckdb"} <= imported, done.stderr
    lock = (root / "requirements/spark.lock").read_text().lower()
    assert not [name for name in imported if f"\n{name}==" not in lock]


def test_missing_pyspark(tmp_path, monkeypatch):
    for name in [n for n in sys.modules if n.startswith(PYSPARK_USERS)]:
        monkeypatch.delitem(sys.modules, name)
    for name in [n for n in sys.modules if n.split(".")[0] == "pyspark"] + ["pyspark"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match="PySpark.*`make engines`"):
        open_engine(options(tmp_path), tmp_path, tmp_path)
