"""One log per rank on request: all that a process says, its libraries and its crash too.

    DIR/rank-00003.log

The files 1 and 2 of this process become pipes to a process of its own (rank_log_writer.py), so that
what was said is written even when this process is killed in the next moment.
"""

import atexit
import contextlib
import faulthandler
import fcntl
import itertools
import os
import shlex
import socket
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

from runtime.cluster import launcher

# What says which rank this is, by what says how many there are (`launcher.SIZE_VARIABLES`), and
# which it is on its machine.
_RANK_VARIABLES = {
    "HOROVOD_SIZE": ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK"),
    "OMPI_COMM_WORLD_SIZE": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "PMI_SIZE": ("PMI_RANK", "MPI_LOCALRANKID"),
    "SLURM_STEP_NUM_TASKS": ("SLURM_PROCID", "SLURM_LOCALID"),
}
# Never the whole environment: passwords and keys are in it.
_TOLD_VARIABLES = (
    *("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"),
    *("TF_NUM_INTEROP_THREADS", "TF_XLA_FLAGS", "XLA_FLAGS"),
    *("HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS", "HOROVOD_GPU_OPERATIONS"),
    *("HOROVOD_HOSTNAME", "HOROVOD_ELASTIC", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE"),
    *("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT", "HOROVOD_GLOO_IFACE"),
    *("HOROVOD_GLOO_TIMEOUT_SECONDS", "HOROVOD_CYCLE_TIME", "HOROVOD_FUSION_THRESHOLD"),
    "HOROVOD_ENABLE_ASYNC_COMPLETION",
    *("HOROVOD_STALL_CHECK_TIME_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"),
    *("OMPI_MCA_btl", "OMPI_MCA_pml", "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_mtl"),
    *("UCX_TLS", "UCX_NET_DEVICES", "FI_PROVIDER"),
    *("NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_DISABLE", "NCCL_P2P_DISABLE"),
    *("SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_STEP_ID", "SLURM_JOB_NODELIST", "SLURM_NODEID"),
    *("SLURMD_NODENAME", "SLURM_RESTART_COUNT", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"),
)
# For the writer to read what was said, and then to write it.
_WAIT_FOR_READING_S, _WAIT_FOR_WRITING_S = 10.0, 1.0

_open: "_RankLog | None" = None
_fault: str | None = None


def start(folder: str | None) -> None:
    """From now on all that this process says goes to its log, too; None: it has none.

    To be called before Horovod starts, so that a start that fails is in the log. What is wrong with
    the folder is for `check`, once the ranks can agree on it. At most one log is open, until the
    process ends or `stop`.
    """
    global _open, _fault
    stop()
    _fault = None
    if folder is None:
        return
    rank, size, local_rank = _who()
    name = f"rank {rank}"
    try:
        path, file = _take(Path(folder), rank)
        try:
            os.write(file, _header(name, size, local_rank).encode())
            _open = _RankLog(path, file, name)
        finally:
            os.close(file)
    except OSError as error:
        _fault = (
            f"--rank_logs {folder}: the log of {name} on {socket.gethostname()} cannot be written "
            f"({error.strerror}); give a folder that every process may write"
        )


def check() -> None:
    """Raises ValueError where `start` could not write."""
    if _fault is not None:
        raise ValueError(_fault)


def stop() -> None:
    """Closes the log when all is written; the process goes on, or becomes another program."""
    global _open
    if _open is not None:
        _open.close()
    _open = None


def path() -> Path | None:
    """Of this process's log."""
    return _open.path if _open is not None else None


class _RankLog:
    """Pipes in place of stdout and stderr, and the process that reads them.

    Args:
      path, file: the log, open for appending; may be closed afterwards.
      name: of the rank.
    """

    def __init__(self, path: Path, file: int, name: str):
        self.path, self._name, self._closing = path, name, False
        self._flush()
        with contextlib.ExitStack() as failed:

            def opened(*descriptors: int) -> tuple[int, ...]:
                for descriptor in descriptors:
                    failed.callback(os.close, descriptor)
                return descriptors

            self._before = {number: opened(os.dup(number))[0] for number in (1, 2)}
            pipes = {number: opened(*os.pipe()) for number in (1, 2)}
            self._alive, alive = opened(*os.pipe())
            passed = (file, alive, pipes[1][0], pipes[2][0])
            program = Path(__file__).with_name("rank_log_writer.py")
            starting = subprocess.Popen(
                [sys.executable, "-I", "-S", str(program), name, *map(str, passed)],
                stdin=subprocess.DEVNULL,
                cwd="/",
                pass_fds=passed,
                start_new_session=True,
            )
            failed.pop_all()
        starting.wait()
        # This end of the pipes stays open: what is written after the death of the writer is no
        # error then, and not lost.
        self._unread = {number: ends[0] for number, ends in pipes.items()}
        for number, (_, end) in pipes.items():
            os.dup2(end, number)
            os.close(end)
        os.close(alive)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(line_buffering=True)
        faulthandler.enable(file=2, all_threads=True)
        self._watch = threading.Thread(target=self._outlive, name="rank log", daemon=True)
        self._watch.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Restores stdout and stderr, and waits until all is written."""
        if not self._closing:
            self._closing = True
            atexit.unregister(self.close)
            self._restore()
            until = time.monotonic() + _WAIT_FOR_READING_S
            while self._watch.is_alive() and self._is_unread() and time.monotonic() < until:
                self._watch.join(0.01)
            self._watch.join(_WAIT_FOR_WRITING_S)
            # Where others that were started by this process have the pipes, the writer goes on,
            # and its end must not be theirs.
            if not self._watch.is_alive():
                for descriptor in (*self._before.values(), *self._unread.values(), self._alive):
                    os.close(descriptor)

    def _is_unread(self) -> bool:
        """Whether something of what was said is still in the pipes."""
        return any(any(fcntl.ioctl(p, termios.FIONREAD, bytes(4))) for p in self._unread.values())

    def _restore(self) -> None:
        self._flush()
        for number, before in self._before.items():
            os.dup2(before, number)

    def _flush(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()

    def _outlive(self) -> None:
        """Waits for the end of the writer; goes on without, if that is not the end of the log."""
        os.read(self._alive, 1)
        if self._closing:
            return
        self._restore()
        for number, pipe in self._unread.items():
            os.set_blocking(pipe, False)
            with contextlib.suppress(OSError):
                while data := os.read(pipe, 65536):
                    os.write(self._before[number], data)
        note = f"note: the log {self.path} ends here: the process that writes it has ended\n"
        os.write(self._before[2], note.encode())


def _who() -> tuple[int, int, int]:
    """Rank, number of ranks, and rank on this machine, as the launcher says."""
    if (found := launcher.launched()) is None:
        return 0, 1, 0
    rank, local_rank = (os.environ.get(name) for name in _RANK_VARIABLES[found.variable])
    return int(rank or 0), found.size, int(local_rank or 0)


def _take(folder: Path, rank: int) -> tuple[Path, int]:
    """The rank's log, open for appending, of which no other living process is the writer."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = folder / f"rank-{rank:05d}{'' if number == 1 else f'-{number}'}.log"
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            continue
        except OSError:
            break  # a file system without locks
        break
    return path, file


def _header(name: str, size: int, local_rank: int) -> str:
    """Who writes here, where and why."""
    variables = (f"{v}={shlex.quote(os.environ[v])}" for v in _TOLD_VARIABLES if v in os.environ)
    lines = (
        f"{time.strftime('%Y-%m-%d %H:%M:%S %z')}: {name} of {size} (local rank {local_rank}) on "
        f"{socket.gethostname()}, pid {os.getpid()}, cores {_cores()}",
        shlex.join([sys.executable, *sys.argv]),
        f"in {os.getcwd()}",
        " ".join(variables),
    )
    return "".join(f"=== {line}\n" for line in lines if line)


def _cores() -> str:
    """The cores that this process may use, e.g. "0-15,32"."""
    allowed = sorted(os.sched_getaffinity(0))
    runs = []
    for _, run in itertools.groupby(enumerate(allowed), lambda pair: pair[1] - pair[0]):
        first, *rest = (core for _, core in run)
        runs.append(f"{first}-{rest[-1]}" if rest else f"{first}")
    return ",".join(runs)
