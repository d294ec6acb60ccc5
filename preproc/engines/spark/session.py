"""A Spark session: started with our settings, stopped without leftovers, its errors explained."""

import contextlib
import errno
import logging
import os
import re
import signal
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from preproc.engines.spark.tasks import RunToken

_PACKAGES = ("config", "dataloading", "deployment", "preproc", "runtime")  # imported by tasks
_ROOT = Path(__file__).resolve().parents[3]
# Memory outside the heap of a local master: this process, the JVM's own code and buffers, and per
# thread the JVM's buffers for a Python worker. Measured.
_OUTSIDE_HEAP_BYTES = 640 << 20
_BUFFER_BYTES = 64 << 20
WORKER_BYTES = 384 << 20  # a Python worker, with its DuckDB
_MIN_HEAP_BYTES = 512 << 20
_LOCAL_MASTER = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?")
_STOP_S = 20  # how long the JVM may take to end
_PY4J = logging.getLogger("py4j")
_JAVA_ERROR = re.compile(r"(?:Caused by: )?[\w.$]+(?:Exception|Error): (.*)")
_PYTHON_ERROR = re.compile(r"^(ValueError|OSError|FileNotFoundError): (.*)", re.MULTILINE)


class SessionOptions(NamedTuple):
    """Flags of a command that Spark reads, possibly among others in another class.

    Memory limit and threads are those of a local master.
    """

    master: str | None
    spark_conf: tuple[str, ...]
    threads: int
    memory_limit_bytes: int


def is_local(master: str) -> bool:
    """Returns whether a master's tasks run in the driver's own process."""
    return _LOCAL_MASTER.fullmatch(master) is not None


