"""Per-rank log files (`--rank_logs`): stdout, stderr and crash traces of a process.

    DIR/rank-00003.log

Two `tee` processes copy stdout and stderr to the log and to where they went before. Output that a
rank wrote before it was killed is in the log, unless the `tee` processes are killed in the same
moment (a machine that fails, the end of a SLURM step); the last line is missing in both cases. If
only a `tee` process is killed, the next output of its rank ends that rank with a BrokenPipeError.
The Python stacks of a crash (SIGSEGV, SIGABRT and similar) are in the log only.
"""

import atexit
import contextlib
import faulthandler
import itertools
import os
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

from distributed_embeddings.collectives.launch import launched

from config.flag import mask_passwords
from runtime.cluster import launcher
from runtime.files.disk import FileLock

# Variables in the header of a log. Never the whole environment: it contains passwords and keys.
_LOGGED_VARIABLES = (
    *("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TF_NUM_", "TF_XLA_FLAGS", "XLA_FLAGS"),
    *("HOROVOD_C", "HOROVOD_E", "HOROVOD_F", "HOROVOD_GLOO_", "HOROVOD_GPU_", "HOROVOD_HOSTNAME"),
    *("HOROVOD_STALL_", "OMPI_MCA_btl", "OMPI_MCA_pml", "OMPI_MCA_mtl", "UCX_", "FI_PROVIDER"),
    *("NCCL_", "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_STEP_ID", "SLURM_NODEID"),
)
# Launchers and Ctrl-C signal all processes of a rank; `tee` ends with its input instead. It also
# continues without a log that is too large, or without a reader of its output.
_TEE = 'trap "" HUP INT QUIT TERM XFSZ; exec tee -ap -- "$0"'
_CLOSE_TIMEOUT_S = 1.0

_open: "_RankLog | None" = None
_fault: str | None = None


def start(folder: str | None) -> None:
    """Copies everything that this process prints to its log from now on; None: to no log.

    Called before Horovod starts, so that a failed start is in the log. Errors are reported by
    `check`, when the ranks can agree on them.
    """
    global _open, _fault
    if _open is not None:
        _open.close()
    _open = _fault = None
    if folder is None:
        return
    rank = launcher.rank()
    try:
        _open = _RankLog(Path(folder), f"rank {rank}", f"rank-{rank:05d}")
    except OSError as error:
        _fault = (
            f"--rank_logs {folder}: the log of rank {rank} on {socket.gethostname()} cannot be "
            f"written ({error.strerror}); give a folder that every process may write"
        )


def check() -> None:
    """Raises ValueError if `start` could not write the log."""
    if _fault is not None:
        raise ValueError(_fault)


def path() -> Path | None:
    """Returns the path of this process's log."""
    return _open.path if _open is not None else None


class _RankLog:
    """A log and the processes that write it.

    Args:
        folder: created if it does not exist.
        name: of the rank, for the first and the last line.
        stem: of the file; a number is appended while another process writes that file.
    """

    def __init__(self, folder: Path, name: str, stem: str):
        folder.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            self.path = folder / f"{stem}{'' if number == 1 else f'-{number}'}.log"
            self._lock = FileLock(self.path)
            if self._lock.acquire(blocking=False):
                break
        self._name = name
        self._file = open(self.path, "a")  # noqa: SIM115 closed by close()
        self._file.write(_header(name))
        self._file.flush()
        _flush()
        command = ["sh", "-c", _TEE, str(self.path.resolve())]
        self._previous = {number: os.dup(number) for number in (1, 2)}
        self._tees = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=number, cwd="/", start_new_session=True
            )
            for number in (1, 2)
        ]
        for number, tee in zip((1, 2), self._tees, strict=True):
            assert tee.stdin is not None
            os.dup2(tee.stdin.fileno(), number)
            tee.stdin.close()
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(line_buffering=True)
        faulthandler.enable(self._file, all_threads=True)
        atexit.register(self.close)

    def close(self) -> None:
        """Restores stdout and stderr, and waits until the log is written."""
        atexit.unregister(self.close)
        faulthandler.disable()
        _flush()
        for number, previous in self._previous.items():
            os.dup2(previous, number)
            os.close(previous)
        for tee in self._tees:
            # A child process that outlives this one may keep the pipe open.
            with contextlib.suppress(subprocess.TimeoutExpired):
                tee.wait(_CLOSE_TIMEOUT_S)
        with contextlib.suppress(OSError), self._file:
            self._file.write(f"=== {_date()}: the end of {self._name}\n")
        self._lock.release()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _header(name: str) -> str:
    started = launched()
    variables = (
        f"{variable}={shlex.quote(value)}"
        for variable, value in sorted(os.environ.items())
        if variable.startswith(_LOGGED_VARIABLES)
    )
    lines = (
        f"{_date()}: {name} of {started.size if started else 1} (local rank "
        f"{launcher.local_rank() or 0}) on {socket.gethostname()}, pid {os.getpid()}, "
        f"{len(os.sched_getaffinity(0))} cores",
        mask_passwords(shlex.join([sys.executable, *sys.argv])),
        f"in {os.getcwd()}",
        " ".join(variables),
    )
    return "".join(f"=== {line}\n" for line in lines if line)


def _date() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z")
