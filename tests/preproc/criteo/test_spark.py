"""Spark's operations one by one, in one local session, against the slow reference."""

import errno
import gzip
import signal
import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="needs pyspark: run .venv-engines/bin/python")

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from dataloading.table_input import spark_session
from preproc.criteo.engines import open_engine
from preproc.criteo.engines.interface import DayFile
from preproc.criteo.engines.spark import blocks as spark_blocks
from preproc.criteo.engines.spark import engine as spark_engine
from preproc.criteo.engines.spark import lines as spark_lines
from preproc.criteo.engines.spark import tasks
from preproc.criteo.engines.spark.engine import SparkEngine
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output.binary_files import SplitLayout
from preproc.criteo.output.data_set import categorical_files, numerical_writer
from preproc.criteo.output.output_order import output_order
from preproc.criteo.output.splits import split_by_day
from preproc.criteo.raw_lines import MAX_LINE_BYTES
from tests.preproc.criteo import criteo_reference as reference
from tests.preproc.criteo.test_criteo_lines import GOOD, LINE_ENDS, MALFORMED
from tests.preproc.criteo.test_spark_runs import QUICK_JAVA

pytestmark = pytest.mark.engines("pyspark")
PYSPARK_USERS = ("preproc.criteo.engines.spark", "dataloading.table_input.spark_session")
BLOCK_BYTES = 16 << 10  # some 200 lines


def options(output, **changes):
    changes = {"threads": 2, "memory_limit_bytes": 3 << 30, "spark_conf": (QUICK_JAVA,)} | changes
    return CriteoOptions(input=output, output=output, engine="spark", **changes)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    scratch = tmp_path_factory.mktemp("spark")
    session = spark_session.start(options(scratch), scratch, "tests")
    # Fixed partitions: even a small vocabulary has several blocks.
    session.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", 3)
    yield session
    spark_session.stop(session)


@pytest.fixture
def engine(session, tmp_path, monkeypatch):
    """Engine of one test, in the session that all tests share."""
    monkeypatch.setattr(spark_session, "start", lambda *_: session)
    monkeypatch.setattr(spark_session, "stop", lambda _: None)
    output = tmp_path / "out"
    (tmp_path / "out.partial" / "scratch").mkdir(parents=True)
    with SparkEngine(options(output), tmp_path) as engine:
        yield engine


def parse(session, path, block_bytes=None):
    """Parses a file into blocks of `block_bytes`, or of the size that Spark chooses."""
    scratch = path.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    target = path.parent / f"{path.name}.staged"
    settings = {"spark.sql.files.maxPartitionBytes": block_bytes}
    settings["spark.sql.files.openCostInBytes"] = 1  # or Spark would not make blocks so small
    before = {key: session.conf.get(key) for key in settings}
    try:
        for key, value in (settings if block_bytes else {}).items():
            session.conf.set(key, value)
        counts = spark_lines.parse_day(session, path, target, scratch)
    finally:
        for key, value in before.items():
            session.conf.set(key, value)
    assert list(scratch.iterdir()) == []
    return counts, target


# Lines


def test_malformed_lines(session, tmp_path):
    """Every kind of malformed line between good ones, plain and gzip, both line ends."""
    lines = [GOOD]
    for bad, _ in MALFORMED.values():
        lines += [bad, GOOD]
    for name, line_end, pack in (("lf", b"\n", bytes), ("crlf.gz", b"\r\n", gzip.compress)):
        source = tmp_path / f"_{name} [1]*"
        source.write_bytes(pack(line_end.join(lines)))
        counts, target = parse(session, source)
        good = 1 + len(MALFORMED)
        assert counts == {"rows": good, "bad_lines": len(MALFORMED), "first_bad_line": 2}
        rows = spark_blocks.part_files(target)
        assert sum(block.num_rows for block in spark_blocks.blocks_of(target)) == good
        assert rows


@pytest.mark.parametrize(
    "name",
    [
        "mixed line ends, bad line",
        "byte order mark, mixed",
        "last line bad, empty lines behind",
    ],
)
def test_line_ends(session, tmp_path, name):
    data, rows, first_bad_line = LINE_ENDS[name]
    (tmp_path / "raw").write_bytes(data)
    counts, _ = parse(session, tmp_path / "raw")
    bad = len(reference.read_rows(tmp_path / "raw")[1])
    assert counts == {"rows": rows, "bad_lines": bad, "first_bad_line": first_bad_line}


@pytest.mark.long
@pytest.mark.parametrize("name", LINE_ENDS)
def test_all_line_ends(session, tmp_path, name):
    test_line_ends(session, tmp_path, name)


