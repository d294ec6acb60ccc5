"""The launcher of this process and its peers, and Horovod's settings for them.

Reads and sets environment variables and does not import Horovod.
"""

import contextlib
import http.client
import importlib.metadata
import os
import sys
import threading
from collections.abc import Iterator
from types import ModuleType

from distributed_embeddings.collectives.launch import (
    SIZE_VARIABLES,
    Launched,
    launched,
    uses_mpi,
)

# The number of a process, and its number on its machine, by the same launchers.
_RANK_VARIABLES = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_LOCAL_RANK_VARIABLES = (
    *("HOROVOD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"),
)


def rank() -> int:
    """Returns this process's number by the launcher; 0 if it started a single process."""
    if (started := launched()) is None:
        return 0
    variable = _RANK_VARIABLES[SIZE_VARIABLES.index(started.variable)]
    return int(os.environ.get(variable) or 0)


def local_rank() -> int | None:
    """Returns this process's number among those of its machine; None if no launcher states it."""
    if launched() is None:
        return 0
    values = (os.environ.get(variable) for variable in _LOCAL_RANK_VARIABLES)
    return next((int(value) for value in values if value), None)


def set_defaults(
    timeout_s: float, start_timeout_s: float, mpi: bool, deterministic: bool = False
) -> None:
    """Sets the environment variables that Horovod reads when it starts.

    Existing values, of the user or of horovodrun's flags (--cycle-time-ms, ...), stay.
    """
    default = os.environ.setdefault
    # Horovod looks for new tensors once in a cycle, by default every 1 ms. With Gloo each look is a
    # message that needs a core on every rank: where ranks compute on all of theirs, looks 1 ms
    # apart cost a fifth of a DLRM step of 400 ms, 10 ms apart a tenth. Steps of some milliseconds
    # want a shorter cycle. With MPI, which waits at no cost, a short one is free.
    cores = len(os.sched_getaffinity(0)) / int(os.environ.get("HOROVOD_LOCAL_SIZE") or 1)
    default("HOROVOD_CYCLE_TIME", "0.1" if mpi or cores >= 4 else "10")
    if deterministic:
        # What happens to be ready together is otherwise summed in one buffer, and the place in it
        # decides on the order in which three ranks or more are added.
        os.environ["HOROVOD_FUSION_THRESHOLD"] = "0"
    # Open MPI waits by looking again and again: not at the cost of a thread that computes on the
    # same core (2 ranks on 2 cores: a step takes 63 ms, and 110 without).
    default("OMPI_MCA_mpi_yield_when_idle", "1")
    # Horovod looks for missing ranks every CHECK_TIME; it ends once one is missing for
    # SHUTDOWN_TIME, or up to two checks later. Whole seconds.
    default("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", str(round(timeout_s)))
    shutdown_s = int(os.environ["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"])
    check_s = max(1, min(60, shutdown_s // 4)) if shutdown_s else 60  # 0: it never ends
    default("HOROVOD_STALL_CHECK_TIME_SECONDS", str(check_s))
    # Gloo's own time-out is for a frozen process and a lost machine. It holds at the start, too,
    # where `limited` has better words and therefore comes first.
    default("HOROVOD_GLOO_TIMEOUT_SECONDS", str(round(max(timeout_s, start_timeout_s + 30))))


@contextlib.contextmanager
def limited(launched: Launched | None, start_timeout_s: float) -> Iterator[None]:
    """Ends this process, with an error message and exit code 2, if the block takes longer.

    Not by an exception: the thread that waits within Horovod's start cannot be interrupted, and
    Python would wait for it before it ends.
    """

    def give_up() -> None:
        # This process has started, even if it was too slow to register there.
        own = os.environ.get("HOROVOD_RANK")
        size = launched.size if launched else 1
        missing = [rank for rank in missing_at_rendezvous(size) if str(rank) != own]
        who = f"rank {', '.join(map(str, missing))}" if missing else "a process"
        hint = ""
        if "OMPI_COMM_WORLD_SIZE" in os.environ:
            hint = (
                "; Open MPI takes every network interface that is up: name the one that leads to "
                "the others, --mca btl_tcp_if_include NAME (docs/how_to/ssh.md)"
            )
        print(
            f"error: {who} of {size} did not start within {start_timeout_s:g} seconds; look at its "
            f"output, or wait longer with --rank_timeout_s{hint}",
            file=sys.stderr,
            flush=True,
        )
        os._exit(2)

    watch = threading.Timer(start_timeout_s, give_up)
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def missing_at_rendezvous(size: int) -> list[int]:
    """Returns the ranks that have not registered at horovodrun's rendezvous; [] without Gloo."""
    if not os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR"):
        return []
    try:
        return [rank for rank in range(size) if _rendezvous_status(rank) == 404]
    except (OSError, http.client.HTTPException):
        return []


def _rendezvous_status(rank: int) -> int:
    host, port = (os.environ[f"HOROVOD_GLOO_RENDEZVOUS_{name}"] for name in ("ADDR", "PORT"))
    connection = http.client.HTTPConnection(host, int(port), timeout=2)
    with contextlib.closing(connection):
        connection.request("GET", f"/global/{rank}")
        return connection.getresponse().status


def describe_missing_timeout(hvd: ModuleType) -> str | None:
    """Returns a warning if Horovod has no time-out for a missing rank: Gloo, as published."""
    version = importlib.metadata.version("horovod")
    if uses_mpi(hvd) or version.endswith("+stall"):
        return None
    return (
        f"note: Horovod {version} with Gloo waits for a missing rank forever; the one that "
        "`make setup` builds has a time-out"
    )
