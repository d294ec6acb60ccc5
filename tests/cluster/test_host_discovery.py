"""`runtime/host_discovery.sh` prints the hosts that can be reached."""

import os
import subprocess
import time

import pytest

from tests.cluster.nodes import ROOT

SCRIPT = ROOT / "runtime/host_discovery.sh"


@pytest.fixture
def hosts_file(tmp_path):
    """Host file with three machines, one without a number of slots, and one that does not exist."""
    path = tmp_path / "the hosts"
    path.write_text("# ours\nnode0:2\n\n  node1:1\t# slow\nnode2 \nnowhere:4")
    return path


def test_reachable_hosts(nodes, hosts_file):
    started = time.monotonic()
    done = nodes["head"].run([SCRIPT, "--timeout", "60", hosts_file])
    assert sorted(done.stdout.splitlines()) == ["node0:2", "node1:1", "node2"]
    assert done.stderr == ""
    assert time.monotonic() - started < 30, "no time-out is waited for"


def test_lost_and_returned_machine(nodes, hosts_file):
    nodes["node1"].unplug()
    try:
        started = time.monotonic()
        result = nodes["head"].run([SCRIPT, "--timeout", "2.2", hosts_file]).stdout
        assert time.monotonic() - started > 2.2
    finally:
        nodes["node1"].plug_in()
    assert sorted(result.splitlines()) == ["node0:2", "node2"]
    # The launcher's machine is listed without a check: it needs no ssh to itself.
    result = nodes["node0"].run([SCRIPT, "--port", "9", hosts_file]).stdout
    assert result == "node0:2\n"
    with hosts_file.open("a") as file:
        file.write("\nhead:3\n")
    result = nodes["head"].run([SCRIPT, "--timeout", "60", hosts_file]).stdout
    assert sorted(result.splitlines()) == ["head:3", "node0:2", "node1:1", "node2"]


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [("2(x3)", ["node0:2", "node1:2", "node2:2"]), ("4,1(x2)", ["node0:4", "node1:1", "node2:1"])],
)
def test_hosts_of_a_slurm_job(nodes, slurm, tasks, expected):
    """SLURM itself expands the names."""
    variables = {"SLURM_JOB_NODELIST": "node[0-2]", "SLURM_TASKS_PER_NODE": tasks}
    result = slurm.run(SCRIPT, "--timeout", "60", "--slurm", env=variables).stdout
    assert sorted(result.splitlines()) == expected


@pytest.mark.parametrize(
    ("text", "argv", "message"),
    [
        ("node0\nnode1 slots=2\n", (), "line 2: 'node1 slots=2' is not HOST or HOST:SLOTS"),
        ("node0:0\n", (), "line 1: 'node0:0' is not HOST or HOST:SLOTS"),
        ("# none\n\n", (), "no hosts"),
        (None, (), "cannot be read"),
        (
            "node0\nnode1:1\n\nnode0:2\n",
            (),
            "lines 1 and 4: both are of node0; give it one line, with all its slots",
        ),
        ("node0", ("--timeout", "soon"), "--timeout needs a number of seconds above 0, not 'soon'"),
        ("node0", ("--timeout", "0.0"), "--timeout needs a number of seconds above 0, not '0.0'"),
        ("node0", ("--port",), "--port needs a whole number from 1 to 65535, not '/"),
        ("node0", ("--port", "22.5"), "--port needs a whole number from 1 to 65535, not '22.5'"),
        ("node0", ("--port", "65536"), "--port needs a whole number from 1 to 65535, not '65536'"),
        ("node0", ("--wait",), "unknown option --wait; there are --timeout, --port and --slurm"),
        ("node0", ("--slurm",), "--slurm takes no file of hosts"),
        ("node0", ("more",), "one file of hosts is needed (or --slurm), but 2 came"),
    ],
)
def test_errors(tmp_path, text, argv, message):
    file = tmp_path / "hosts.txt"
    if text is not None:
        file.write_text(text)
    done = run_here(*argv, file)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: host_discovery.sh: ") and done.stderr.count("\n") == 1
    assert message in done.stderr


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "--slurm needs a SLURM job; outside, give a file of hosts"),
        (
            {"SLURM_JOB_NODELIST": "node[0-2]"},
            "--slurm needs SLURM_TASKS_PER_NODE, as sbatch and salloc set it: how many tasks each",
        ),
        (
            {"SLURM_JOB_NODELIST": "node[0-2]", "SLURM_TASKS_PER_NODE": "2(x2)"},
            "SLURM_TASKS_PER_NODE=2(x2) is of 2 hosts, but SLURM_JOB_NODELIST=node[0-2] has 3",
        ),
    ],
)
def test_slurm_without_a_job(tmp_path, variables, message):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\necho node0; echo node1; echo node2\n")
    scontrol.chmod(0o755)
    done = run_here("--slurm", PATH=f"{tmp_path}:{os.environ['PATH']}", **variables)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"error: host_discovery.sh: {message}")
    assert done.stderr.count("\n") == 1


def run_here(*argv, **more):
    """Runs the script on this machine, with no variables of a SLURM job except `more`."""
    variables = {name: v for name, v in os.environ.items() if not name.startswith("SLURM_")} | more
    return subprocess.run(
        [SCRIPT, *argv], env=variables, capture_output=True, text=True, check=False
    )
