"""Stub processes of Triton's Python backend, one per instance of a model.

The server does not restart a stub that ended: it refuses all requests of that instance, and still
reports that the model is ready.
"""

import contextlib
import os
import signal
from pathlib import Path

_PROGRAM = "triton_python_backend_stub"


def stubs_of(server_pid: int) -> dict[int, str]:
    """Returns the model name of each running stub of a server, by process id."""
    pids: set[int] = set()
    for task in Path(f"/proc/{server_pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that ended
            pids.update(map(int, task.read_text().split()))
    return {pid: model for pid in sorted(pids) if (model := _model_of(pid)) is not None}


def is_running(pid: int, model: str) -> bool:
    """Returns whether a stub of `stubs_of` still runs."""
    return _model_of(pid) == model


def termination_cause(pid: int) -> str:
    """Returns how a stub ended, in parentheses; empty if Linux does not report it.

    It does until the parent waits for the process, as Triton does at the next request.
    """
    try:
        status = int(Path(f"/proc/{pid}/stat").read_text().split()[-1])
    except OSError:
        return ""
    if not os.WIFSIGNALED(status):
        return f" (exit status {os.waitstatus_to_exitcode(status)})"
    name = signal.Signals(os.WTERMSIG(status)).name
    reason = ", possibly by Linux because memory is short" if name == "SIGKILL" else ""
    return f" (killed by {name}{reason})"


def _model_of(pid: int) -> str | None:
    try:
        program, *arguments = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return None
    if not program.endswith(_PROGRAM):
        return None
    return Path(arguments[0]).parts[-3]  # REPOSITORY/MODEL/VERSION/model.py
