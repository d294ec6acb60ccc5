"""slurm_multinode.sh without SLURM: stand-ins of srun and scontrol note what they are asked.

`tests/cluster/test_slurm.py` has the real ones.
"""

import os
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

SCRIPT = "slurm_multinode.sh"
STAND_INS = {
    # Runs one task; flags are single words.
    "srun": """
        if [ "$*" = --help ]; then cat "$STAND_IN/help"; exit; fi
        printf '%s\\0' "$@" >"$STAND_IN/srun"
        echo "${SRUN_CPUS_PER_TASK:-}" >"$STAND_IN/cores"
        while [[ $1 == -* ]]; do shift; done
        SLURM_PROCID=3 SLURMD_NODENAME=node1 exec "$@"
    """,
    "scontrol": """
        case "$*" in
        "show config") cat "$STAND_IN/config" ;;
        "--oneliner show job ${JOB_IS:-7}") cat "$STAND_IN/job" ;;
        "--oneliner --details show job ${JOB_IS:-7}") cat "$STAND_IN/details" ;;
        "requeue ${JOB_IS:-7}") touch "$STAND_IN/requeued" && [ ! -e "$STAND_IN/refuses" ] ;;
        *) exit 99 ;;
        esac
    """,
    "sleep": 'echo "$1" >>"$STAND_IN/slept"',
}
PYXIS = "--container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH"
RUNNING = "JobId=7 JobName=x JobState=RUNNING Reason=None PreemptTime=None Command=y"
# Machines with equal and with unequal numbers of GPUs, as SLURM 22.05 shows them.
EQUAL = f"{RUNNING} Nodes=node[0-1] CPU_IDs=0-63 Mem=0 GRES=gpu:8(IDX:0-7) TresPerJob=gres:gpu:16"
UNEQUAL = (
    f"{RUNNING} Nodes=node0 CPU_IDs=0 Mem=0 GRES=gpu:a100:1(IDX:0),gpu:h100:1(IDX:1) "
    "Nodes=node[1-2] CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0) Nodes=node3 CPU_IDs=0 Mem=0 GRES= "
    "TresPerJob=gres:gpu:4"
)


class Done(NamedTuple):
    """Result of a job.

    Attributes:
      code: the exit code.
      out: what the task wrote to its output.
      error: the error output.
      flags: those of srun, None where it was not called.
      folder: what the stand-ins noted.
    """

    code: int
    out: str
    error: str
    flags: list[str] | None
    folder: Path


