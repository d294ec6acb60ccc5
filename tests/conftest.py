"""Options and fixtures of all tests."""

import dataclasses
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dataloading.pipeline import gather
from runtime.logs import plots
from runtime.tensorflow_start import prepare_tensorflow
from tests import disk, no_pictures
from tests import forked_python as forked_python_server

prepare_tensorflow()
LONG_FILES = ("test_kills.py", "test_spark_runs.py")
ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser):
    parser.addoption("--write_golden", action="store_true", help="write tests/golden again")


def is_long(item) -> bool:
    """Returns whether a test should begin early, or it would leave other workers without work."""
    runs_a_page = hasattr(item, "callspec") and "part" in item.callspec.params
    return runs_a_page or item.path.name in LONG_FILES


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not is_long(item))
    for item in items:
        for mark in item.iter_markers("engines"):
            (package,) = mark.args
            if importlib.util.find_spec(package) is None:
                item.add_marker(pytest.mark.skip(f"needs {package}: run .venv-engines/bin/python"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(autouse=True)
def sigterm_handler():
    """Restores the handler of SIGTERM, which runs of several ranks ignore at their end."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture(scope="session", autouse=True)
def no_pictures_of_runs_in_this_process():
    """In new processes they are drawn: test_entry_scripts.py looks for them, and
    tests/runtime/logs/test_plots.py at them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "draw", no_pictures.touch)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """Files of tests survive killed processes, but no power failure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", disk.checked)
        yield


@pytest.fixture
def float16_on_a_cpu(monkeypatch):
    """Makes `--amp` compute in float16, as on a GPU.

    A dynamic loss scale starts so high that it overflows, and grows again after 3 steps.
    """
    from config.sections.device import read_loss_scale
    from nn.train import loss_scale
    from training import device_setup

    original = device_setup.set_up

    def set_up(flags, *args):
        place = original(flags, *args)
        scale = read_loss_scale(flags.loss_scale)
        return dataclasses.replace(place, compute_dtype="float16", loss_scale=scale)

    monkeypatch.setattr(device_setup, "set_up", set_up)
    monkeypatch.setattr(loss_scale, "INITIAL_SCALE", 2.0**27)
    monkeypatch.setattr(loss_scale, "GROWTH_STEPS", 3)


@pytest.fixture(params=["compiled", "plain"])
def implementation(request, monkeypatch) -> str:
    """Loaders with the functions of dataloading-kernels, and without them."""
    if request.param == "plain":
        monkeypatch.setattr(gather, "compiled", lambda name: None)
    elif gather.compiled("gather") is None:
        pytest.skip("dataloading-kernels is not installed: run `make op`")
    return request.param


@pytest.fixture(scope="session")
def torch():
    """PyTorch, which is optional."""
    return pytest.importorskip("torch", reason="needs torch (pip install torch==2.13.0)")


@pytest.fixture(scope="session")
def criteo_rows() -> Path:
    """The first 10,000 rows of the Criteo Kaggle log, which may not be part of the repository."""
    path = ROOT.parent / "shared/data/criteo_kaggle/train_10000.txt"
    if not path.exists():
        pytest.skip(f"the real Criteo rows are not there: {path}")
    return path


@pytest.fixture(scope="session")
def mpi() -> None:
    """Skips where mpirun is absent or Horovod cannot use it."""
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is not there (Debian: apt-get install libopenmpi-dev openmpi-bin)")
    import horovod.tensorflow as hvd

    if not hvd.mpi_built():
        pytest.skip("Horovod was built without MPI; install it and run `make -B setup`")


@pytest.fixture(scope="session")
def forked_python(tmp_path_factory):
    """Socket of the server that runs programs (tests/forked_python.py)."""
    path = tmp_path_factory.mktemp("python") / "socket"
    with forked_python_server.running(path):
        yield path


@pytest.fixture(scope="session")
def run_script(request, tmp_path_factory):
    """Runs `python ARGS...` in the repository, as a user would; returns the completed process.

    Scripts and modules run in processes forked from one that has imported TensorFlow; pictures of
    runs are then empty files. With `env`, also an empty one, a new process starts.
    """

    def run(*args, cwd=ROOT, env=None, timeout=300) -> subprocess.CompletedProcess:
        words = [*map(str, args)]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **(env or {})}
        if words[0] != "-c" and env is None:
            socket = request.getfixturevalue("forked_python")
            return run_forked(socket, words, str(cwd), environment, timeout)
        return subprocess.run(
            [sys.executable, *words],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


def run_forked(socket, words, folder, environment, timeout) -> subprocess.CompletedProcess:
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        with open(os.devnull) as nothing:
            streams = [nothing.fileno(), output.fileno(), errors.fileno()]
            program = forked_python_server.Program(socket, words, folder, environment, streams)
        try:
            status = program.wait(timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired(words, timeout) from None
        finally:
            program.close()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(words, status, output.read(), errors.read())


@pytest.fixture(scope="session")
def rows(tmp_path_factory) -> Path:
    """5,300 training rows and 1,001 each of validation and test: the last batches are short."""
    from dataloading.synthetic.dataset import synthetic_spec, write_dataset

    folder, num_samples = tmp_path_factory.mktemp("rows"), {"validation": 1001, "test": 1001}
    write_dataset(folder, synthetic_spec([1000, 700, 50, 9, 3]), {"train": 5300, **num_samples})
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """1,000 training rows, 300 validation and 200 test rows of 5 features on the disk."""
    from dataloading.synthetic.dataset import synthetic_spec, write_dataset

    folder, num_samples = tmp_path_factory.mktemp("tiny"), {"validation": 300, "test": 200}
    spec = synthetic_spec([10, 20, 5], num_numerical=2)
    write_dataset(folder, spec, {"train": 1000, **num_samples})
    return folder
