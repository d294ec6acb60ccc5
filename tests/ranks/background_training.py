"""A training that runs in the background, to be killed, stopped and looked at."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from runtime.checkpoint import Folder
from tests.ranks.conftest import ROOT, gloo_command

MODEL = (
    *("--embedding_dim", "16", "--bottom_mlp_dims", "16", "--top_mlp_dims", "16,1"),
    "--preset=terabyte",
    *("--batch_size", "600", "--valid_batch_size", "600", "--warmup_steps", "0"),
    *("--decay_steps", "0", "--seed", "1", "--deterministic", "--optimizer", "adam"),
    *("--rank_timeout_s", "100"),  # the ends of processes are noticed without it
)
STEPS_PER_EPOCH = 9  # of 5,300 rows; the last batch has 500
KILLED = ("--learning_rate", "0.002", "--checkpoint_every", "3", "--print_freq", "5")
STARTED = "train on "  # what runs where: the checkpoint is read, the steps begin
ENVIRONMENT = {
    **os.environ,
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "OMP_NUM_THREADS": "1",
    "HOROVOD_CYCLE_TIME": "1",  # steps of some milliseconds
}


class Training:
    """A training in the background, on some ranks; a context that leaves no process behind.

    Args:
      rows: the data set.
      folder: gets `checkpoints`, and `run` with the log.
      ranks: with 2 or more, horovodrun starts them.
      launch: horovodrun's flags; `-np RANKS` where not given.
      variables: more of the environment.
      program: what Python runs.
    """

    def __init__(
        self,
        rows: Path,
        folder: Path,
        *flags: object,
        ranks: int = 1,
        launch: Sequence[object] | None = None,
        variables: Mapping[str, str] | None = None,
        program: Sequence[str] = ("dlrm.py",),
    ):
        self._program = [*program]
        self.checkpoints, self.run_dir = folder / "checkpoints", folder / "run"
        folder.mkdir(exist_ok=True)
        launch = launch or ("-np", ranks)
        command = [*gloo_command(), *map(str, launch)] if ranks > 1 else []
        where = ("--dataset_path", rows, "--run_dir", self.run_dir)
        where += ("--save_checkpoint_path", self.checkpoints)
        command += [sys.executable, *program, *map(str, (*where, *MODEL, *flags))]
        threads = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
        self._output = folder / "output.txt"
        with open(self._output, "w") as output:
            self.process = psutil.Popen(
                command,
                cwd=ROOT,
                env={**ENVIRONMENT, **(threads if ranks > 1 else {}), **(variables or {})},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.kill()

    @property
    def output(self) -> str:
        """The output of launcher and ranks so far."""
        return self._output.read_text()

    def ranks(self) -> list[psutil.Process]:
        """The ranks' own processes, in their order."""
        processes = {}
        for process in [self.process, *self.process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if process.cmdline()[1 : 1 + len(self._program)] == self._program:
                    processes[int(process.environ().get("HOROVOD_RANK", 0))] = process
        return [processes[rank] for rank in sorted(processes)]

    def kill(self) -> None:
        """SIGKILL to the launcher and all below it; horovodrun's ranks have their own sessions."""
        with contextlib.suppress(psutil.NoSuchProcess):
            processes = [*self.process.children(recursive=True), self.process]
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(processes, timeout=20)
        mine = str(self.checkpoints)
        left = [p for p in psutil.process_iter(["cmdline"]) if mine in (p.info["cmdline"] or ())]
        for process in left:
            process.kill()
        assert left == [], "processes were left behind"

    def wait(self, timeout_s: float = 300) -> int:
        """Returns the exit code once the training has ended."""
        try:
            return self.process.wait(timeout_s)
        except psutil.TimeoutExpired:
            pytest.fail(f"the training does not end:\n{self.output}")

    def finish(self) -> None:
        """Waits for the end of the training."""
        assert self.wait() == 0, self.output

    def wait_until(self, holds, timeout_s: float = 300, every_s: float = 0.002) -> None:
        """Polls until `holds()`; the training must not end before."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            if self.process.poll() is not None and not holds():
                pytest.fail(f"the training ended, exit code {self.wait()}:\n{self.output}")
            if time.monotonic() > deadline:
                pytest.fail(f"nothing happens:\n{self.output}")
            time.sleep(every_s)

    def wait_for_start(self, text: str = STARTED) -> None:
        """Waits until the steps begin; the line before them may be another one."""
        self.wait_until(lambda: text in self.output, every_s=0.02)

    def wait_for_handlers(self) -> None:
        """Waits until all ranks handle SIGTERM, which would end them before."""
        ranks = self.ranks()
        self.wait_until(lambda: all(map(_handles_sigterm, ranks)))

    def wait_for_checkpoints(self, count: int) -> None:
        """Waits for `count` more checkpoints."""
        now = newest(self.checkpoints)
        self.wait_until(lambda: newest(self.checkpoints) >= now + count)

    def hold_while_writing(self) -> None:
        """Stops the clock of rank 0 while a checkpoint is written."""
        chief = self.ranks()[0]

        def caught() -> bool:
            if not writing(self.checkpoints):
                return False
            chief.suspend()
            if writing(self.checkpoints):
                return True
            chief.resume()
            return False

        self.wait_until(caught, every_s=0.0005)


def _handles_sigterm(process: psutil.Process) -> bool:
    """Returns whether a process has a handler for SIGTERM, by /proc."""
    caught = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{process.pid}/status").read_text(), re.M)
    return bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


def newest(folder: Path) -> int:
    """Number of the newest checkpoint."""
    saved = Folder(folder).newest()
    return saved.number if saved else 0


def writing(folder: Path) -> bool:
    """Returns whether a checkpoint is being written."""
    try:
        return any(name.startswith(".writing-") for name in os.listdir(folder))
    except FileNotFoundError:
        return False