class Cluster:
    """The stand-ins in a folder.

    Attributes:
      folder: what they are asked and answer.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        (folder / "bin").mkdir()
        for name, text in STAND_INS.items():
            self.program(name, text)
        answers = {"help": PYXIS, "config": "TaskPlugin = task/none"}
        answers |= {"job": RUNNING, "details": EQUAL}
        for name, text in answers.items():
            (folder / name).write_text(text + "\n")

    def program(self, name: str, text: str) -> None:
        """Adds a stand-in."""
        path = self.folder / "bin" / name
        path.write_text("#!/usr/bin/env bash\n" + text)
        path.chmod(0o755)

    def environment(self, **variables: str) -> dict[str, str]:
        """Returns the environment of job 7, with `variables`."""
        plain = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        ours = {"PATH": path, "STAND_IN": str(self.folder), "SLURM_JOB_ID": "7"}
        return plain | ours | variables

    def run(self, **variables: str) -> Done:
        """Runs the script as SLURM does."""
        done = subprocess.run(
            ["bash", SCRIPT],
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        noted = self.folder / "srun"
        words = noted.read_text().split("\0")[:-1] if noted.exists() else None
        flags = words and words[: words.index("bash")]
        return Done(done.returncode, done.stdout, done.stderr, flags, self.folder)


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    """A path with spaces is as good as any."""
    folder = tmp_path / "stand ins"
    folder.mkdir()
    return Cluster(folder)


# Flags of srun.

PLAIN = ["--mpi=pmix", "--kill-on-bad-exit=1"]
ONE = "--ntasks-per-node=1"
TWO, EIGHT = ({"SLURM_GPUS_ON_NODE": number} for number in "28")
MOUNTS = r"/a b:/c  d,/e:/f:ro,/g\040h:/i"
MOUNTED = r"--container-mounts=/a\040b:/c\040\040d,/e:/f:ro,/g\040h:/i"


@pytest.mark.parametrize(
    ("variables", "flags"),
    [
        ({}, [ONE]),
        (EIGHT | {"SLURM_CPUS_ON_NODE": "64"}, ["--ntasks-per-node=8"]),
        (EIGHT | {"SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "2(x2)"}, []),  # by sbatch
        ({"SLURM_NTASKS": "5", "SLURM_TASKS_PER_NODE": "2(x2),1"}, []),
        ({"SLURM_NTASKS": "6"}, []),  # an arbitrary distribution
        (TWO | {"SLURM_CPUS_PER_TASK": "3", "SLURM_CPUS_ON_NODE": "6"}, ["--ntasks-per-node=2"]),
        (TWO | {"SLURM_GPUS": "a100:4", "SLURM_JOB_NUM_NODES": "2"}, ["--ntasks-per-node=2"]),
        # Spaces of mounts are those of fstab.
        ({"cont": "image", "mounts": MOUNTS}, [ONE, "--container-image=image", MOUNTED]),
        ({"cont": "./Makefile"}, [ONE, "--container-image=./Makefile"]),
        ({"cont": "user@host#image:1"}, [ONE, "--container-image=user@host#image:1"]),
        # The last flags count.
        (
            {"srun_flags": "--mpi=pmi2  --output='a b/%t.log' --label"},
            [ONE, "--mpi=pmi2", "--output=a b/%t.log", "--label"],
        ),
    ],
)
def test_flags_of_srun(cluster, variables, flags):
    done = cluster.run(cmd="true", **variables)
    assert (done.code, done.flags) == (0, [*PLAIN, *flags]), done.error


def test_cores_of_the_tasks(cluster):
    """SLURM's binding gives each of 8 tasks an eighth of the cores, of which it takes an eighth."""
    (cluster.folder / "config").write_text("TaskPlugin = task/affinity,task/cgroup\n")
    done = cluster.run(cmd="true", SLURM_CPUS_PER_TASK="6")
    assert done.flags == [*PLAIN, "--cpu-bind=none", ONE]
    assert (done.folder / "cores").read_text() == "6\n"


