"""`horovodrun` and `mpirun` on several machines, also when a machine is lost.

The machines have a second network interface, which leads nowhere and has the same name and address
on each, as Docker's has.
"""

import contextlib
import re
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.cluster.conftest import VARIABLES
from tests.cluster.nodes import ROOT
from tests.ranks.conftest import gloo_command
from tests.ranks.test_entry_scripts import check_same_training, training

HOROVODRUN = Path(sys.executable).with_name("horovodrun")
# horovodrun hands all variables on to the other machines, mpirun those that -x names.
MPIRUN = ("mpirun", "--allow-run-as-root", "--bind-to", "none")
MPIRUN += ("--mca", "btl_tcp_if_include", "10.77.0.0/24")
MPIRUN += tuple(word for name in VARIABLES for word in ("-x", name))


@pytest.fixture(scope="module", autouse=True)
def container_bridges(nodes):
    """Creates network interfaces in addition to eth0."""
    for node in nodes.values():
        node.run(["ip", "link", "add", "docker0", "type", "bridge"])
        node.run(["ip", "address", "add", "172.17.0.1/16", "dev", "docker0"])
        node.run(["ip", "link", "set", "docker0", "up"])
    yield
    for node in nodes.values():
        node.run(["ip", "link", "delete", "docker0"])


# Ranks on each of two machines. Long: as many as docs/how_to/ssh.md starts.
PER_MACHINE = pytest.mark.parametrize("slots", [1, pytest.param(2, marks=pytest.mark.long)])


@PER_MACHINE
def test_horovodrun_on_two_machines(nodes, rows, one_process, variables, tmp_path, slots):
    command = [HOROVODRUN, "--gloo", "-np", 2 * slots, "-H", f"node0:{slots},node1:{slots}"]
    if " " in sys.executable:  # its search for a network does not quote this path
        command += ["--network-interfaces", "eth0"]
    command += program(rows, tmp_path)
    done = nodes["head"].run(command, env=variables)
    check_same_training(one_process, tmp_path, done.stdout)


@pytest.mark.long
@PER_MACHINE
def test_mpirun_on_two_machines(nodes, mpi, rows, one_process, variables, tmp_path, slots):
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(f"node0 slots={slots}\nnode1 slots={slots}\n")
    command = [*MPIRUN, "--hostfile", hosts, "-np", 2 * slots, *program(rows, tmp_path)]
    done = nodes["head"].run(command, env=variables)
    check_same_training(one_process, tmp_path, done.stdout)


def program(rows, folder, *flags):
    """A training, for any current folder: horovodrun enters none with a space in its path."""
    recipe, *words = training(rows, folder, *flags)
    return [sys.executable, ROOT / recipe, *words]


def kill_trainings(nodes):
    """Kills the trainings on all machines: those on a lost machine do not end with the others."""
    for node in nodes.values():
        for process in node.processes():
            with contextlib.suppress(psutil.Error):
                if str(ROOT / "dlrm.py") in process.cmdline():
                    process.kill()


class Cut:
    """A training that loses a machine in its second epoch; `after_s`: until the launcher ended."""

    def __init__(self, nodes, lost, command, variables, log):
        process = nodes["head"].start(command, log=log, env=variables)
        try:
            deadline = time.monotonic() + 240
            while "epoch 1 " not in log.read_text():
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            nodes[lost].unplug()
            started = time.monotonic()
            self.code = process.wait(timeout=90)
            self.after_s = time.monotonic() - started
            self.output = log.read_text()
        finally:
            process.kill()
            nodes[lost].plug_in()
            kill_trainings(nodes)


def endless(rows, folder, timeout_s):
    """A training that writes checkpoints and does not come to its end."""
    flags = ("--epochs", 10**6, "--print_freq", 1000, "--checkpoint_every", 9)
    return program(rows, folder, *flags, "--rank_timeout_s", timeout_s)


@pytest.mark.skipif(" " in sys.executable, reason="horovodrun over ssh: no path with a space")
def test_lost_machine_with_horovodrun(nodes, rows, variables, tmp_path):
    command = [*gloo_command(), "-np", 2, "-H", "node0:1,node1:1", *endless(rows, tmp_path, 10)]
    variables |= {"PYTHONPATH": str(ROOT), "HOROVOD_GLOO_TIMEOUT_SECONDS": "10"}
    cut = Cut(nodes, "node1", command, variables, tmp_path / "output.txt")
    assert cut.code == 1 and "Exit code: 4" in cut.output
    assert re.search(
        r"dlrm: error: the 2 processes cannot continue: rank 1 did not come to a collective within "
        r"10 seconds \(--rank_timeout_s\): node1, pid \d+, no answer: .* its machine is unr",
        cut.output,
    ), cut.output
    # Gloo's time-out, and a roll call that waits for slow ranks.
    assert 10 < cut.after_s < 40


@pytest.mark.long
def test_lost_machine_with_mpirun(nodes, mpi, rows, variables, tmp_path):
    alive = "-o ServerAliveInterval=2 -o ServerAliveCountMax=3"
    command = [*MPIRUN, "--mca", "plm_rsh_args", alive, "-np", 2, "-H", "node0:1,node1:1"]
    command += endless(rows, tmp_path, 600)
    cut = Cut(nodes, "node1", command, variables, tmp_path / "output.txt")
    assert cut.code == 255
    assert "Timeout, server node1 not responding." in cut.output
    assert 4 < cut.after_s < 30


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("node7", "Could not resolve hostname node7"),
        # Five attempts of some seconds each.
        pytest.param("node1", "connect to host node1 port 22", marks=pytest.mark.long),
    ],
)
def test_horovodrun_with_a_machine_without_ssh(nodes, variables, host, reason):
    nodes["node1"].unplug()
    try:
        command = [*gloo_command(), "-np", 2, "-H", f"node0:1,{host}:1", "true"]
        done = nodes["head"].run(command, env={**variables, "PYTHONPATH": str(ROOT)}, check=False)
    finally:
        nodes["node1"].plug_in()
    assert done.returncode == 1
    assert f"ssh not successful for host {host}:\nssh: {reason}" in done.stdout


@pytest.mark.long
def test_mpirun_on_the_wrong_interface(nodes, mpi, rows, tmp_path):
    command = ["mpirun", "--allow-run-as-root", "-np", 2, "-H", "node0:1,node1:1"]
    command += program(rows, tmp_path, "--rank_timeout_s", 5)
    done = nodes["head"].run(command, check=False)
    assert done.returncode == 2
    assert "error: a process of 2 did not start within 60 seconds" in done.stderr, done.stderr
