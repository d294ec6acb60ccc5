"""Nodes of `nodes.py`: isolation, errors, and removal of everything that they create."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.cluster import nodes as machines
from tests.cluster.nodes import ROOT


def names_of(processes):
    """Returns the names of the running processes, without zombies."""
    result = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                result.append(process.name())
    return result


def test_name_address_processes_and_private_folders(nodes, cluster_folder, tmp_path):
    node = nodes["node1"]
    assert node.run(["hostname"]).stdout == "node1\n"
    assert f" {node.address}/24 " in node.run(["ip", "-4", "address"]).stdout
    # The processes of a new one, on which no other test has started any.
    with machines.nodes(["new"], tmp_path) as created:
        machines.start_sshd(created["new"], machines.write_keys(tmp_path))
        seen = created["new"].run(["sh", "-c", "cat /proc/[0-9]*/cmdline"], check=False).stdout
        assert "sshd" in seen and "pytest" not in seen
        assert set(names_of(created["new"].processes())) == {"bash", "sshd"}
    for private in ("/tmp", "/run", "/dev/shm"):
        node.run(["touch", f"{private}/of node1"])
        assert not Path(private, "of node1").exists()
        assert nodes["node2"].run(["ls", f"{private}/of node1"], check=False).returncode == 2
    assert (cluster_folder / "node1/tmp/of node1").exists()


def test_shared_folders(nodes, tmp_path):
    (tmp_path / "here").write_text("hello")
    copy = f"import os, tests; open({str(tmp_path / 'there')!r}, 'w').write(os.getcwd())"
    nodes["node0"].run([sys.executable, "-c", copy], env={"PYTHONPATH": str(ROOT)})
    assert (tmp_path / "there").read_text() == os.getcwd()
    assert nodes["node1"].run(["cat", tmp_path / "here", tmp_path / "there"]).stdout == (
        "hello" + os.getcwd()
    )


def test_repository_below_tmp(tmp_path, monkeypatch):
    clone = tmp_path / "a clone"
    (clone / "inner").mkdir(parents=True)
    (clone / "file").write_text("of the clone")
    (tmp_path / "other").touch()
    monkeypatch.setattr(machines, "ROOT", clone)
    folder = clone / "inner"
    with machines.nodes(["alone"], folder) as created:
        assert created["alone"].run(["cat", clone / "file"]).stdout == "of the clone"
        assert created["alone"].run(["ls", tmp_path]).stdout == "a clone\n"
        created["alone"].run(["touch", folder / "created"])
    assert (folder / "created").exists()


def test_ssh_between_nodes(nodes):
    names = list(nodes)
    for name, other in zip(names, [*names[1:], names[0]], strict=True):
        ask = 'hostname; echo "${SSH_CONNECTION%% *}"'
        output = nodes[name].run(["ssh", "-o", "BatchMode=yes", other, ask]).stdout
        assert output.split() == [other, nodes[name].address]
    # sshd listens on the node's own address; what listens on loopback is seen there only.
    serve = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "8000"]
    server = nodes["node0"].start(serve, log=nodes["node0"].folder / "server.log")
    connect = ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8000"]
    deadline = time.monotonic() + 60
    while nodes["node0"].run(connect, check=False).returncode:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert nodes["node1"].run(connect, check=False).returncode != 0
    machines.inner(server).terminate()
    server.wait(timeout=60)


def test_unplugged_node(nodes):
    greet = ["bash", "-c", "exec 3<>/dev/tcp/node2/22; head -n 1 <&3"]
    nodes["node2"].unplug()
    try:
        assert nodes["head"].run(["timeout", "1", *greet], check=False).returncode == 124
    finally:
        nodes["node2"].plug_in()
    assert nodes["head"].run(greet).stdout.startswith("SSH-2.0-OpenSSH")


def test_errors_timeouts_and_variables_of_commands(nodes):
    node = nodes["node0"]
    done = node.run(["sh", "-c", "echo $COLOUR; exit 3"], env={"COLOUR": "red"}, check=False)
    assert (done.stdout, done.returncode) == ("red\n", 3)
    with pytest.raises(AssertionError, match="node0: ls nowhere: exit code 2"):
        node.run(["ls", "nowhere"])
    with pytest.raises(subprocess.TimeoutExpired):
        node.run(["sleep", "77.5"], timeout=2)
    deadline = time.monotonic() + 60
    while "sleep" in names_of(node.processes()):
        assert time.monotonic() < deadline, "sleep still runs"
        time.sleep(0.05)


def test_signal_and_end_of_a_command(tmp_path):
    with machines.nodes(["one"], tmp_path) as created:
        node = created["one"]
        trap = node.start(
            ["bash", "-c", "trap 'echo caught; exit 5' TERM; echo set; sleep 50 & wait"],
            log=tmp_path / "log",
        )
        while "set" not in (tmp_path / "log").read_text():
            time.sleep(0.01)
        machines.inner(trap).terminate()
        assert trap.wait(timeout=60) == 5
        assert (tmp_path / "log").read_text() == "set\ncaught\n"
        assert names_of(node.processes()) == ["bash", "sleep"]
        daemon = node.start(["bash", "-c", "setsid sleep 60 & wait"], log=tmp_path / "log")
        while len(processes := node.processes()) < 4:
            time.sleep(0.01)
    assert daemon.poll() is not None
    assert names_of(processes) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def test_command_that_does_not_start(nodes, tmp_path):
    process = nodes["node0"].start(["no such program"], log=tmp_path / "log")
    process.wait(timeout=10)
    with pytest.raises(RuntimeError, match="the command has not started: .*no such program"):
        machines.inner(process)


def test_sshd_that_cannot_start(tmp_path):
    with machines.nodes(["one"], tmp_path) as created:
        etc = machines.write_keys(tmp_path)
        (etc / "sshd_config").write_text("NoSuchSetting yes\n")
        with pytest.raises(RuntimeError, match=r"(?s)sshd does not listen on one:.*NoSuchSetting"):
            machines.start_sshd(created["one"], etc)


def test_end_of_nodes_after_an_exception(tmp_path):
    with pytest.raises(ZeroDivisionError), machines.nodes(["one", "two"], tmp_path) as created:
        processes = [p for node in created.values() for p in node.processes()]
        raise ZeroDivisionError
    assert len(processes) == 2
    assert not any(p.is_running() for p in processes)


# Two clusters at once, of which one is killed.
HOLD = """
import sys, time
from pathlib import Path
from tests.cluster import nodes as machines
with machines.nodes(["head", "node0"], Path(sys.argv[1])) as made:
    made["head"].start(["sleep", "1000"], log=Path(sys.argv[1]) / "log")
    machines.inner(made["head"]._started[0])
    print(*(p.pid for node in made.values() for p in node.processes()), flush=True)
    time.sleep(1000)
"""


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_end_of_nodes_with_their_process(nodes, tmp_path, how):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    ) as holder:
        processes = [psutil.Process(int(pid)) for pid in holder.stdout.readline().split()]
        getattr(holder, how)()
    assert len(processes) == 3
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert alive == []
    assert nodes["node0"].run(["ssh", "head", "hostname"]).stdout == "head\n"


def test_missing_requirements(monkeypatch):
    assert machines.missing() is None
    monkeypatch.setattr(machines, "_PATH", "/nowhere")
    assert machines.missing() == (
        "not installed: iproute2, openssh-client, openssh-server, util-linux (`make cluster-setup`)"
    )
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert machines.missing() == "nodes are made by root"
    monkeypatch.undo()
    monkeypatch.setattr(machines, "_path_of", lambda name: "false" if name == "unshare" else name)
    assert machines.missing().startswith("this machine makes no namespaces")