def test_different_numbers_of_gpus(cluster):
    """The first machine has 2, the others have other numbers."""
    variables = {"SLURM_GPUS_ON_NODE": "2", "SLURM_CPUS_ON_NODE": "2"}
    (cluster.folder / "details").write_text(UNEQUAL + "\n")
    done = cluster.run(cmd="true", **variables)
    assert (done.code, done.flags) == (2, None)
    assert "error: not all machines have as many GPUs (2,1,0): sbatch --gpus-per-node" in done.error
    task_numbers = {"SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "2,1(x2)"}
    assert cluster.run(cmd="true", **variables, **task_numbers).code == 0


# What a task runs.


@pytest.mark.parametrize(
    ("cmd", "out"),
    [
        (
            "printf '%s|' 'a b' \"c  d\" it\\'s '$x' \"$SLURM_PROCID\" *.toml",
            "a b|c  d|it's|$x|3|pyproject.toml|",
        ),
        ("cd / && pwd", "/\n"),
        ("echo 1\necho 2", "1\n2\n"),
        ("echo \\\n  -u  x", "-u x\n"),
        ("echo --xla\\\n--embedding_dim 512", "--xla --embedding_dim 512\n"),  # of a seed
        ("numactl -i all -- python -u x.py", "numactl ran python -u\n"),
    ],
)
def test_cmd(cluster, cmd, out):
    cluster.program("numactl", 'shift 3; echo "numactl ran $1 $2"')
    done = cluster.run(cmd=cmd)
    assert done.code == 0, done.error
    assert done.out == out


# What it cannot work with.


def uneven(tasks):
    return {"cmd": "x", "SLURM_NTASKS": tasks, "SLURM_TASKS_PER_NODE": "4(x2),1"}


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({"SLURM_JOB_ID": "", "cmd": "x"}, "start it with sbatch: cmd="),
        ({}, "cmd is empty"),
        ({"cmd": " \n"}, "cmd is empty"),
        ({"cmd": "python 'x"}, "cmd is: python 'x"),
        ({"srun_flags": "--a='b"}, "srun_flags"),
        ({"mounts": "/a:/b"}, "mounts=/a:/b"),
        ({"cont": "/no/x.sqsh"}, "cont=/no/x.sqsh"),
        ({"max_restarts": "-1"}, "max_restarts"),
        (TWO | {"SLURM_CPUS_ON_NODE": "1"}, "2 GPUs on a node, but 1 cores"),
        (TWO | {"SLURM_GPUS": "a100:3", "SLURM_JOB_NUM_NODES": "2"}, "SLURM_GPUS=a100:3"),
        (uneven("1"), "SLURM_NTASKS=1 does not fit SLURM_TASKS_PER_NODE=4(x2),1"),
    ],
)
def test_mistakes(cluster, variables, names):
    has_cmd = "cmd" in names or "cmd" in variables
    done = cluster.run(**({} if has_cmd else {"cmd": "x"}), **variables)
    assert (done.code, done.flags) == (2, None)
    *_, last = done.error.splitlines()
    assert last.startswith("slurm_multinode.sh: error: ") and names in last, done.error


# Its end, and whether the job is queued again.

STOPPED = "exit 75 # --resume auto"
PREEMPTED = RUNNING.replace("PreemptTime=None", "PreemptTime=2026-11-22T15:33:05")
ENDED = RUNNING.replace("RUNNING", "COMPLETING")


@pytest.mark.parametrize(
    ("cmd", "variables", "job", "code", "requeued", "message"),
    [
        ("true", {}, RUNNING, 0, False, ""),
        ("exit 4 # --resume auto", {}, RUNNING, 4, False, ""),
        (STOPPED, {}, RUNNING, 75, True, "put back into the queue, to resume from"),
        ("exit 75 # '--resume=auto'", {}, RUNNING, 75, False, "it would begin at the beginning"),
        ("exit 75 # --resume=auto", {}, RUNNING, 75, True, "put back into the queue, to resume"),
        ("exit 75 # --resume auto2", {}, RUNNING, 75, False, "it would begin at the beginning"),
        (STOPPED, {"SLURM_RESTART_COUNT": "50"}, RUNNING, 75, False, "it was 50 times (max_rest"),
        (STOPPED, {"max_restarts": "0"}, RUNNING, 75, False, "it was 0 times (max_restarts=0)"),
        (STOPPED, {}, ENDED, 75, False, "SLURM has ended this job"),
        ("kill $$ # --resume auto", {}, RUNNING, 143, False, "stopped by SIGTERM before the train"),
        ("kill $$ # --resume auto", {}, PREEMPTED, 143, True, "put back into the queue, to resume"),
        ("kill -9 $$ # --resume auto", {}, RUNNING, 137, False, "rank 3 on node1 was ended by sig"),
    ],
)
def test_the_end(cluster, cmd, variables, job, code, requeued, message):
    (cluster.folder / "job").write_text(job + "\n")
    # A shell of its own, because that of cmd outlives SIGTERM.
    done = cluster.run(cmd=f"bash -c {cmd!r}" if cmd.startswith("kill") else cmd, **variables)
    assert done.code == code
    assert (done.folder / "requeued").exists() == requeued
    assert message in done.error
    assert (done.folder / "slept").exists() == bool(code), "the others have time for their ends"