def test_longest_line(session, tmp_path):
    longest = GOOD.replace(b"aa", b"x" * (MAX_LINE_BYTES - len(GOOD) + 2))
    (tmp_path / "raw").write_bytes(longest + b"\r\n" + longest.replace(b"xx", b"xxx", 1))
    counts, _ = parse(session, tmp_path / "raw")
    assert counts == {"rows": 1, "bad_lines": 1, "first_bad_line": 2}


def test_bad_line_in_a_later_block(session, tmp_path):
    lines = [GOOD] * 1000 + [b"x"] + [GOOD] * 500 + [b"", GOOD, b"", b""]
    (tmp_path / "raw").write_bytes(b"\n".join(lines))
    counts, target = parse(session, tmp_path / "raw", BLOCK_BYTES)
    assert counts == {"rows": 1501, "bad_lines": 2, "first_bad_line": 1001}
    assert len(spark_blocks.blocks_of(target)) > 3


def test_damaged_gzip(session, tmp_path):
    (tmp_path / "raw").write_bytes(gzip.compress(b"\n".join([GOOD] * 99))[:-3])
    with pytest.raises(ValueError, match="raw: the gzip data is cut off or damaged"):
        parse(session, tmp_path / "raw")
    assert list((tmp_path / "scratch").iterdir()) == []


# Rows


def test_blocks_in_any_order(engine, tmp_path):
    """Two tasks write blocks 30, 10, 10 and 20, 20, 20: 10 comes first, each in its own order."""
    entries = [(30, "e"), (10, "a"), (10, "b"), (20, "c"), (20, "c2"), (20, "d")]
    rows = engine._spark.createDataFrame(entries, "block long, value string").coalesce(1)
    rows = rows.union(rows.limit(0)).select(
        "block", F.monotonically_increasing_id().alias("seq"), "value"
    )
    blocks = spark_blocks.stage(rows, tmp_path / "staged")
    assert [(block.block, block.num_rows) for block in blocks] == [(10, 2), (20, 3), (30, 1)]
    numbered = spark_blocks.read_numbered(
        engine._spark, [(tmp_path / "staged", 7)], rows.select("value").schema, "n"
    )
    result = sorted(map(tuple, numbered.collect()))
    assert result == [(7, "a"), (8, "b"), (9, "c"), (10, "c2"), (11, "d"), (12, "e")]


@pytest.fixture(scope="module")
def log(session, tmp_path_factory):
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
    for day in range(2):
        counts, target = parse(session, folder / f"day_{day}", BLOCK_BYTES)
        days.append(DayFile(target, counts["rows"], len(lines)))
        lines += reference.read_rows(folder / f"day_{day}")[0]
    return days, lines


@pytest.mark.parametrize(
    ("column", "join", "ordering", "threshold"),
    [
        (1, "small", "input", 6),
        (0, "hot and cold", "total_random", 0),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                (0, "small", "input", 6),
                (1, "hot and cold", "total_random", 0),
                (0, "cold only", "input", 0),
                (1, "cold only", "input", 0),
            )
        ),
    ],
)
def test_column(engine, log, tmp_path, monkeypatch, column, join, ordering, threshold):
    """Vocabulary, text and ids, by each way of looking up; pieces of 64 rows."""
    monkeypatch.setattr(spark_engine, "_PIECE_ROWS", 64)
    if join != "small":
        monkeypatch.setattr(spark_engine, "_BROADCAST_VALUES", 1)
    pct = 100.0 if join == "cold only" else 3.0
    engine._options = options(tmp_path / "out", skew_broadcast_pct=pct)
    days, lines = log
    splits = tuple(split_by_day([day.num_rows for day in days]))
    order = output_order(ordering, 3, splits, [day.num_rows for day in days])
    values = [line[14 + column] for line in lines]
    known = reference.vocabulary(values, threshold)
    vocabulary = tmp_path / "vocabulary"
    num_values = engine.count_values(f"cat_{column}", days, len(lines), threshold, vocabulary)
    assert num_values == len(known)
    assert len(spark_blocks.blocks_of(vocabulary)) > 1
    text = tmp_path / "text"
    engine.write_vocabulary(vocabulary, text)
    assert text.read_bytes() == "".join(f"{v}\t{n}\n" for v, n in known).encode()
    text.unlink()
    files = categorical_files(
        SplitLayout(tmp_path / "data", splits, order), f"cat_{column}", num_values + 1
    )
    files.create()
    written = engine.write_ids(f"cat_{column}", days, vocabulary, files)
    ids = {value: n for n, (value, _) in enumerate(known, 1)}
    assert written == sum(value in ids for value in values)
    expected = np.zeros(len(lines), files.dtype)
    expected[order.positions(np.arange(len(lines)))] = [ids.get(v, 0) for v in values]
    result = b"".join(files.path(split).read_bytes() for split in splits)
    assert result == expected.tobytes()


