"""One cluster for all tests: a head and three nodes, with sshd on each."""

from pathlib import Path

import pytest

from tests.cluster import nodes as machines
from tests.cluster import slurm as scheduler
from tests.ranks import recipe_worker
from tests.ranks.test_entry_scripts import training

NAMES = ("head", "node0", "node1", "node2")
# One thread for each rank, which has steps of some milliseconds.
VARIABLES = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "HOROVOD_CYCLE_TIME": "1",
}


@pytest.fixture(scope="session")
def cluster_folder(tmp_path_factory) -> Path:
    """Folder that only the cluster's own parts write to."""
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="session")
def nodes(cluster_folder, tmp_path_factory):
    """The machines by their names; they see the folders of all tests under their paths."""
    if reason := machines.missing():
        pytest.skip(reason)
    with machines.nodes(NAMES, cluster_folder, shared=[tmp_path_factory.getbasetemp()]) as created:
        etc = machines.write_keys(cluster_folder)
        for node in created.values():
            machines.start_sshd(node, etc)
        yield created


@pytest.fixture(scope="session")
def slurm(nodes, tmp_path_factory):
    """SLURM on all machines but the head, which has its controller."""
    if reason := scheduler.missing():
        pytest.skip(reason)
    with scheduler.slurm(nodes, tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def one_process(rows, tmp_path_factory) -> Path:
    """The folder of `tests.ranks.test_entry_scripts.training` by one process, to compare with."""
    folder = tmp_path_factory.mktemp("one")
    command = list(map(str, training(rows, folder)))
    code, output = recipe_worker.run_all({"train": command}, "0")["train"]
    assert code == 0, output
    return folder


@pytest.fixture
def variables(tmp_path) -> dict[str, str]:
    """Environment of a launcher; Horovod stores facts about machines in the home folder."""
    (tmp_path / "home").mkdir()
    return {**VARIABLES, "HOME": str(tmp_path / "home")}
