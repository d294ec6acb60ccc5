"""A SLURM cluster on machines of `nodes.py`: the controller on one, a compute node on each other.

Nodes claim more cores and GPUs than this machine has. Timers are short: SLURM's own let a requeued
job wait for two minutes.
"""

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.cluster.nodes import Node

PLUGIN = Path(__file__).with_name("container_plugin.c")
_PROGRAMS = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "gcc": "gcc",
}
_HEADER = Path("/usr/include/slurm/spank.h")
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
# States after which SLURM does nothing more with a job.
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"}

# The time limit is looked at every 30 seconds, which no setting changes.
_SETTINGS = """
ClusterName=test
SlurmctldHost={head}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmctldPidFile=/run/slurmctld.pid
SlurmdSpoolDir={folder}/%n.spool
SlurmdPidFile=/run/slurmd.pid
SlurmdParameters=config_overrides
TmpFS=/tmp
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MailProg=/bin/true
PlugStackConfig={folder}/plugstack.conf
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
ReturnToService=2
KillWait={kill_wait_s}
NodeName={nodes} CPUs=4 Gres=gpu:2
PartitionName=plain Nodes={nodes} Default=YES PriorityTier=1 MaxTime=60
PartitionName=graceful Nodes={nodes} PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes={nodes} PriorityTier=9 PreemptMode=OFF
"""
# From SIGTERM to SIGKILL of a job that is cancelled, or preempted without a grace time.
KILL_WAIT_S = 60


def missing() -> str | None:
    """Returns what this machine lacks to run SLURM, as one sentence; None if it has all."""
    packages = {package for name, package in _PROGRAMS.items() if not _found(name)}
    if not _HEADER.exists():
        packages.add("libslurm-dev")
    if packages:
        return f"not installed: {', '.join(sorted(packages))} (`make cluster-setup`)"
    return None


class Slurm:
    """A cluster as its users see it: jobs are submitted on `head` and run on `nodes`."""

    def __init__(self, head: Node, nodes: Mapping[str, Node], folder: Path):
        self.head, self.nodes, self.folder = head, nodes, folder
        self._settings = {"SLURM_CONF": str(folder / "slurm.conf")}

    def run(
        self,
        *argv: object,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        timeout: float = 300,
    ) -> subprocess.CompletedProcess[str]:
        """A command on the head, e.g. `squeue`, which finds this cluster."""
        return self.head.run(
            argv, env={**self._settings, **(env or {})}, check=check, timeout=timeout
        )

    def submit(self, *argv: object, env: Mapping[str, str] | None = None) -> int:
        """`sbatch ARGV` with more variables; returns the job's number."""
        done = self.run("sbatch", "--parsable", *argv, env=env)
        return int(done.stdout.strip())

    def show(self, job: int) -> dict[str, str]:
        """Returns the fields that `scontrol` prints for a job."""
        text = self.run("scontrol", "--oneliner", "show", "job", job).stdout
        return dict(re.findall(r"(?:^| )([A-Z][\w:/]*)=(.*?)(?= [A-Z][\w:/]*=|$)", text.strip()))

    def log(self, job: int) -> str:
        """Returns the output of a job so far."""
        path = Path(self.show(job)["StdOut"])
        return path.read_text() if path.exists() else ""

    def wait_for(
        self, job: int, holds: Callable[[dict[str, str]], bool], timeout_s: float = 240
    ) -> dict[str, str]:
        """Polls `show` until `holds` accepts its fields, and returns them."""
        deadline = time.monotonic() + timeout_s
        while not holds(shown := self.show(job)):
            if time.monotonic() > deadline:
                raise AssertionError(f"job {job}: nothing happens\n{shown}\n{self.log(job)}")
            time.sleep(0.2)
        return shown

    def wait_for_log(self, job: int, pattern: str, timeout_s: float = 240) -> re.Match:
        """Polls until the output of a running job matches the pattern."""
        result = []

        def written(shown: dict[str, str]) -> bool:
            result[:] = [re.search(pattern, self.log(job))]
            if shown["JobState"] in ENDED and not result[0]:
                raise AssertionError(f"job {job} ended without {pattern!r}:\n{self.log(job)}")
            return bool(result[0])

        self.wait_for(job, written, timeout_s)
        return result[0]

    def wait(self, job: int, timeout_s: float = 240) -> dict[str, str]:
        """Waits for the end of a job; a job that SLURM requeues has not ended."""
        return self.wait_for(job, lambda shown: shown["JobState"] in ENDED, timeout_s)

    def exit_code(self, job: int) -> int:
        """Returns the exit code of a job that has ended, as a shell reports it."""
        code, signal = map(int, self.show(job)["ExitCode"].split(":"))
        return 128 + signal if signal else code

    def cancel(self, job: int) -> None:
        """`scancel JOB`."""
        self.run("scancel", job)


