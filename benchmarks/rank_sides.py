"""Sides of `rank_scaling`: one or several ranks that a launcher starts, asked by socket.

A side that waits for its turn is stopped (SIGSTOP): Horovod's threads never sleep for long.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.worker import SLEEPING_THREADS

LAUNCHERS = {"gloo": "Gloo (horovodrun)", "mpi": "MPI (mpirun)"}
START_TIMEOUT_S = 180.0
ANSWER_TIMEOUT_S = 900.0
END_TIMEOUT_S = 20.0

_HAS_MPI = (
    "from runtime import distributed\n"
    "raise SystemExit(not distributed.horovod_tensorflow().mpi_built())"
)
# Stopped ranks cannot notice that their driver was killed: this wakes them, and then they do.
_GUARD = 'cat; for pid in "$@"; do kill -CONT "$pid"; done'


def launch_command(launcher: str, num_ranks: int) -> list[str]:
    """What starts `num_ranks` processes of the command that follows it."""
    if launcher == "gloo":
        return [str(_horovodrun()), "--gloo", "-np", str(num_ranks)]
    free = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    return ["mpirun", *free, "-np", str(num_ranks)]


def why_missing(launcher: str) -> str | None:
    """Why this machine cannot start ranks so; None if it can."""
    if not _horovodrun().exists():
        return "Horovod is not installed (`make setup` does it)"
    if launcher == "mpi" and not shutil.which("mpirun"):
        return "mpirun is not installed"
    if launcher == "mpi":
        asked = subprocess.run([sys.executable, "-c", _HAS_MPI], capture_output=True, check=False)
        return "Horovod was built without MPI" if asked.returncode else None
    return None


def _horovodrun() -> Path:
    return Path(sys.executable).parent / "horovodrun"


class _Rank(NamedTuple):
    number: int
    pid: int
    handle: int  # of the process; unlike its pid never another's
    stream: object

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.handle, number)


class RankSide:
    """A side of the benchmark: `num_ranks` processes of `command`, the last word is the port.

    Args:
      launch: command that starts several; empty for one.
      command: a program that connects to 127.0.0.1 at the port that is put after it, says
        {"rank": ..., "pid": ...} and answers requests (`worker.answer_requests`).

    Raises:
      RuntimeError: not all ranks came; the message ends with their last words.
    """

    def __init__(self, name: str, launch: Sequence[str], num_ranks: int, command: Sequence[str]):
        self.name = name
        self._num_ranks = num_ranks
        self._ranks: list[_Rank] = []
        self._guard = None
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process
        with socket.create_server(("127.0.0.1", 0)) as server:
            self._launcher = subprocess.Popen(
                [*launch, *command, str(server.getsockname()[1])],
                env={**os.environ, **SLEEPING_THREADS, "TF_CPP_MIN_LOG_LEVEL": "2"},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                deadline = time.monotonic() + START_TIMEOUT_S
                while len(self._ranks) < num_ranks:
                    self._ranks.append(self._accept(server, deadline))
                self._ranks.sort()
                pids = [str(rank.pid) for rank in self._ranks]
                self._guard = subprocess.Popen(
                    ["sh", "-c", _GUARD, "guard", *pids],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except BaseException:
                self.close()
                raise

    def _accept(self, server: socket.socket, deadline: float) -> _Rank:
        server.settimeout(0.5)
        while True:
            try:
                connection, _ = server.accept()
                break
            except TimeoutError:
                if self._launcher.poll() is not None or time.monotonic() > deadline:
                    came = f"{len(self._ranks)} of {self._num_ranks} ranks came"
                    raise RuntimeError(f"{self.name}: {came}: {self._last_words()}") from None
        with connection:
            connection.settimeout(ANSWER_TIMEOUT_S)
            stream = connection.makefile("rw")
        said = json.loads(stream.readline())
        return _Rank(said["rank"], said["pid"], os.pidfd_open(said["pid"]), stream)

    def ask(self, action: str, **arguments) -> list[dict]:
        """Lets all ranks do one thing, and then stops them; what each says, in their order.

        Raises:
          RuntimeError: a rank died, or did not answer; the message ends with the last words.
        """
        request = json.dumps({"action": action, **arguments}) + "\n"
        try:
            for rank in self._ranks:
                rank.signal(signal.SIGCONT)
            for rank in self._ranks:
                rank.stream.write(request)
                rank.stream.flush()
            lines = [rank.stream.readline() for rank in self._ranks]
        except OSError:  # a broken connection, or the time-out
            lines = [""]
        if not all(lines):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._launcher.wait(timeout=END_TIMEOUT_S)  # for all of the last words
            raise RuntimeError(f"{self.name} died during '{action}': {self._last_words()}")
        for rank in self._ranks:
            rank.signal(signal.SIGSTOP)
        return [json.loads(line) for line in lines]

    def _last_words(self) -> str:
        self._log.seek(0)
        return self._log.read()[-3000:]

    def close(self) -> None:
        """Ends all processes: asks them to, and kills those that do not."""
        if self._guard is not None:
            self._guard.communicate()
        for rank in self._ranks:
            rank.signal(signal.SIGCONT)
            with contextlib.suppress(OSError):
                rank.stream.close()
        if len(self._ranks) < self._num_ranks:
            self._launcher.terminate()  # and it ends the ranks that never came
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._launcher.wait(timeout=END_TIMEOUT_S)
        for rank in self._ranks:
            rank.signal(signal.SIGKILL)
            os.close(rank.handle)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._launcher.pid, signal.SIGKILL)  # what is left of it
        self._launcher.wait()
        self._ranks = []
        self._log.close()