@pytest.mark.parametrize("ordering", ["day_random", pytest.param("input", marks=pytest.mark.long)])
def test_numerical_features(engine, log, tmp_path, monkeypatch, ordering):
    monkeypatch.setattr(spark_engine, "_PIECE_ROWS", 64)
    days, lines = log
    splits = tuple(split_by_day([day.num_rows for day in days]))
    order = output_order(ordering, 3, splits, [day.num_rows for day in days])
    writer = numerical_writer(
        SplitLayout(tmp_path / "data", splits, order), with_labels=True, with_bins=True
    )
    for files in writer.files:
        files.create()
    clicks = engine.write_numericals(days, writer)
    labels = np.array([line[0] == "1" for line in lines])
    assert clicks == {s.name: labels[s.start : s.stop].sum() for s in splits}
    stored = np.argsort(order.positions(np.arange(len(lines))))
    for files, of_line in (
        (writer.labels, lambda line: b"\x01" if line[0] == "1" else b"\x00"),
        (writer.numericals, lambda line: b"".join(map(reference.numerical, line[1:14]))),
        (writer.bins[0], lambda line: reference.numerical_bin(line[1])),
    ):
        result = b"".join(files.path(split).read_bytes() for split in splits)
        assert result == b"".join(of_line(lines[i]) for i in stored)


def test_vocabulary_of_the_first_rows(engine, log, tmp_path):
    """The first 500 of 800 rows: all of day 0, a part of day 1, or 100 rows of day 1 alone."""
    days, lines = log
    for chosen, start in ((days, 0), (days[1:], 400)):
        known = reference.vocabulary([line[14] for line in lines[start:500]], 2)
        result = engine.count_values("cat_0", chosen, 500, 2, tmp_path / "vocabulary")
        assert result == len(known)
        engine.write_vocabulary(tmp_path / "vocabulary", tmp_path / "text")
        text = (tmp_path / "text").read_text()
        assert text == "".join(f"{value}\t{count}\n" for value, count in known)


def test_empty_vocabulary(engine, log, tmp_path):
    """An empty vocabulary replaces a file of another engine."""
    days, _ = log
    (tmp_path / "vocabulary").touch()
    assert engine.count_values("cat_7", days, 800, 0, tmp_path / "vocabulary") == 0
    engine.write_vocabulary(tmp_path / "vocabulary", tmp_path / "text")
    assert (tmp_path / "text").read_bytes() == b""
    assert engine.write_ids("cat_7", days, tmp_path / "vocabulary", None) == 0


# Settings and errors


def settings(tmp_path, **changes):
    return spark_session.settings(options(tmp_path / "out", **changes), tmp_path, "tests")


def test_settings(tmp_path, monkeypatch):
    result = settings(tmp_path, spark_conf=("spark.sql.shuffle.partitions=7", "spark.a=b=c"))
    assert result["spark.master"] == "local[2]"
    assert result["spark.driver.memory"] == f"{3072 - 640 - 2 * 192}m"
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
        ({"spark_conf": ("a=b",)}, "--spark_conf 'a=b' is not a setting of Spark; write it like"),
        ({"spark_conf": ("spark.a",)}, "--spark_conf 'spark.a' is not a setting"),
        (
            {"memory_limit_bytes": 1 << 30, "master": "local[3]"},
            "--memory_limit 1024 MiB is too small for Spark with 3 threads, which needs 1728 MiB",
        ),
    ],
)
def test_wrong_settings(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        settings(tmp_path, **changes)


def test_comma_in_the_scratch_folder(tmp_path):
    with pytest.raises(
        ValueError, match="takes the comma .*/a,b, .* an --output, .* without a comma"
    ):
        settings(tmp_path / "a,b")
    cluster = settings(tmp_path / "a,b", master="yarn")  # its workers have folders of their own
    assert "spark.local.dir" not in cluster


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
    monkeypatch.setattr(spark_session, "SparkContext", lambda conf: context)
    monkeypatch.setattr(spark_session, "stop_gateway", lambda: ended.append(context.stops))
    with pytest.raises(
        ValueError, match=rf"^Spark does not start with --master local\[2\]: {cause}"
    ):
        spark_session.start(options(tmp_path / "out"), tmp_path, "tests")
    assert ended == [1]


def test_start_failure(tmp_path, monkeypatch):
    """The JVM reports the cause of the failure before it ends."""
    ended = []

    class Failed(Py4JError):
        def __str__(self):
            return "Connection refused" if ended else "org.apache.spark.SparkException: 0 threads"

    def context(conf):
        raise Failed

    monkeypatch.setattr(spark_session, "SparkContext", context)
    monkeypatch.setattr(spark_session, "stop_gateway", lambda: ended.append(True))
    with pytest.raises(ValueError, match="0 threads; it needs Java"):
        spark_session.start(options(tmp_path / "out"), tmp_path, "tests")
    assert ended


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*]", True), ("local[2, 3]", True), ("yarn", False), ("x", False)],
)
def test_local_masters(master, local):
    assert spark_session.is_local(master) == local


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (
            PySparkException("Lost task:\njava.io.IOException: No space left on device\n\tat x"),
            OSError,
            "No space left on device, reported by Spark",
        ),
        (
            PySparkException("Job aborted\nCaused by: java.lang.OutOfMemoryError: Java heap space"),
            ValueError,
            "out of memory, or its JVM died: Java heap space; possible solutions: a --memory_limit",
        ),
        (Py4JNetworkError("Answer from Java side is empty"), ValueError, "or its JVM died"),
        (PySparkException('  File "x"\nValueError: a rule\n\n\tat y'), ValueError, "^a rule$"),
        (PySparkException("x\nOSError: [Errno 5] broken\n"), OSError, "broken"),
        (Py4JError("odd"), ValueError, "Spark failed: odd"),
        (PySparkException(""), ValueError, "Spark failed: PySparkException"),
    ],
)
def test_explained_errors(tmp_path, raised, kind, message):
    with (
        pytest.raises(kind, match=message) as result,
        spark_session.explained_errors(options(tmp_path), spark_session.Interruptions()),
    ):
        raise raised
    if "space" in message and kind is OSError:
        assert result.value.errno == errno.ENOSPC


