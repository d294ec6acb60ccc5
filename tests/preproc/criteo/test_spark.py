"""Spark against DuckDB, in one local session; malformed lines, settings and errors."""

import errno
import gzip
import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="needs pyspark: run .venv-engines/bin/python")

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from preproc.criteo.engines import open_engine, parts
from preproc.criteo.engines.engine_interface import DayFile
from preproc.criteo.engines.spark import spark_engine as spark_engine
from preproc.criteo.engines.spark.spark_engine import SparkEngine
from preproc.criteo.generate_logs import generate_day
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output.binary_files import SplitLayout
from preproc.criteo.output.data_set import numerical_files
from preproc.criteo.output.splits import split_by_fraction
from preproc.criteo.prepare import prepare
from preproc.engines.spark import session as sessions
from preproc.engines.spark.tasks import RunToken
from tests.preproc import shared_spark
from tests.preproc.contents import contents
from tests.preproc.criteo import criteo_reference as reference
from tests.preproc.criteo.test_criteo_lines import GOOD, MALFORMED

pytestmark = pytest.mark.engines("pyspark")
PYSPARK_USERS = ("preproc.criteo.engines.spark", "preproc.engines.spark.session")


def options(output, **changes):
    changes = {"threads": 2, "memory_limit_bytes": 3 << 30} | changes
    return CriteoOptions(input=output, output=output, engine="spark", **changes)


@pytest.fixture
def engine(spark_session, tmp_path):
    engine = SparkEngine(options(tmp_path / "out"), tmp_path, tmp_path)
    with shared_spark.used(spark_session), engine:
        yield engine


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


def test_files_of_duckdb(one_spark, tmp_path, monkeypatch):
    """Pieces of 64 rows; cat_0, half of it "hot", is joined, cat_1, in odd scripts, looked up, and
    other columns have no value. The vocabulary is that of the first 500 of 800 rows."""
    changes = {"_PIECE_ROWS": 64, "_SMALL_VALUES": 61}
    for name, value in (changes | {"_RANGE_BYTES": 16 << 10, "_LEAST_RANGE_BYTES": 1}).items():
        monkeypatch.setattr(spark_engine, name, value)
    random = np.random.default_rng(5)
    (tmp_path / "raw").mkdir()
    for day in range(2):
        lines = []
        for _ in range(400):
            hot = "hot" if random.random() < 0.5 else f"v{random.integers(60)}"
            text = chr(int(random.choice([0x41, 0xE9, 0x6F22, 0xFFFD, 0x1F600])))
            number = int(random.integers(-4, 10**6))
            cats = {0: hot, 1: text * int(random.integers(9))}
            lines.append(reference.line(random.integers(2), {0: number}, cats))
        (tmp_path / f"raw/day_{day}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    common = {"input": tmp_path / "raw", "column_thresholds": ((0, 0),), "frequency_threshold": 2}
    common |= {"holdout_fraction": 0.375, "vocabulary_days": "train", "bin_numericals": True}
    common |= {"output_ordering": "day_random", "seed": 3, "threads": 2}
    folder = tmp_path / "an [odd] {a,b}* folder"
    folder.mkdir()
    for engine in ("duckdb", "spark"):
        output = {"output": folder / engine, "memory_limit_bytes": 3 << 30}
        prepare(CriteoOptions(engine=engine, **common, **output))
    assert contents(folder / "spark") == contents(folder / "duckdb")


@pytest.mark.long
def test_a_million_rows(one_spark, tmp_path):
    for day in range(3):
        generate_day(tmp_path / f"raw/day_{day}", 340_000, day)
    common = {"input": tmp_path / "raw", "bin_numericals": True, "threads": 2}
    for engine, limit in (("duckdb", 1 << 30), ("spark", 3 << 30)):
        output = {"output": tmp_path / engine, "memory_limit_bytes": limit}
        prepare(CriteoOptions(engine=engine, **common, **output))
    assert contents(tmp_path / "spark") == contents(tmp_path / "duckdb")


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
    masters = ("local", "local[*]", "local[2, 3]", "yarn", "x")
    assert [sessions.is_local(master) for master in masters] == [True] * 3 + [False] * 2
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


def test_error_of_a_task(engine, tmp_path):
    """Tasks of a run without its token write nothing; their error message reaches the driver."""
    (tmp_path / "raw").write_bytes((GOOD + b"\n") * 9)
    rows = engine.parse_day(tmp_path / "raw", tmp_path / "staged", tmp_path)["rows"]
    days = [DayFile(tmp_path / "staged", rows, 0)]
    engine.token.path.unlink()
    splits = tuple(split_by_fraction(rows, 0.5, 0.0))
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