@contextlib.contextmanager
def slurm(nodes: Mapping[str, Node], folder: Path, head: str = "head") -> Iterator[Slurm]:
    """Starts SLURM on machines, with its controller on `head`; it and its jobs end with the block.

    All machines see `folder`, an empty one without spaces in its path, which SLURM cannot read.
    """
    workers = {name: node for name, node in nodes.items() if name != head}
    (folder / "slurm.conf").write_text(
        _SETTINGS.format(head=head, folder=folder, nodes=",".join(workers), kill_wait_s=KILL_WAIT_S)
    )
    # SLURM counts device files and opens none.
    (folder / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
    plugin = folder / "container_plugin.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(plugin), str(PLUGIN)], check=True)
    (folder / "plugstack.conf").write_text(f"required {plugin}\n")
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    cluster = Slurm(nodes[head], workers, folder)
    started = []
    try:
        for name, node in nodes.items():
            munged = ["--key-file", key, "--socket", "/run/munge.socket", "--log-file", "/dev/null"]
            munged += ["--pid-file", "/run/munged.pid", "--seed-file", "/run/munged.seed"]
            _start(started, node, folder / f"{name}.munged.log", "munged", "--foreground", *munged)
        for name, node in nodes.items():
            _until(lambda node=node: (node.folder / "run/munge.socket").exists(), name)
        conf = ("-f", folder / "slurm.conf", "-D")
        (folder / "state").mkdir()
        _start(started, cluster.head, folder / "slurmctld.log", "slurmctld", *conf)
        for name, node in workers.items():
            _start(started, node, folder / f"{name}.slurmd.log", "slurmd", "-N", name, *conf)
        _until(lambda: _idle(cluster) == set(workers), "the compute nodes", cluster)
        yield cluster
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            cluster.run("scancel", "--full", "--signal=KILL", "--user=root", check=False)
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait()


def _start(started: list, node: Node, log: Path, program: str, *argv: object) -> None:
    started.append(node.start([_found(program), *argv], log=log))


def _idle(cluster: Slurm) -> set[str]:
    """The compute nodes that wait for jobs."""
    listed = cluster.run("sinfo", "--noheader", "--Node", "--format=%N %t", check=False).stdout
    return {line.split()[0] for line in listed.splitlines() if line.split()[1:] == ["idle"]}


def _until(holds: Callable[[], bool], what: str, cluster: Slurm | None = None) -> None:
    """Polls until a daemon has started; its log has the reason if it has not."""
    deadline = time.monotonic() + 200
    while not holds():
        if time.monotonic() > deadline:
            logs = "\n".join(
                f"{log.name}:\n{log.read_text()[-2000:]}"
                for log in (sorted(cluster.folder.glob("*.log")) if cluster else ())
            )
            raise RuntimeError(f"SLURM does not start: {what}\n{logs}")
        time.sleep(0.1)


def _found(program: str) -> str | None:
    return shutil.which(program, path=_PATH)