@pytest.mark.parametrize(("number", "array"), [("7", "7_3"), ("7", "6"), ("8", "6")])
def test_one_task_of_an_array(cluster, number, array):
    """The last one has the number of the array. Other arrays are those from within which it was
    submitted, or those of which it is not the last."""
    variables = {"SLURM_ARRAY_JOB_ID": array.split("_")[0], "SLURM_ARRAY_TASK_ID": "3"}
    shown = array if "_" in array else number
    done = cluster.run(cmd=STOPPED, SLURM_JOB_ID=number, JOB_IS=shown, **variables)
    assert (done.code, (done.folder / "requeued").exists()) == (75, True), done.error
    assert f"job {shown}, restarts: 0" in done.error


def test_answers_of_slurm(cluster):
    """It refuses to queue the job again, does not answer, has no containers, or starts nothing."""
    (cluster.folder / "refuses").touch()
    done = cluster.run(cmd=STOPPED)
    assert done.code == 75 and "SLURM does not put it back into the queue" in done.error
    (cluster.folder / "job").unlink()
    done = cluster.run(cmd=STOPPED)
    assert done.code == 75 and "SLURM does not answer" in done.error
    (cluster.folder / "srun").unlink()
    (cluster.folder / "help").write_text("Usage: srun\n")
    done = cluster.run(cmd="x", cont="image")
    assert (done.code, done.flags) == (2, None)
    assert "cont=image, but srun has no --container-image" in done.error
    cluster.program("srun", "echo 'srun: error: task 3 launch failed' >&2")
    done = cluster.run(cmd="x")
    assert done.code == 1 and "error: SLURM could not start every rank" in done.error


@pytest.mark.parametrize("line", ["{}", "cd . && {}", "{}; exit $?"])
def test_sigterm(cluster, line):
    """All processes of a job get it, and only the training decides what it means."""
    cluster.program(
        "train", "trap 'echo saved; echo why >&2; exit 75' TERM; echo ready; while :; do :; done"
    )
    process = subprocess.Popen(
        ["bash", SCRIPT],
        env=cluster.environment(cmd=line.format("train --resume auto")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGTERM)
        out, errors = process.communicate(timeout=120)
        assert (out, process.returncode) == ("saved\n", 75)
        assert "\nwhy\n" in errors
        assert (cluster.folder / "requeued").exists()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.mark.parametrize(
    ("codes", "code"), [((9, 143), 9), ((143, 4, 9), 9), ((143, 143), 143), ((75, 143), 143)]
)
def test_early_failure_of_a_rank(cluster, codes, code):
    """They end by SLURM's SIGTERM, with a code that is higher than the one that matters."""
    lines = "".join(
        f"echo 'srun: error: node1: task {rank}: Exited with exit code {each}' >&2\n"
        for rank, each in enumerate(codes)
    )
    cluster.program("srun", f"{lines}exit 143")
    done = cluster.run(cmd="x --resume auto")
    assert done.code == code
    assert ("a rank failed, see above, and SLURM ended the others" in done.error) == (code == 9)
    assert ("give it more time" in done.error) == (code == 143)


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ((75, "Killed"), 75),  # one takes long
        ((75, 143, "Killed"), 75),  # one had not begun
        ((143, "Killed"), 137),  # none has saved
        ((75, 137), 137),  # one has crashed
        ((75, "Killed", "Out Of Memory"), 137),
    ],
)
def test_ranks_killed_by_slurm(cluster, ends, code):
    """They take longer than KillWait to end. If one has ended with 75 and none has crashed, the
    checkpoint is saved."""
    texts = [f"Exited with exit code {end}" if isinstance(end, int) else end for end in ends]
    lines = "".join(
        f"echo 'srun: error: node1: task {rank}: {text}' >&2\n" for rank, text in enumerate(texts)
    )
    cluster.program("srun", f"{lines}exit 137")
    done = cluster.run(cmd="x --resume auto")
    assert done.code == code, done.error
    assert (done.folder / "requeued").exists() == (code == 75)
    assert ("SLURM killed ranks that took long to end" in done.error) == (code == 75)
