"""A standalone Spark cluster on this machine: one master, some workers, all on 127.0.0.1."""

import os
import re
import subprocess
import time
from pathlib import Path

_START_S = 60  # a JVM on a busy machine


class SparkCluster:
    """A context manager; the processes end with it.

    Args:
        folder: for logs and the workers' files.
        num_workers: each is one process with `cores` cores and `memory` (Spark's way to write it)
            for its executors.

    Attributes:
        url: the master, spark://127.0.0.1:PORT.
        pids: of the master and of the workers.
    """

    def __init__(self, folder: Path, num_workers: int = 2, cores: int = 1, memory: str = "3g"):
        self._folder = folder
        self._num_workers, self._cores, self._memory = num_workers, cores, memory
        self._processes: list[subprocess.Popen] = []

    def __enter__(self):
        try:
            log = self._start("master", "Master", "--host", "127.0.0.1", "--port", 0)
            self.url = _wait_for(log, r"Starting Spark master at (spark://\S+)")
            for i in range(self._num_workers):
                resources = ("--cores", self._cores, "--memory", self._memory)
                place = ("--host", "127.0.0.1", "--work-dir", self._folder / f"worker_{i}")
                log = self._start(f"worker_{i}", "Worker", *resources, *place, self.url)
                _wait_for(log, "Successfully registered with (master)")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception):
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def _start(self, name: str, role: str, *arguments) -> Path:
        import pyspark

        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        log = self._folder / f"{name}.log"
        command = [spark_class, f"org.apache.spark.deploy.{role.lower()}.{role}", *arguments]
        with open(log, "w") as file:
            process = subprocess.Popen(
                [*map(str, command), "--webui-port", "0"],
                stdout=file,
                stderr=file,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"},
            )
        self._processes.append(process)
        return log


def _wait_for(log: Path, pattern: str) -> str:
    """The first group of the pattern, once the log has it.

    Raises:
        RuntimeError: not within a minute.
    """
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        if match := re.search(pattern, log.read_text()):
            return match[1]
        time.sleep(0.1)
    raise RuntimeError(f"{log} does not contain {pattern!r}:\n{log.read_text()}")
