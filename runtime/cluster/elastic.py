"""Elastic training: processes may be lost or join (`--elastic`, `horovodrun --min-np N`).

The committed state is the newest checkpoint, not a copy in memory: a table is spread over several
ranks, and a lost rank takes its part along. After a loss, and when hosts come or go, each remaining
process becomes a new program with the same command line (exec: the process stays a child of the
launcher), requests its new rank from horovodrun and resumes that checkpoint.

Source: Horovod's elastic driver, whose workers report at `rank_and_size` of its rendezvous server.
"""

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NoReturn

from runtime.cluster import distributed, horovod_modules, launcher
from runtime.logs import rank_logs

# Hands `RestartState` to the next program; horovodrun does not pass it to new processes.
_STATE_VARIABLE = "RECOMMENDERS_ELASTIC_STATE"

# Limit of restarts without a newer checkpoint in between.
MAX_RESTARTS_WITHOUT_PROGRESS = 5

# Time limit of a start: a process that died in the meantime is noticed then.
START_TIMEOUT_S = 60.0


class LeftTraining(Exception):
    """This process has left the training; the others continue without it."""

    def __init__(self, text: str, exit_code: int = 0):
        super().__init__(text)
        self.exit_code = exit_code


@dataclass(frozen=True)
class RestartState:
    """History of a process that became a new program."""

    restarts: int = 0
    reason: str = ""  # of the last restart
    step: int = -1  # at which training started last
    restarts_without_progress: int = 0  # since `step` changed
    run_dir: str | None = None


class Membership:
    """Membership in a training whose processes stay the same; interface of `ElasticMembership`."""

    is_elastic = False
    hosts_changed = False  # reported by horovodrun to this process (rank 0)
    state = RestartState()
    start_timeout_s: float | None = None  # for connecting the ranks; None: the default
    # Called in place of an exit if this process does not find the other ranks, or is given up by
    # them; does not return.
    restart_on_loss: Callable[[str], None] | None = None

    def start(self, step: int, run_dir: Path) -> str | None:
        """Records the step at which training starts; returns a log message after a restart."""
        return None


class ElasticMembership(Membership):
    """Membership in an elastic training; created before ranks are connected.

    In a restarted program, the constructor waits for all other remaining processes and takes the
    new rank, which is written to the environment variables that Horovod reads.

    Raises:
        ValueError: the processes were not started for elastic training, horovodrun does not answer,
            or restarts follow each other without a new checkpoint.
        LeftTraining: horovodrun has no rank for this process.
    """

    is_elastic = True
    start_timeout_s = START_TIMEOUT_S

    def __init__(self) -> None:
        if not launcher.is_elastic():
            raise ValueError(
                "--elastic needs processes that horovodrun may start and lose: start with "
                "`horovodrun --min-np 1 --max-np N --host-discovery-script FILE ...`, or leave it "
                "out"
            )
        self._environment = dict(os.environ)
        self._cores = os.sched_getaffinity(0)
        self._hosts_changed, self._once = threading.Event(), threading.Lock()
        self.state = RestartState(**json.loads(os.environ.pop(_STATE_VARIABLE, "{}")))
        if self.state.restarts_without_progress >= MAX_RESTARTS_WITHOUT_PROGRESS:
            raise ValueError(
                f"--elastic: {self.state.restarts_without_progress} restarts without a new "
                f"checkpoint, the last because of this: {self.state.reason}. Fix that, or save "
                "more often (--checkpoint_every, --checkpoint_every_minutes)"
            )
        # Before it requests its rank: horovodrun reports later changes to the processes it knows.
        horovod_modules.notify_host_changes(self._hosts_changed.set)
        if self.state.restarts:
            assigned = launcher.request_rank()
            if assigned is None:
                raise LeftTraining(f"this process has left the training: {self.state.reason}")
            os.environ.update(assigned)
            self._environment.update(assigned)
        self.restart_on_loss = self.restart

    @property
    def hosts_changed(self) -> bool:  # type: ignore[override]
        return self._hosts_changed.is_set()

    def start(self, step: int, run_dir: Path) -> str | None:
        state = self.state
        without_progress = state.restarts_without_progress if step == state.step else 0
        self.state = replace(
            state, step=step, restarts_without_progress=without_progress, run_dir=str(run_dir)
        )
        if not state.restarts:
            return None
        return f"elastic: restart {state.restarts}: {state.reason}"

    def restart(self, reason: str) -> NoReturn:
        """Becomes a new program with this command line."""
        if not self._once.acquire(blocking=False):
            threading.Event().wait()  # forever: another thread restarts the process
        print(f"elastic: {reason}; resuming from the newest checkpoint", file=sys.stderr)
        try:
            self._become(reason)
        except OSError as error:
            # Not by an exception: this may be a thread, and the main thread waits in Horovod.
            print(f"error: this program cannot start again: {error}", file=sys.stderr, flush=True)
            os._exit(distributed.RANK_LOST)

    def _become(self, reason: str) -> NoReturn:
        next_state = replace(
            self.state,
            reason=reason,
            restarts=self.state.restarts + 1,
            restarts_without_progress=self.state.restarts_without_progress + 1,
        )
        rank_logs.stop()
        sys.stdout.flush()
        sys.stderr.flush()
        # An exec hands on ignored signals, the cores, and every file that may be open in libraries:
        # a connection would look alive to the others.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.sched_setaffinity(0, self._cores)
        for number in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.set_inheritable(number, number <= 2)
        environment = {**self._environment, _STATE_VARIABLE: json.dumps(asdict(next_state))}
        os.execve(sys.executable, sys.orig_argv, environment)


_current = Membership()


def current() -> Membership:
    """Returns this process's membership."""
    return _current


@contextlib.contextmanager
def join() -> Iterator[ElasticMembership]:
    """Makes this process a member of an elastic training (`ElasticMembership`) within the block."""
    global _current
    _current = membership = ElasticMembership()
    try:
        yield membership
    finally:
        _current = Membership()


def check_launched(wants_elastic: bool) -> None:
    """Raises ValueError if horovodrun starts and stops processes and the training does not."""
    if launcher.is_elastic() and not wants_elastic:
        raise ValueError(
            "horovodrun was started with --min-np, --max-np or a host discovery script, so that "
            "processes may come and go: give --elastic (with --resume auto and "
            "--save_checkpoint_path), or start with `horovodrun -np N` alone"
        )
