"""Training that goes on when processes are lost or join (`--elastic`, `horovodrun --min-np N`).

What is committed is the newest checkpoint, not a copy in memory: a table lies on several ranks, and
a lost one takes its part along. After a loss, and when hosts come or go, each process that is left
becomes a new program with the same command line (exec: the process stays the launcher's child),
asks horovodrun for its new rank and resumes that checkpoint, which any number of ranks can read. So
nothing of the old world is left in memory: no tables, no compiled steps, no connections.

Source: Horovod's elastic driver, whose workers report at `rank_and_size` of its rendezvous server.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NoReturn

from runtime.cluster import distributed, horovod_modules, launcher
from runtime.logs import rank_logs

# What a process tells the program that it becomes; horovodrun does not hand it to new processes.
_STORY = "RECOMMENDERS_ELASTIC_STORY"

# Restarts without a newer checkpoint in between.
MOST_WITHOUT_PROGRESS = 5

# For a start: that of a process that died meanwhile is noticed then.
START_TIMEOUT_S = 60.0


class Left(Exception):
    """This process has no place in the training any more: its host was taken away."""


@dataclass(frozen=True)
class Story:
    """What a process has gone through.

    Attributes:
      restarts: how often it became a new program.
      why: the reason of the last time.
      step: at which training started last.
      fruitless: restarts since `step` was a new one.
      run_dir: the folder of the run.
    """

    restarts: int = 0
    why: str = ""
    step: int = -1
    fruitless: int = 0
    run_dir: str | None = None


class Membership:
    """A process whose world stays as it is; the interface of `Members`."""

    is_elastic = False
    changed = False
    story = Story()
    lost: Callable[[str], None] | None = None

    def started(self, step: int, run_dir: Path) -> str | None:
        """To be told at which step training starts; returns what the log says of the restart."""
        return None


ALONE = Membership()


class Members(Membership):
    """The processes of an elastic training, seen from one of them; made before it connects.

    In a program that another one became, making it waits for all others that are left and takes the
    new rank, which is written to the environment where Horovod looks for it.

    Attributes:
      changed: horovodrun has told this process (rank 0 is told) that hosts came or went.
      lost: becomes a new program; for a rank that does not find the others or is given up.

    Raises:
      ValueError: the processes were not started for this, horovodrun does not answer, or one
        restart followed another without a new checkpoint.
      Left: there is no place for this process any more.
    """

    is_elastic = True

    def __init__(self):
        if not launcher.is_elastic():
            raise ValueError(
                "--elastic needs processes that horovodrun may start and lose: start with "
                "`horovodrun --min-np 1 --max-np N --host-discovery-script FILE ...`, or leave it "
                "out"
            )
        self._environment = dict(os.environ)
        self._cores = os.sched_getaffinity(0)
        self._hosts_changed, self._once = threading.Event(), threading.Lock()
        self.story = Story(**json.loads(os.environ.pop(_STORY, "{}")))
        if self.story.fruitless >= MOST_WITHOUT_PROGRESS:
            raise ValueError(
                f"--elastic: {self.story.fruitless} restarts without a new checkpoint, the last "
                f"because of this: {self.story.why}. Mend that, or save more often "
                "(--checkpoint_every, --checkpoint_every_minutes)"
            )
        # Before it asks for its rank: what changes later is told to whom horovodrun then knows.
        horovod_modules.notify_host_changes(self._hosts_changed.set)
        if self.story.restarts:
            assigned = launcher.ask_for_rank()
            if assigned is None:
                raise Left(f"this process has left the training: {self.story.why}")
            os.environ.update(assigned)
            self._environment.update(assigned)
        self.lost = self.restart

    @property
    def changed(self) -> bool:
        return self._hosts_changed.is_set()

    def started(self, step: int, run_dir: Path) -> str | None:
        story = self.story
        fruitless = story.fruitless if step == story.step else 0
        self.story = replace(story, step=step, fruitless=fruitless, run_dir=str(run_dir))
        if not story.restarts:
            return None
        return f"elastic: restart {story.restarts}: {story.why}"

    def restart(self, why: str) -> NoReturn:
        """Becomes a new program with this command line; whatever it did before is given up."""
        if not self._once.acquire(blocking=False):
            threading.Event().wait()  # for the end: another thread does it already
        print(f"elastic: {why}; going on from the newest checkpoint", file=sys.stderr)
        try:
            self._become(why)
        except OSError as error:
            # Not by an exception: this may be a thread, and the main one waits in Horovod.
            print(f"error: this program cannot start again: {error}", file=sys.stderr, flush=True)
            os._exit(distributed.RANK_LOST)

    def _become(self, why: str) -> NoReturn:
        story = self.story
        counts = {"restarts": story.restarts + 1, "fruitless": story.fruitless + 1}
        told = replace(story, why=why, **counts)
        rank_logs.stop()
        sys.stdout.flush()
        sys.stderr.flush()
        # An exec hands on what this process ignores, its cores, and every file that may be open in
        # libraries: a connection would look alive to the others.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.sched_setaffinity(0, self._cores)
        for number in map(int, os.listdir("/proc/self/fd")):
            if number > 2:
                _close_on_exec(number)
        environment = {**self._environment, _STORY: json.dumps(asdict(told))}
        os.execve(sys.executable, sys.orig_argv, environment)


def check_launched(asked_for: bool) -> None:
    """Raises ValueError where horovodrun starts and stops processes and the training cannot."""
    if launcher.is_elastic() and not asked_for:
        raise ValueError(
            "horovodrun was started with --min-np, --max-np or a host discovery script, so that "
            "processes may come and go: give --elastic (with --resume auto and "
            "--save_checkpoint_path), or start with `horovodrun -np N` alone"
        )


def _close_on_exec(number: int) -> None:
    try:
        os.set_inheritable(number, False)
    except OSError:  # was that of the listing
        return
