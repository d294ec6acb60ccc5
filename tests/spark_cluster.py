"""A standalone Spark cluster on this machine: one master, some workers, all on 127.0.0.1."""

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from preproc.engines import environment

_START_S = 60  # a JVM on a busy machine
_ENVIRONMENT = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}


@contextlib.contextmanager
def spark_cluster(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Yields the master's spark://127.0.0.1:PORT and the ids of all processes, which end with it.

    Two workers have a core and 3 GiB each; logs and their files are in `folder`.
    """
    with contextlib.ExitStack() as stack:
        master, log = _start(stack, folder / "master.log", "master.Master", "--port", 0)
        url, pids = _wait_for(log, r"Starting Spark master at (spark://\S+)"), [master.pid]
        for i in range(2):
            flags = ("--cores", 1, "--memory", "3g", "--work-dir", folder / f"worker_{i}")
            path = folder / f"worker_{i}.log"
            worker, log = _start(stack, path, "worker.Worker", *flags, url)
            _wait_for(log, "Successfully registered with (master)")
            pids.append(worker.pid)
        yield url, pids


def _start(
    stack: contextlib.ExitStack, log: Path, role: str, *arguments: object
) -> tuple[subprocess.Popen, Path]:
    spark_class = environment.packages_folder() / "pyspark" / "bin" / "spark-class"
    command = [spark_class, f"org.apache.spark.deploy.{role}", "--host", "127.0.0.1", *arguments]
    with open(log, "w") as file:
        process = subprocess.Popen(
            [*map(str, command), "--webui-port", "0"],
            stdout=file,
            stderr=file,
            env={**os.environ, **_ENVIRONMENT},
        )
    stack.callback(_end, process)
    return process, log


def _end(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for(log: Path, pattern: str) -> str:
    """The first group of the pattern, once the log has it."""
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        if match := re.search(pattern, log.read_text()):
            return match[1]
        time.sleep(0.1)
    raise RuntimeError(f"{log} does not contain {pattern!r}:\n{log.read_text()}")
