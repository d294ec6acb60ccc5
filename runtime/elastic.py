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

from runtime import distributed, launcher, rank_logs

# What a process tells the program that it becomes; horovodrun does not hand it to new processes.
_STORY = "RECOMMENDERS_ELASTIC_STORY"

# Restarts from one and the same checkpoint.
MOST_WITHOUT_PROGRESS = 5


class Left(Exception):
    """This process has no place in the training any more: its host was taken away."""


@dataclass(frozen=True)
class Story:
    """What a process has gone through.

    Attributes:
      restarts: how often it became a new program.
      why: the reason of the last time.
      step: at which training started in the program before.
      same_step: how many programs in a row have started at `step`.
      run_dir: the folder of the run.
    """

    restarts: int = 0
    why: str = ""
    step: int = -1
    same_step: int = 0
    run_dir: str | None = None


class Alone:
    """A process whose world stays as it is; the interface of `Members`."""

    is_elastic = False
    changed = False
    story = Story()
    lost: Callable[[str], None] | None = None

    def started(self, step: int, run_dir: Path) -> str | None:
        """To be told at which step training starts; returns what the log says of the restart."""
        return None


ALONE = Alone()


class Members(Alone):
    """The processes of an elastic training, seen from one of them; made before it connects.

    In a program that another one became, making it waits for all others that are left and takes the
    new rank, which is written to the environment where Horovod looks for it.

    Attributes:
      changed: horovodrun has told this process (rank 0 is told) that hosts came or went.
      lost: becomes a new program; for a rank that does not find the others, or is given up by them.

    Raises:
      ValueError: the processes were not started for this, or horovodrun does not answer.
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
        # Before it asks for its rank: what changes later is told to whom horovodrun then knows.
        distributed.when_hosts_change(self._hosts_changed.set)
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
        same = story.same_step + 1 if story.step == step else 0
        self.story = replace(story, step=step, same_step=same, run_dir=str(run_dir))
        if same >= MOST_WITHOUT_PROGRESS:
            raise ValueError(
                f"--elastic: the training was interrupted {same} times without a new checkpoint "
                f"since step {step}, the last time: {story.why}. Save more often "
                "(--checkpoint_every, --checkpoint_every_minutes)"
            )
        if not story.restarts:
            return None
        return f"elastic: restart {story.restarts}: {story.why}"

    def restart(self, why: str) -> NoReturn:
        """Becomes a new program with this command line; whatever it did before is given up."""
        if not self._once.acquire(blocking=False):
            threading.Event().wait()  # for the end: another thread does it already
        told = replace(self.story, restarts=self.story.restarts + 1, why=why)
        print(f"elastic: {why}; going on from the newest checkpoint", file=sys.stderr)
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
