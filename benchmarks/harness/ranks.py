"""Processes that answer the requests of a benchmark through a socket."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence

from benchmarks.harness import machine

START_TIMEOUT_S = 180.0
ANSWER_TIMEOUT_S = 1800.0
END_TIMEOUT_S = 20.0
# Threads of a side that waits for its turn must sleep, or they take the cores of the other side.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "0"}
_ENVIRONMENT |= {"TF_CPP_MIN_LOG_LEVEL": "2"}
# Stopped ranks cannot notice that their driver was killed: this wakes them, and then they do.
_GUARD = 'cat; for pid in "$@"; do kill -CONT "$pid"; done'


class Ranks:
    """One process, or several ranks that a launcher starts.

    Args:
        name: their name in errors.
        command: a program that calls `worker.serve` with the `--address` that is put after it.
        launch: words that start `num_ranks` processes of the command after them.
        num_ranks: number of processes.
        environment: variables to set for them.
        pauses: stops launched processes (SIGSTOP) while they wait: Horovod's threads never sleep
            for long. Not in namespaces of their own.

    Raises:
        RuntimeError: not all came; the message ends with their last output.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        launch: Sequence[str] = (),
        num_ranks: int = 1,
        environment: Mapping[str, str] | None = None,
        pauses: bool = True,
    ):
        self.name, self._num_ranks = name, num_ranks
        self._streams, self._handles, self._guard = {}, [], None
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the processes
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
            address = f"{folder}/socket"  # in a folder: it also reaches into other networks
            server.bind(address)
            server.listen(num_ranks)
            self._launcher = subprocess.Popen(
                [*launch, *command, "--address", address],
                env={**os.environ, **_ENVIRONMENT, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                pids = self._accept(server)
                if launch and pauses:
                    self._watch(pids)
            except BaseException:
                self.close()
                raise

    def _accept(self, server: socket.socket) -> list[int]:
        deadline, pids = time.monotonic() + START_TIMEOUT_S, []
        server.settimeout(0.5)
        while len(pids) < self._num_ranks:
            try:
                connection, _ = server.accept()
            except TimeoutError:
                if self._launcher.poll() is None and time.monotonic() < deadline:
                    continue
                text = f"{len(pids)} of {self._num_ranks} ranks came: {self._last_output()}"
                raise RuntimeError(f"{self.name}: {text}") from None
            with connection:
                connection.settimeout(ANSWER_TIMEOUT_S)
                stream = connection.makefile("rw")
            rank, pid = json.loads(stream.readline())
            self._streams[rank] = stream
            pids.append(pid)
        return pids

    def _watch(self, pids: Sequence[int]) -> None:
        self._handles = [os.pidfd_open(pid) for pid in pids]  # unlike a pid never another's
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, "guard", *map(str, pids)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _signal(self, number: int) -> None:
        for handle in self._handles:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)

    def ask(self, action: str, **arguments) -> list[dict]:
        """Sends a request to all ranks; returns their answers, in their order.

        Raises:
            RuntimeError: a rank ended, or did not answer; the message ends with the last output.
        """
        streams = [self._streams[rank] for rank in sorted(self._streams)]
        request = json.dumps({"action": action, **arguments})
        self._signal(signal.SIGCONT)
        try:
            for stream in streams:
                print(request, file=stream, flush=True)
            lines = [stream.readline() for stream in streams]
        except OSError:  # a broken connection, or the time-out
            lines = [""]
        if not all(lines):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._launcher.wait(timeout=END_TIMEOUT_S)  # for all of the last output
            raise RuntimeError(f"{self.name} died during '{action}': {self._last_output()}")
        self._signal(signal.SIGSTOP)
        return [json.loads(line) for line in lines]

    def call(self, method: str, **arguments):
        """The result of a method of the training of the first rank (`worker.serve_training`)."""
        return self.ask("call", method=method, **arguments)[0]["result"]

    def _last_output(self) -> str:
        self._log.seek(0)
        return self._log.read()[-3000:]

    def close(self) -> None:
        """Ends all processes: they end with their streams; the launcher ends the others."""
        if self._guard is not None:
            self._guard.communicate()
        self._signal(signal.SIGCONT)
        for stream in self._streams.values():
            with contextlib.suppress(OSError):
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._launcher.wait(timeout=END_TIMEOUT_S if self._streams else 0)
        if self._launcher.poll() is None:
            os.killpg(self._launcher.pid, signal.SIGTERM)  # launchers end their ranks
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._launcher.wait(timeout=END_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._launcher.pid, signal.SIGKILL)
        self._launcher.wait()
        self._signal(signal.SIGKILL)
        for handle in self._handles:
            os.close(handle)
        self._handles, self._streams = [], {}
        self._log.close()


def ask_and_watch(ranks: Ranks, action: str, **arguments) -> tuple[list[dict], float]:
    """Answers of the ranks, and the number of cores that other processes kept busy."""
    busy_s, start = machine.busy_cpu_s(), time.perf_counter()
    answers = ranks.ask(action, **arguments)
    foreign_s = machine.busy_cpu_s() - busy_s - sum(answer["cpu_s"] for answer in answers)
    return answers, foreign_s / (time.perf_counter() - start)
