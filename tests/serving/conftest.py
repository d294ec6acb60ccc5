"""One Triton server with all models of these tests: trained, deployed and started once."""

import os
import shutil
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from deployment.serve.server import Server
from deployment.serve.serving_environment import ENVIRONMENT
from deployment.serving import checksums
from deployment.serving import interface as interfaces
from tests.deployment.conftest import (  # noqa: F401
    ncf_of_ratings,
    sim_of_events,
    trained_dcnv2,
    trained_dlrm,
    trained_ncf,
    trained_sim,
)
from tests.deployment.trained import TrainedFixture

# The table of `shared_table`: its sizes, and its number of instances.
BIG_ROWS, BIG_DIM, BIG_INSTANCES = 6_500_000, 8, 2
# The time that an idle `dlrm_patient` waits for more requests.
PATIENCE_US = 700_000


class Served(NamedTuple):
    """A model of the server.

    trained: the trained model that was deployed.
    arrays: the rows of the split `test` as a request.
    expected: scores of `--mode predict` for these rows, float32 [rows, 1].
    """

    trained: TrainedFixture
    arrays: dict[str, np.ndarray]
    expected: np.ndarray

    def rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Some of the rows."""
        return {name: array[start:stop] for name, array in self.arrays.items()}


# Files with servers of their own; a worker of pytest-xdist has all others, and `trained` once.
OWN_SERVERS = ("equal_scores", "exposure", "original_ids", "server")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Each of these files is run by any worker."""
    from xdist.scheduler import LoadFileScheduling

    class OneServer(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            name = Path(file).stem.removeprefix("test_")
            return file if name in OWN_SERVERS else "one server"

    return OneServer(config, log)


@pytest.fixture(scope="session")
def trained(request) -> dict[str, TrainedFixture]:
    """The models by recipe."""
    if not (ENVIRONMENT / "installed").exists():
        pytest.skip("there is no serving environment: run `make serve-setup`")
    names = ("dlrm", "dcnv2", "sim", "ncf")
    return {name: request.getfixturevalue(f"trained_{name}") for name in names}


@pytest.fixture(scope="session")
def repository(trained, tmp_path_factory) -> Path:
    """Ensembles of dlrm and dcnv2, monolithic models of both (`_mono`), and others.

    `dlrm_patient` and `dlrm_patient_mono` run together what is sent together, though they are fast.
    """
    folder = tmp_path_factory.mktemp("repository")

    def add(recipe, *flags):
        assert trained[recipe].deploy(folder, *flags) == 0

    for recipe in ("dlrm", "dcnv2"):
        add(recipe)
        add(recipe, "--monolithic", f"--model_name={recipe}_mono")
    patient = f"--max_queue_delay_us={PATIENCE_US}"
    add("dlrm", patient, "--model_name=dlrm_patient")
    add("dlrm", patient, "--model_name=dlrm_patient_mono", "--monolithic")
    add("dlrm", "--monolithic", "--model_name=dlrm_int8", "--quantize_tables=int8")
    add("sim", "--monolithic")
    add("ncf", "--monolithic")
    add("dlrm", "--monolithic", "--model_name=dlrm_big", f"--instances={BIG_INSTANCES}")
    enlarge(folder / "dlrm_big/1")
    return folder


def enlarge(folder: Path) -> None:
    """Gives a deployed model one table of 208 MB of zeros, in place of the rows of its last one."""
    interface = interfaces.read(folder)
    table = interface.tables[-1]._replace(rows=BIG_ROWS, file="big.npy", first_row=0)
    feature = interface.features[-1]._replace(cardinality=BIG_ROWS)
    changed = {"tables": (*interface.tables[:-1], table)}
    changed["features"] = (*interface.features[:-1], feature)
    interfaces.write(interface._replace(**changed), folder)
    rows = np.lib.format.open_memmap(
        folder / interfaces.TABLES_FOLDER / "big.npy", "w+", np.float32, (BIG_ROWS, BIG_DIM)
    )
    rows.flush()
    checksums.write(folder)


@pytest.fixture(scope="session")
def server(repository, tmp_path_factory):
    """The server; a test that ends it starts it again."""
    server = Server(repository, tmp_path_factory.mktemp("server") / "log")
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def served(trained, tmp_path_factory) -> dict[str, Served]:
    """Requests and their expected scores, by recipe."""
    result = {}
    for name, model in trained.items():
        scores = model.scores(tmp_path_factory.mktemp("predict"))
        result[name] = Served(model, model.requests()[0], scores[:, None])
    return result


@pytest.fixture
def small_repository(tmp_path) -> Path:
    """A model `sums` in some lines of Python, whose scores are the sums of `x`, int32 [2]."""
    folder = tmp_path / "a small one/sums"
    (folder / "1").mkdir(parents=True)
    source = Path(__file__).parent
    shutil.copy(source / "sums_model.py", folder / "1/model.py")
    shutil.copy(source / "sums_config.pbtxt", folder / "config.pbtxt")
    return folder.parent


def have_ended(*pids: int, timeout_s: float = 30.0) -> bool:
    """Returns whether all processes have ended.

    Waits for those that are ending: a process that was killed is there until its memory is freed.
    """
    deadline = time.monotonic() + timeout_s
    while any(map(is_running, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def is_running(pid: int) -> bool:
    """Returns whether a process runs: it exists and is not a zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return status != "Z" and os.path.exists(f"/proc/{pid}")
