"""Ranks that a launcher starts, which answer requests through a socket."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence

from benchmarks.harness.worker import SLEEPING_THREADS

START_TIMEOUT_S = 180.0
ANSWER_TIMEOUT_S = 900.0
END_TIMEOUT_S = 20.0


class LaunchedRanks:
    """Processes of `command` that `launch` starts.

    Args:
        name: their name in errors.
        launch: words that start `num_ranks` processes of the command after them; empty for one.
        command: a program that connects to `address`, its last argument, sends {"rank": ...} and
            answers requests (`worker.answer_requests`).
        server: a listening socket; is closed.
        address: of the server, as a word.

    Attributes:
        greetings: first message of each rank, in their order.

    Raises:
        RuntimeError: not all came; the message ends with their last words.
    """

    def __init__(
        self,
        name: str,
        launch: Sequence[str],
        command: Sequence[str],
        num_ranks: int,
        server: socket.socket,
        address: str,
    ):
        self.name, self._num_ranks = name, num_ranks
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the processes
        self._streams: list = []
        with server:
            self._launcher = subprocess.Popen(
                [*launch, *command, address],
                env={**os.environ, **SLEEPING_THREADS, "TF_CPP_MIN_LOG_LEVEL": "2"},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                deadline = time.monotonic() + START_TIMEOUT_S
                came: list[tuple[dict, object]] = []
                while len(came) < num_ranks:
                    came.append(self._accept(server, deadline, len(came)))
                came.sort(key=lambda each: each[0]["rank"])
                self.greetings = [greeting for greeting, _ in came]
                self._streams = [stream for _, stream in came]
            except BaseException:
                self.close()
                raise

    def _accept(self, server: socket.socket, deadline: float, came: int) -> tuple[dict, object]:
        server.settimeout(0.5)
        while True:
            try:
                connection, _ = server.accept()
                break
            except TimeoutError:
                if self._launcher.poll() is not None or time.monotonic() > deadline:
                    text = f"{came} of {self._num_ranks} ranks came: {self._last_words()}"
                    raise RuntimeError(f"{self.name}: {text}") from None
        with connection:
            connection.settimeout(ANSWER_TIMEOUT_S)
            stream = connection.makefile("rw")
        return json.loads(stream.readline()), stream

    def ask(self, action: str, **arguments) -> list[dict]:
        """Sends a request to all ranks; returns their answers, in their order.

        Raises:
            RuntimeError: a rank died, or did not answer; the message ends with the last words.
        """
        request = json.dumps({"action": action, **arguments}) + "\n"
        try:
            for stream in self._streams:
                stream.write(request)
                stream.flush()
            lines = [stream.readline() for stream in self._streams]
        except OSError:  # a broken connection, or the time-out
            lines = [""]
        if not all(lines):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._launcher.wait(timeout=END_TIMEOUT_S)  # for all of the last words
            raise RuntimeError(f"{self.name} died during '{action}': {self._last_words()}")
        return [json.loads(line) for line in lines]

    def _last_words(self) -> str:
        self._log.seek(0)
        return self._log.read()[-3000:]

    def close(self) -> None:
        """Ends all processes: they end with their streams; the launcher ends the others."""
        for stream in self._streams:
            with contextlib.suppress(OSError):
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._launcher.wait(timeout=END_TIMEOUT_S if self._streams else 0)
        if self._launcher.poll() is None:
            os.killpg(self._launcher.pid, signal.SIGTERM)  # launchers end their ranks
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._launcher.wait(timeout=END_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._launcher.pid, signal.SIGKILL)  # the rest of it
        self._launcher.wait()
        self._streams = []
        self._log.close()
