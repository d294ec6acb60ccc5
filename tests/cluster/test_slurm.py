"""slurm_multinode.sh on a real SLURM with the commands of docs/how_to/slurm.md.

Most tests run trainings on 2 machines x 2 ranks; those about SLURM alone run shell commands.
"""

import contextlib
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pytest

from runtime.checkpoint import Folder
from tests.cluster.conftest import VARIABLES
from tests.ranks import paced_training
from tests.tables import arrays_of
from tests.test_docs import ROOT, copy_of_the_repository

PAGE = ROOT / "docs/how_to/slurm.md"
ENVIRONMENT = {**VARIABLES, "OMPI_MCA_btl_tcp_if_include": "eth0"}  # as on the page
RUN_DIR = "runs/slurm"  # --run_dir of the documented command
LIMITED = "runs/limited"
NUM_STEPS = 54  # of the documented training


class Documented(NamedTuple):
    """The commands of the page."""

    prepare: str
    cmd: str
    submit: str
    submit_container: str


def documented() -> Documented:
    section = PAGE.read_text().split("\n## Start a job\n")[1].split("\n## ")[0]
    prepare, plain, container = re.findall(r"^```\w+\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    cmd, submit = re.fullmatch(r"(export cmd='.*')\n(sbatch .*)\n", plain, re.DOTALL).groups()
    return Documented(prepare, cmd, submit, container)


class Clone:
    """A copy of the repository, which gets rows to train on."""

    def __init__(self, folder: Path, slurm):
        self.folder, self._slurm, self._page = folder, slurm, documented()
        done = self._shell(self._page.prepare)
        assert done.returncode == 0, done.stderr

    def _shell(self, script: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder}/.venv/bin:{os.environ['PATH']}"
        command = ("env", "--chdir", self.folder, "bash", "-euo", "pipefail", "-c", script)
        env = {**ENVIRONMENT, "PATH": path}
        return self._slurm.run(*command, env=env, timeout=timeout, check=False)

    def submit(self, script: str, flags: str = "") -> int:
        """Runs lines that end with `sbatch ... slurm_multinode.sh`, with more of its flags."""
        done = self._shell(script.replace("sbatch ", f"sbatch {flags} "))
        assert done.returncode == 0, done.stderr
        return int(done.stdout.removeprefix("Submitted batch job "))

    def train(self, run_dir: str, container: bool = False, slow: Path | None = None) -> int:
        """Submits the documented training, which is slow as long as the file `slow` is there."""
        line = self._page.submit_container if container else self._page.submit
        lines = f"{self._page.cmd}\n{line}".replace(RUN_DIR, run_dir)
        if slow is not None:
            slow.touch()
            lines = lines.replace(" dlrm.py ", f" -m {paced_training.__name__} ")
            lines = f"export PACED_BY={shlex.quote(str(slow))}\n{lines}"
        return self.submit(lines)

    def train_alone(self, run_dir: str) -> str:
        """Runs the documented `cmd` as one process; returns its output."""
        script = f'{self._page.cmd}\nbash -c "$cmd"'.replace(RUN_DIR, run_dir)
        done = self._shell(script)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def checkpoints(self, run_dir: str) -> Path:
        return self.folder / run_dir / "checkpoints"


@pytest.fixture(scope="module")
def clone(slurm, tmp_path_factory) -> Clone:
    return Clone(copy_of_the_repository(tmp_path_factory.mktemp("shared") / "a clone"), slurm)


@pytest.fixture(scope="module")
def alone(clone) -> Path:
    """Checkpoints of the training by one process."""
    clone.train_alone("runs/alone")
    return clone.checkpoints("runs/alone")


@pytest.fixture(scope="module")
def limited(clone, slurm) -> int:
    """The job of the training on 2 machines x 2 ranks, which is stopped by the time limit, put
    back into the queue and resumed; its checkpoints are in `runs/limited`."""
    slow = clone.folder / "slow"
    job = clone.train(LIMITED, slow=slow)
    slurm.wait_for(job, has_checkpoint(clone, LIMITED))
    # SLURM looks at the limit every 30 seconds, and wakes them with its signal.
    result = ranks(slurm, LIMITED)
    assert sorted(result) == [0, 1, 2, 3]
    for process in result.values():
        process.suspend()
    slow.unlink()
    slurm.run("scontrol", "update", f"JobId={job}", "TimeLimit=5")  # the signal is due 300 s before
    slurm.wait_for(job, lambda shown: shown["JobState"] == "PENDING")
    slurm.run("scontrol", "update", f"JobId={job}", "TimeLimit=60")
    slurm.wait(job)
    return job


def ranks(slurm, run_dir: str) -> dict[int, psutil.Process]:
    """The processes of a training."""
    result = {}
    for node in slurm.nodes.values():
        for process in node.processes():
            with contextlib.suppress(psutil.Error):
                line = process.cmdline()
                if run_dir in line and line[0].endswith("python"):
                    result[int(process.environ()["SLURM_PROCID"])] = process
    return result


def has_checkpoint(clone: Clone, run_dir: str):
    """Returns a condition for `wait_for`: a checkpoint exists and the training still runs."""

    def holds(shown: dict[str, str]) -> bool:
        assert shown["JobState"] in ("PENDING", "CONFIGURING", "RUNNING"), shown
        folder = clone.checkpoints(run_dir)
        return folder.exists() and Folder(folder).newest() is not None

    return holds


def check_same_weights(expected_folder: Path, folder: Path) -> None:
    """Compares all weights and the optimizer's state up to the rounding of sums."""
    expected, result = arrays_of(expected_folder), arrays_of(folder)
    assert expected.keys() == result.keys() and any("cat_0" in name for name in result)
    for name, array in expected.items():
        np.testing.assert_allclose(result[name], array, rtol=1e-3, atol=1e-4, err_msg=name)


# Trainings.


def test_weights_of_two_machines_and_one_process(clone, slurm, alone, limited):
    shown, log = slurm.show(limited), slurm.log(limited)
    assert (shown["JobState"], shown["Restarts"], slurm.exit_code(limited)) == ("COMPLETED", "1", 0)
    assert Path(shown["StdOut"]) == clone.folder / f"recommender-{limited}.log"
    assert log.startswith(f"slurm_multinode.sh: job {limited}, restarts: 0, machines: node[0-1]")
    (step,) = map(int, re.findall(r"^dlrm: stopped by SIGTERM at step (\d+) of", log, re.MULTILINE))
    assert 0 < step < NUM_STEPS
    assert "slurm_multinode.sh: put back into the queue, to resume from the last checkpoint" in log
    assert f"-step-{step} at step {step} of {NUM_STEPS}" in log
    assert log.count("last (validation)") == 1, "one rank speaks"
    assert Folder(alone).newest().step == NUM_STEPS
    check_same_weights(alone, clone.checkpoints(LIMITED))


@pytest.mark.long
def test_killed_rank_in_a_container(clone, slurm, alone):
    """The job fails, and what it saved is enough to end as if nothing had happened."""
    run_dir = "runs/killed"
    slow = clone.folder / "slow"
    image = clone.folder / "recommenders+gpu.sqsh"
    image.touch()
    job = clone.train(run_dir, container=True, slow=slow)
    slurm.wait_for(job, has_checkpoint(clone, run_dir))
    result = ranks(slurm, run_dir)
    assert sorted(result) == [0, 1, 2, 3]
    passed = result[3].environ()
    assert passed["CONTAINER_IMAGE"] == str(image)
    inside, here = "/workspace/recommenders", clone.folder
    assert " " in str(here)
    assert passed["CONTAINER_MOUNTS"] == f"{here}/data:{inside}/data,{here}/runs:{inside}/runs"
    result[3].kill()
    slow.unlink()
    shown, log = slurm.wait(job), slurm.log(job)
    assert (shown["JobState"], shown["Restarts"], slurm.exit_code(job)) == ("FAILED", "0", 137), log
    assert "rank 3 on node1 was ended by signal 9" in log
    step = Folder(clone.checkpoints(run_dir)).newest().step
    assert 0 < step < NUM_STEPS
    output = clone.train_alone(run_dir)
    assert f"at step {step} of {NUM_STEPS}" in output, output
    check_same_weights(alone, clone.checkpoints(run_dir))


# Behaviour of SLURM with any command.

# SIGTERM is sent to each process separately: `sleep` may end before the shell receives it.
WAITS = (
    'if [ "${SLURM_RESTART_COUNT:-0}" != 0 ]; then echo "resumed"; exit 0; fi; '
    'trap : TERM; echo "rank $SLURM_PROCID waits"; sleep 300 & wait; exit 75 # --resume auto'
)
SUBMIT = "sbatch -N 2 --ntasks-per-node=2 -t 10 slurm_multinode.sh"


def wait_for_ranks(slurm, job: int, count: int = 4) -> None:
    """Waits until all ranks of a job that runs `WAITS` have started to wait."""
    slurm.wait_for_log(job, rf"(?s)(rank \d waits.*){{{count}}}")


def test_preemption(clone, slurm):
    """With a grace time the job requeues itself, without one SLURM does; never both."""
    submit = f"export cmd='{WAITS}'\n{SUBMIT}"
    jobs = {name: clone.submit(submit, f"-p {name}") for name in ("plain", "graceful")}
    for job in jobs.values():
        wait_for_ranks(slurm, job)
    urgent = slurm.submit(
        "-p", "urgent", "-N", "3", "--exclusive", "--wrap", "true", "-o", "/dev/null"
    )
    for job in jobs.values():
        shown, log = slurm.wait(job), slurm.log(job)
        assert (shown["JobState"], shown["Restarts"]) == ("COMPLETED", "1"), log
        assert log.count("resumed") == 4
    assert slurm.wait(urgent)["JobState"] == "COMPLETED"
    assert "SLURM puts it back into the queue itself" in slurm.log(jobs["plain"])
    assert "put back into the queue, to resume" in slurm.log(jobs["graceful"])


def test_cancelled_job(clone, slurm):
    job = clone.submit(f"export cmd='{WAITS}'\n{SUBMIT}")
    wait_for_ranks(slurm, job)
    slurm.cancel(job)
    shown = slurm.wait(job)
    assert (shown["JobState"], shown["Restarts"], slurm.exit_code(job)) == ("CANCELLED", "0", 75)


def test_requeued_task_of_an_array(clone, slurm):
    """The last task of an array, whose job number is that of the array."""
    cmd = f'if [ "$SLURM_ARRAY_TASK_ID" = 0 ]; then echo "is done"; exit 0; fi; {WAITS}'
    submit = SUBMIT.replace("-N 2 --ntasks-per-node=2", "--array=0-1 -o task-%a.log")
    job = clone.submit(f"export cmd={shlex.quote(cmd)}\n{submit}")
    tasks = [f"{job}_{task}" for task in range(2)]
    assert slurm.wait(tasks[0])["JobState"] == "COMPLETED"
    wait_for_ranks(slurm, tasks[1], 1)
    slurm.run("scancel", "--signal=TERM", tasks[1])
    assert slurm.wait(tasks[1])["JobState"] == "COMPLETED"
    logs = list(map(slurm.log, tasks))
    assert [slurm.show(task)["Restarts"] for task in tasks] == ["0", "1"], logs
    assert (logs[0].count("is done"), logs[1].count("resumed")) == (1, 1), logs


def test_failed_machine(clone, slurm):
    job = clone.submit(f"export cmd='{WAITS}'\n{SUBMIT}")
    wait_for_ranks(slurm, job)
    # SLURM makes the node available again as soon as its slurmd reports.
    slurm.run("scontrol", "update", "NodeName=node1", "State=DOWN", "Reason=test")
    shown, log = slurm.wait(job), slurm.log(job)
    assert (shown["JobState"], shown["Restarts"]) == ("COMPLETED", "1"), log


@pytest.mark.long
def test_slow_end_of_a_rank(clone, slurm):
    tarries = 'if [ "$SLURM_PROCID" = 3 ]; then trap "" TERM; sleep 200; fi'
    slow = WAITS.replace("exit 75", f"{tarries}; exit 75")
    job = clone.submit(f"export cmd={shlex.quote(slow)}\n{SUBMIT}")
    wait_for_ranks(slurm, job)
    slurm.run("scancel", "--signal=TERM", job)
    shown, log = slurm.wait(job), slurm.log(job)
    assert (shown["JobState"], shown["Restarts"]) == ("COMPLETED", "1"), log
    assert "SLURM killed ranks that took long to end" in log


def test_numbers_of_ranks_without_a_machine(clone, slurm):
    """Without the check SLURM would start unintended ranks, or wait forever."""
    submit = SUBMIT.replace(" --ntasks-per-node=2", "")
    outer = f"srun -N 1 -n 1 bash -c {shlex.quote(submit.replace('-N', '--exclusive -N'))}"
    calls = {
        outer: "SLURM_NTASKS=1 does not fit SLURM_TASKS_PER_NODE=4(x2)",
        submit.replace("-N", "--gpus=3 --cpus-per-gpu=1 -N"): "as many GPUs (2,1): sbatch --gpus-",
        submit.replace("-N", "--gpus=3 --exclusive -N"): "is not 2 for each of 2 machines",
        submit.replace("-N", "--gpus-per-node=2 -c 2 -N"): "2 cores for their tasks, of 2 each",
    }
    jobs = [clone.submit(f"export cmd=true\n{call}") for call in calls]
    for job, message in zip(jobs, calls.values(), strict=True):
        assert slurm.wait(job)["JobState"] == "FAILED"
        log = slurm.log(job)
        assert (slurm.exit_code(job), message in log) == (2, True), log


def test_worst_exit_code_and_one_rank_per_gpu(clone, slurm):
    codes = (0, 5, 3, 4)
    cmd = f'codes=({" ".join(map(str, codes))}); echo "at $PWD"; exit ${{codes[SLURM_PROCID]}}'
    lines = f"export cmd='{cmd}' srun_flags=--label\n{SUBMIT.replace('--ntasks-per-node=2', '')}"
    job = clone.submit(lines, "--gpus-per-node=2 --exclusive")
    assert slurm.wait(job)["JobState"] == "FAILED"
    output = [line for line in slurm.log(job).splitlines() if ": at " in line]
    assert sorted(output) == [f"{rank}: at {clone.folder}" for rank in range(4)]
    assert slurm.exit_code(job) == max(codes)
