"""The processes of a server's models: found, watched, and named when one has ended.

Each instance of a model in Triton's Python backend is a process, a stub. One that ends by itself
the server does not start again: it refuses what comes to that instance for ever, and says all the
while that the model is ready.
"""

import os
import signal
from pathlib import Path

_PROGRAM = "triton_python_backend_stub"


class Stubs:
    """The stubs of one server.

    Args:
      mark: how one of a stub's arguments begins, and of no other server's: the name of the memory
        that it shares with its server.
    """

    def __init__(self, mark: str):
        self._mark = mark
        self._models: dict[int, str] = {}  # by process id

    def found(self) -> dict[int, str]:
        """The name of the model of each stub that there is, by process id."""
        pids = sorted(int(folder.name) for folder in Path("/proc").glob("[0-9]*"))
        return {pid: model for pid in pids if (model := self._model_of(pid)) is not None}

    def watch(self) -> None:
        """From now on those that there are count; where there are none, nothing is missed."""
        self._models = self.found()

    def lost(self) -> list[str]:
        """Of each that has ended since: the model, the process id, and how, as far as known."""
        return [
            f"a process of the model {model} (pid {pid}) ended by itself{_how(pid)}"
            for pid, model in self._models.items()
            if self._model_of(pid) is None
        ]

    def _model_of(self, pid: int) -> str | None:
        """Which model a process is a stub of; None: it is none, or has ended."""
        try:
            line = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
        except OSError:  # it may end at any time
            return None
        program, *arguments = line.split("\0")
        marked = any(argument.startswith(self._mark) for argument in arguments)
        if not marked or not program.endswith(_PROGRAM):
            return None
        return Path(arguments[0]).parts[-3]  # REPOSITORY/MODEL/VERSION/model.py


def _how(pid: int) -> str:
    """How a process ended, in brackets; nothing where Linux says no more of it.

    It does as long as the server, whose child it is, has not asked, which Triton's does not.
    """
    try:
        status = int(Path(f"/proc/{pid}/stat").read_text().split()[-1])
    except OSError:
        return ""
    if not os.WIFSIGNALED(status):
        return f" (exit status {os.waitstatus_to_exitcode(status)})"
    name = signal.Signals(os.WTERMSIG(status)).name
    reason = ", as by Linux where memory is short" if name == "SIGKILL" else ""
    return f" (killed by {name}{reason})"
