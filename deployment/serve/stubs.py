"""Stub processes of Triton's Python backend, one per instance of a model.

The server does not restart a stub that ended: it refuses all requests of that instance, and still
reports that the model is ready.
"""

import contextlib
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


def _model_of(pid: int) -> str | None:
    try:
        program, *arguments = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return None
    if not program.endswith(_PROGRAM):
        return None
    return Path(arguments[0]).parts[-3]  # REPOSITORY/MODEL/VERSION/model.py
