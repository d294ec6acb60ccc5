"""Connection of the processes that train together, and detection of those that fail.

Their collectives are those of `distributed_embeddings.collectives`.
"""

import functools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from distributed_embeddings.collectives import World, connected, current, set_current
from distributed_embeddings.collectives.horovod_modules import horovod_tensorflow
from distributed_embeddings.collectives.launch import launched, uses_mpi

from runtime.cluster import launcher, signals
from runtime.cluster.failure import stack_sample
from runtime.cluster.failure.connection import AbsentRanks, FailureClient
from runtime.cluster.failure.monitor import FailureMonitor
from runtime.logs import rank_logs

# Exit code of a process that cannot continue without others.
RANK_LOST = 4

# Texts in TensorFlow's errors after Horovod has shut down.
_HOROVOD_ERRORS = ("Horovod has been shut down", "gloo/transport", "HorovodInternalError")

_client: FailureClient | None = None
_timeout_s = 0.0


class RankLost(Exception):
    """A collective failed: another rank ended or did not come to it."""


@dataclass(frozen=True)
class MonitoredWorld(World):
    """Several processes whose collectives record progress, by which stalled ranks are found."""

    def all_reduce(self, tensors: Sequence[Any], op: str, name: str) -> list[Any]:
        reduced = super().all_reduce(tensors, op, name)
        stack_sample.record_progress()  # has a meaning in eager mode only
        return reduced

    def all_gather(self, tensor: Any, name: str) -> Any:
        gathered = super().all_gather(tensor, name)
        stack_sample.record_progress()
        return gathered

    def gather_objects(self, value: Any, name: str = "objects") -> list[Any]:
        if _client is None:
            # Not in `connect`: it needs a collective, and TensorFlow must not run there.
            _connect_failure_detector(self)
        return super().gather_objects(value, name)


def connect(
    timeout_s: float = 600.0, deterministic: bool = False, start_timeout_s: float | None = None
) -> World:
    """Connects the processes; a second call returns the same world.

    Does not initialise TensorFlow's devices. Horovod's environment variables that the user has set
    stay, time-outs included.

    Args:
        timeout_s: seconds to wait for a rank that does not come to a collective, before all ranks
            end with an error, which `failure_message` describes.
        deterministic: sums over ranks have the same bits in every run.
        start_timeout_s: seconds to wait for a rank that does not start, before the others end with
            exit code 2; by default `timeout_s`, but at least a minute.

    Raises:
        RankLost, ValueError: a launcher started several processes, and they cannot be connected.
    """
    global _timeout_s
    if (connected_world := connected()) is not None:
        return connected_world

    def initialise(hvd: ModuleType) -> None:
        limit_s = max(60.0, timeout_s) if start_timeout_s is None else start_timeout_s
        launcher.set_defaults(timeout_s, limit_s, uses_mpi(hvd), deterministic)
        with launcher.limited(launched(), limit_s):
            try:
                hvd.init()
            except RuntimeError as error:
                raise RankLost(f"Horovod could not connect the processes: {error}") from error

    world = current(initialise)
    if world.size == 1:
        return World()
    world = MonitoredWorld(**vars(world))
    set_current(world)
    _timeout_s = float(os.environ.get("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS") or 0)
    note = launcher.describe_missing_timeout(horovod_tensorflow()) if world.is_chief else None
    if note:
        print(note, file=sys.stderr, flush=True)
    return world


def run_on_all_ranks(world: World, action: Callable[[], Any]) -> Any:
    """Returns the result of `action`; a ValueError or OSError is raised on all ranks (`agree`)."""
    error = result = None
    try:
        result = action()
    except (ValueError, OSError) as caught:
        error = str(caught)
    world.agree(error)
    return result


def failure_message(error: BaseException) -> str | None:
    """Describes a failed collective and names the ranks at fault; None for other errors.

    Every rank that caught the error calls it, immediately and once: it takes some seconds to find
    out which ranks do not. It knows them after the first `gather_objects`. The process must end
    afterwards; SIGTERM is ignored from here on.
    """
    if isinstance(error, RankLost):
        return str(error)
    text = str(error)
    if not any(sign in text for sign in _HOROVOD_ERRORS):
        return None
    signals.ignore_sigterm()
    absent = _client.absent_ranks() if _client is not None else None
    who = (absent or AbsentRanks([], [])).describe(_timeout_s)
    world = connected()
    return f"the {world.size if world else 'other'} processes cannot continue: {who}"


def _connect_failure_detector(world: World) -> None:
    global _client
    monitor = None
    if world.is_chief:
        # Open MPI waits for a frozen rank forever; Gloo has a time-out of its own. Not ended by an
        # exception: the main thread waits in Horovod. mpirun and srun then end the other ranks.
        end = functools.partial(os._exit, RANK_LOST) if uses_mpi(horovod_tensorflow()) else None
        monitor = FailureMonitor(world.size, _timeout_s, end)
    addresses = World.gather_objects(world, monitor.address if monitor else None, "roll_call")
    _client = FailureClient(world.rank, addresses[0], rank_logs.path())