def settings(
    options: SessionOptions,
    scratch: Path,
    name: str,
    more: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Returns the settings of an application called `name`; those of --spark_conf win over `more`.

    A process that spark-submit started has read its flags already: master and memory are set, and
    only a --master here is another.

    Raises:
        ValueError: a --spark_conf that is not a setting, or too little memory.
    """
    master = options.master
    if master is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        master = f"local[{options.threads}]"
    result = {
        "spark.app.name": name,
        "spark.speculation": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "false",  # Spark 4 would end at a cast that fails
        "spark.sql.adaptive.enabled": "true",
        # A query of 40 columns becomes a method that Java would not compile, but interpret.
        "spark.sql.codegen.hugeMethodLimit": "8000",
        "spark.sql.autoBroadcastJoinThreshold": "-1",  # the size of a Parquet file is too small
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(1 << 16),
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.hadoop.parquet.block.size": str(32 << 20),
    }
    if master is not None:
        result["spark.master"] = master
        if is_local(master):
            result |= {
                "spark.driver.memory": f"{_heap_bytes(master, options) >> 20}m",
                "spark.driver.host": "127.0.0.1",
                "spark.local.dir": str(scratch.absolute()),
                "spark.ui.enabled": "false",
                "spark.sql.shuffle.partitions": "32",
            }
    result |= more or {}
    for setting in options.spark_conf:
        key, equals, value = setting.partition("=")
        if not equals or not key.startswith("spark."):
            raise ValueError(
                f"--spark_conf {setting!r} is not a setting of Spark; write it like "
                "spark.sql.shuffle.partitions=400"
            )
        result[key] = value
    return result


def _heap_bytes(master: str, options: SessionOptions) -> int:
    threads = _LOCAL_MASTER.fullmatch(master)[1] or "1"
    num_threads = os.cpu_count() if threads == "*" else int(threads)
    outside = _OUTSIDE_HEAP_BYTES + num_threads * (_BUFFER_BYTES + WORKER_BYTES)
    heap = options.memory_limit_bytes - outside
    if heap < _MIN_HEAP_BYTES:
        raise ValueError(
            f"--memory_limit {options.memory_limit_bytes >> 20} MiB is too small for Spark with "
            f"{num_threads} threads, which needs {-(-(outside + _MIN_HEAP_BYTES) >> 20)} MiB; "
            "possible solutions: a larger --memory_limit, fewer --threads, --engine duckdb"
        )
    return heap


def start(
    options: SessionOptions,
    scratch: Path,
    name: str,
    more: Mapping[str, str] | None = None,
) -> SparkSession:
    """Starts Spark with these `settings`.

    Raises:
        ValueError: wrong settings, no Java, or a cluster that cannot be reached; nothing of Spark
            is left then.
        OSError: no space left for our zipped sources, among others.
    """
    wanted = settings(options, scratch, name, more)
    packages = scratch / "preparation.zip"
    pack_sources(packages)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_local(wanted.get("spark.master", "")):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    context = None
    try:
        context = SparkContext(conf=SparkConf().setAll(list(wanted.items())))
        # Where no master answers, Spark gives up after a minute and returns a stopped context.
        if context._jsc.sc().isStopped():
            raise ConnectionError("no master answers")
        # A local master's tasks log here, pages where `explained_errors` prints a sentence.
        context.setLogLevel("OFF" if is_local(context.master) else "WARN")
        context.addPyFile(str(packages))
        return SparkSession(context)
    except (PySparkException, Py4JError, OSError) as error:
        cause = one_line(error)  # while there is a JVM to ask
        stop(context)
        raise ValueError(
            f"Spark does not start with --master {wanted.get('spark.master', 'of spark-submit')}: "
            f"{cause}; it needs Java 8, 11 or 17 (java on the PATH or JAVA_HOME) and a --master "
            "that can be reached"
        ) from error


def pack_sources(path: Path) -> None:
    """Writes a zip archive of our sources, for workers that have no copy of them."""
    with zipfile.ZipFile(path, "w") as archive:
        for package in _PACKAGES:
            for source in sorted((_ROOT / package).rglob("*.py")):
                archive.write(source, source.relative_to(_ROOT))


def stop(started: SparkSession | SparkContext | None) -> None:
    """Stops Spark and the JVM that was started for it."""
    if started is not None:
        with contextlib.suppress(Py4JError, OSError):  # its JVM may be gone already
            started.stop()
    stop_gateway()


def stop_gateway() -> None:
    """Ends the JVM, if this process started one, so that a later start gets one of its own."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    with contextlib.suppress(Py4JError, OSError):
        gateway.shutdown()
    java = getattr(gateway, "proc", None)
    if java is None:  # spark-submit's, which ends with this process
        return
    java.stdin.close()  # what it waits for
    try:
        java.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()


@contextlib.contextmanager
def explained_errors(options: SessionOptions):
    """Turns errors of Spark and Java into ValueError or OSError."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        if "No space left on device" in text:
            raise OSError(
                errno.ENOSPC,
                "No space left on device, reported by Spark; its own files are in the folder for "
                "temporary files, next to the output by default",
            ) from error
        if "OutOfMemoryError" in text or "Py4JNetworkError" in type(error).__name__:
            raise ValueError(
                f"Spark ran out of memory, or its JVM died: {one_line(error)}; possible solutions: "
                f"a --memory_limit above {options.memory_limit_bytes >> 20} MiB, fewer threads, "
                "on a cluster --spark_conf spark.executor.memory=..."
            ) from error
        errors = _PYTHON_ERROR.findall(text)
        if errors:
            kind = ValueError if errors[-1][0] == "ValueError" else OSError
            raise kind(errors[-1][1]) from error
        raise ValueError(f"Spark failed: {one_line(error)}") from error


class Session:
    """Context manager around a Spark session and what its work has in common.

    Args:
        options: memory limit and threads are those of a local master.
        scratch: for what does not fit into memory.
        shared: folder that all workers must see, in which they look for a file of ours.

    Attributes:
        token: proves to a task that it works on the files of this run.
        is_cluster: tasks run on other machines, after entering.

    Raises:
        ValueError: on entering: Spark does not start.
    """

    def __init__(
        self,
        options: SessionOptions,
        scratch: Path,
        name: str,
        shared: Path,
        more: Mapping[str, str] | None = None,
    ):
        self._options, self._scratch = options, scratch
        self._start = (options, scratch, name, more)
        # Absolute: tasks may have another working folder.
        self.token = RunToken(shared.absolute() / "spark_run", uuid.uuid4().hex)

    def __enter__(self):
        self._handler = signal.getsignal(signal.SIGINT)
        self.token.create()
        self._spark = start(*self._start)  # whose own handler cancels the jobs
        _PY4J.setLevel(logging.CRITICAL + 1)  # it would show a trace of the call that Ctrl-C tears
        self.is_cluster = not is_local(self._spark.sparkContext.master)
        return self

    def __exit__(self, *exception):
        stop(self._spark)
        _PY4J.setLevel(logging.NOTSET)
        if signal.getsignal(signal.SIGINT) is not self._handler:
            signal.signal(signal.SIGINT, self._handler or signal.SIG_DFL)

    def explained_errors(self):
        """See `explained_errors`."""
        return explained_errors(self._options)

    def _tasks(self, number: int, work: Callable, schema: str) -> DataFrame:
        """Returns what `work` yields in a task for each of the numbers from 0."""
        return self._spark.range(0, number, 1, max(1, number)).mapInArrow(work, schema)


def one_line(error: Exception) -> str:
    """The innermost cause that an error of Spark names."""
    text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    causes = [match[1] for line in text.splitlines() if (match := _JAVA_ERROR.match(line.strip()))]
    lines = [line.strip() for line in [*causes[-1:], *text.splitlines()] if line.strip()]
    return lines[0] if lines else type(error).__name__


def literal(path: Path) -> str:
    """Returns a path of the shared file system for Spark to read.

    Spark would take `*`, `?`, `[` and `{` for a pattern, and a path without a scheme for one of the
    cluster's own store.
    """
    escaped = "".join("\\" + c if c in "*?[]{}\\" else c for c in str(path.absolute()))
    return f"file://{escaped}"
