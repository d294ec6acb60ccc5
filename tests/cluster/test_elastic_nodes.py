"""A machine is lost while three train together, and comes back (`--elastic`)."""

import contextlib
import re
import time

import psutil
import pytest

from runtime.checkpoint import Folder
from runtime.checkpoint.reader import verify
from tests.cluster.nodes import ROOT
from tests.cluster.test_ssh_launchers import kill_trainings, program
from tests.ranks.conftest import gloo_command

# Settings that docs/how_to/elastic.md recommends, with shorter times.
SSH = "ServerAliveInterval 1\nServerAliveCountMax 3\n"


@pytest.fixture
def watchful_ssh(nodes, cluster_folder):
    """ssh ends when the other machine is silent."""
    settings = cluster_folder / "ssh/ssh_config"
    before = settings.read_text()
    settings.write_text(before + SSH)
    yield
    settings.write_text(before)


def node_of(nodes, rank):
    """The machine on which a rank runs: horovodrun takes them in any order."""
    for node in nodes.values():
        for process in node.processes():
            with contextlib.suppress(psutil.Error):  # it ends just now
                words, variables = process.cmdline(), process.environ()
                if str(ROOT / "dlrm.py") in words and variables.get("HOROVOD_RANK") == str(rank):
                    return node
    raise AssertionError(f"rank {rank} does not run")


# Reports of the other ranks about a lost one. Rank 0 knows the machines of all ranks; the loss of
# rank 0 takes more than a minute.
UNREACHABLE = "no answer: its process is frozen, or its machine is unreachable"
GONE = [
    (1, rf"{{machine}}, pid \d+, {UNREACHABLE}"),
    pytest.param(0, UNREACHABLE, marks=pytest.mark.long),
]


@pytest.mark.long
@pytest.mark.parametrize(("rank", "gone"), GONE, ids=[1, 0])
def test_lost_and_returned_machine(nodes, watchful_ssh, rows, variables, tmp_path, rank, gone):
    """3 ranks, then 2, then 3; each time training resumes from the newest checkpoint."""
    hosts, log = tmp_path / "hosts.txt", tmp_path / "output.txt"
    hosts.write_text("node0:1\nnode1:1\nnode2:1\n")
    script = f"'{ROOT}/runtime/host_discovery.sh' '{hosts}'"
    command = [*gloo_command(), "-np", 3, "--min-np", 2, "--max-np", 3]
    command += ["--network-interfaces", "eth0", "--blacklist-cooldown-range", 1, 2]
    command += ["--host-discovery-script", script]
    flags = ("--epochs", 10**6, "--print_freq", 1000, "--checkpoint_every", 9)
    flags += ("--elastic", "--resume", "auto", "--rank_timeout_s", 10)
    command += program(rows, tmp_path, *flags)
    variables |= {"PYTHONPATH": str(ROOT), "HOROVOD_GLOO_TIMEOUT_SECONDS": "10"}

    process = nodes["head"].start(command, log=log, env=variables)

    def wait_for(pattern):
        deadline = time.monotonic() + 240
        while not (result := re.search(pattern, log.read_text())):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        return result

    try:
        wait_for("saved ")
        wait_for("epoch 1 ")
        lost = node_of(nodes, rank)
        lost.unplug()
        missed = rf"rank {rank} did not come to a collective within 10 seconds "
        missed += r"\(--rank_timeout_s\): " + gone.format(machine=lost.name)
        wait_for(rf"elastic: restart \d: .*{missed}.*; ranks now: 2\n")
        first = int(wait_for(r"resumed \S+ at step (\d+)").group(1))
        lost.plug_in()
        text = r"elastic: restart \d: stopped by horovodrun: hosts came or went; ranks now: 3\n"
        wait_for(text)
        second = int(wait_for(rf"{text}(?s:.*)resumed \S+ at step (\d+)").group(1))
        wait_for(rf"{text}(?s:.*)saved ")
    finally:
        process.kill()
        for node in nodes.values():
            node.plug_in()
        kill_trainings(nodes)
    assert second >= first >= 9
    last = Folder(tmp_path / "model").newest()
    assert last.step > second
    assert [fault for _, fault in verify(last.path) if fault] == []
