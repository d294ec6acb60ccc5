"""Sides of `rank_scaling`: one or several ranks that a launcher starts, asked by socket.

A side that waits for its turn is stopped (SIGSTOP): Horovod's threads never sleep for long.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.launched_ranks import LaunchedRanks

LAUNCHERS = {"gloo": "Gloo (horovodrun)", "mpi": "MPI (mpirun)"}

_HAS_MPI = (
    "from runtime.cluster import horovod_modules\n"
    "raise SystemExit(not horovod_modules.horovod_tensorflow().mpi_built())"
)
# Stopped ranks cannot notice that their driver was killed: this wakes them, and then they do.
_GUARD = 'cat; for pid in "$@"; do kill -CONT "$pid"; done'


def launch_command(launcher: str, num_ranks: int) -> list[str]:
    """The command line that starts `num_ranks` processes of the command that follows it."""
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
        check = subprocess.run([sys.executable, "-c", _HAS_MPI], capture_output=True, check=False)
        return "Horovod was built without MPI" if check.returncode else None
    return None


def _horovodrun() -> Path:
    return Path(sys.executable).parent / "horovodrun"


class RankSide(LaunchedRanks):
    """A side of the benchmark, see `AskedRanks`: its ranks are stopped unless they are asked.

    Args:
        command: connects to 127.0.0.1 at the port that is put after it, and sends {"rank": ...,
          "pid": ...} first.
    """

    def __init__(self, name: str, launch: Sequence[str], num_ranks: int, command: Sequence[str]):
        self._handles: list[int] = []  # of the processes; unlike a pid never another's
        self._guard = None
        server = socket.create_server(("127.0.0.1", 0))
        port = str(server.getsockname()[1])
        super().__init__(name, launch, command, num_ranks, server, port)
        pids = [greeting["pid"] for greeting in self.greetings]
        try:
            self._handles = [os.pidfd_open(pid) for pid in pids]
            self._guard = subprocess.Popen(
                ["sh", "-c", _GUARD, "guard", *map(str, pids)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            self.close()
            raise

    def _signal(self, number: int) -> None:
        for handle in self._handles:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)

    def ask(self, action: str, **arguments) -> list[dict]:
        """As `AskedRanks.ask`, and then stops the ranks."""
        self._signal(signal.SIGCONT)
        answers = super().ask(action, **arguments)
        self._signal(signal.SIGSTOP)
        return answers

    def close(self) -> None:
        """Ends all processes: asks them to, and kills those that do not."""
        if self._guard is not None:
            self._guard.communicate()
        self._signal(signal.SIGCONT)
        super().close()
        self._signal(signal.SIGKILL)
        for handle in self._handles:
            os.close(handle)
        self._handles = []