def test_error_of_a_task(engine, log, tmp_path):
    """Tasks of a run without its token write nothing; their error message reaches the driver."""
    days, _ = log
    engine._token.path.unlink()
    splits = tuple(split_by_day([day.num_rows for day in days]))
    writer = numerical_writer(
        SplitLayout(tmp_path / "data", splits), with_labels=True, with_bins=False
    )
    for files in writer.files:
        files.create()
    with (
        pytest.raises(ValueError, match="^a Spark worker on .* does not see .*spark_run as"),
        engine.explained_errors(),
    ):
        engine.write_numericals(days, writer)
    assert not any(any(writer.labels.path(split).read_bytes()) for split in splits)
    engine._is_cluster = True
    with pytest.raises(ValueError, match="does not see"), engine.explained_errors():
        engine._check_workers()


def test_dropped_interrupt(engine, tmp_path, monkeypatch):
    """Ctrl-C in a finaliser: the next operation stops, and so does what Spark cancelled."""
    before = signal.getsignal(signal.SIGINT)

    class Finalised:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda _: None)
        Finalised()
    with pytest.raises(KeyboardInterrupt):
        engine.count_values("cat_0", [], 0, 0, tmp_path / "vocabulary")
    with pytest.raises(KeyboardInterrupt), engine.explained_errors():
        raise Py4JError("Job 5 cancelled")
    engine._interruptions.end()
    assert signal.getsignal(signal.SIGINT) != before


def test_another_token(tmp_path):
    tasks.RunToken(tmp_path / "token", "theirs").create()
    with pytest.raises(ValueError, match="another run has taken over"):
        tasks.RunToken(tmp_path / "token", "ours").check()


def test_packages_of_the_container(root, run_script):
    """requirements/spark.lock has what the driver imports."""
    done = run_script(
        "-c",
        "import sys; before = set(sys.modules); from importlib.metadata import *\n"
        "import preproc.criteo.__main__, preproc.criteo.engines.spark.engine\n"
        "owners, new = packages_distributions(), set(sys.modules) - before\n"
        "print(*{owner for name in new for owner in owners.get(name, ())})",
    )
    optional = {"cloudpickle", "psutil"}  # Spark's and Arrow's, which use them if they are there
    imported = {name.lower() for name in done.stdout.split()} - optional
    assert {"numpy", "pyspark", "duckdb"} <= imported, done.stderr
    lock = (root / "requirements/spark.lock").read_text().lower()
    assert not [name for name in imported if f"\n{name}==" not in lock]


def test_missing_pyspark(tmp_path, monkeypatch):
    for name in [n for n in sys.modules if n.startswith(PYSPARK_USERS)]:
        monkeypatch.delitem(sys.modules, name)
    for name in [n for n in sys.modules if n.split(".")[0] == "pyspark"] + ["pyspark"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match="needs PySpark, .* install it with `make engines`"):
        open_engine(options(tmp_path), tmp_path)
