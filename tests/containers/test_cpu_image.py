"""Dockerfile.cpu built by Docker, and what runs in its image."""

import shutil
import subprocess

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import setup_environment

pytestmark = pytest.mark.long

IMAGE = "recommenders:test"
TRAINING = [
    *("dlrm.py", "--dataset_path", "/data/demo", "--run_dir", "/data/run", "--batch_size", "256"),
    "--preset=terabyte",
    *("--embedding_dim", "8", "--bottom_mlp_dims", "16,8", "--top_mlp_dims", "16,1"),
    *("--max_steps", "5", "--print_freq", "2", "--seed", "1"),
]
OWN = {
    *("horovod", "tensorflow-dot-based-interact", "distributed-embeddings-kernels"),
    *("dataloading-kernels", "pip", "setuptools", "wheel"),
}


def docker(*arguments) -> tuple[int, str]:
    """Returns exit status and output of a command of Docker."""
    done = subprocess.run(
        ["docker", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def run(*command, flags=()) -> tuple[int, str]:
    """Runs a command in the image."""
    return docker("run", "--rm", "--init", *flags, IMAGE, *command)


@pytest.fixture(scope="module", autouse=True)
def image(root):
    if shutil.which("docker") is None or docker("info")[0]:
        pytest.skip("there is no Docker that answers")
    status, output = docker("build", "-f", root / "Dockerfile.cpu", "-t", IMAGE, root)
    assert status == 0, output[-4000:]


@pytest.fixture(scope="module")
def volume():
    """Flags of a volume that belongs to the image's user, with generated clicks."""
    name = docker("volume", "create")[1].strip()
    flags = ("--volume", f"{name}:/data")
    generate = ("python", "-m", "dataloading.synthetic", "--output", "/data/demo", "--rows", "5000")
    status, output = run(*generate, flags=flags)
    assert status == 0, output
    yield flags
    docker("volume", "rm", name)


def test_default_command():
    status, output = run()
    assert status == 0 and "--dataset_path" in output


def test_remains_of_the_build():
    commands = (
        "id -u; ! command -v gcc g++ cc mpicxx nvcc; ! touch dlrm.py x 2>&1; touch runs/x data/x; "
        "! ls -A /var/lib/apt/lists | grep -v partial; ! ls /wheels/*; ! ls -d .git .venv-torch; "
        "ls -A .venv-serve; env"
    )
    status, output = run("bash", "-uc", commands)
    assert status == 0 and output.startswith("1000\n")
    assert "cannot touch 'runs" not in output and "cannot touch 'dlrm.py'" in output
    assert "PIP_" not in output, "the settings by which this machine reaches the index"


def test_programs_that_jobs_call():
    programs = "command -v make && command -v mpirun && command -v ssh && numactl --show"
    status, output = run("bash", "-c", programs)
    assert status == 0 and "policy: default" in output, output


def test_packages(root):
    status, output = run("python", "-m", "pip", "list", "--format=freeze")
    pins = map(Requirement, setup_environment.lines_of(root / "requirements/base.lock"))
    names = {
        canonicalize_name(pin.name): str(pin.specifier)[2:]
        for pin in pins
        if pin.marker is None or pin.marker.evaluate({"python_full_version": "3.11.13"})
    }
    lines = (line.partition("==") for line in output.splitlines() if "==" in line)
    installed = {canonicalize_name(name): version for name, _, version in lines}
    assert status == 0 and names.items() <= installed.items()
    assert installed.keys() - names.keys() <= OWN
    assert installed["horovod"] == "0.28.1+stall"


@pytest.mark.parametrize(
    "launcher", ["python", "horovodrun -np 2 python", "mpirun --oversubscribe -np 2 python"]
)
def test_training(volume, launcher):
    status, output = run(*launcher.split(), *TRAINING, flags=volume)
    assert status == 0 and "epoch 0 step 5/5  auc" in output and "interaction dot_custom" in output


@pytest.mark.parametrize("user", ["1000", "4242"])
def test_training_in_a_read_only_image(volume, user):
    """Only /data is written, as with enroot and `docker run --read-only --user`."""
    assert run("chmod", "-R", "a+rwX", "/data", flags=(*volume, "--user=0"))[0] == 0
    flags = (*volume, "--read-only", f"--user={user}")
    status, output = run("python", *TRAINING, flags=flags)
    assert status == 0 and "epoch 0 step 5/5  auc" in output


def test_make_demo():
    status, output = run("make", "--dry-run", "demo")
    assert status == 0 and "dataloading.synthetic" in output
    assert not any(w in output for w in ("pip", "setup_environment", "install.sh", "horovod.sh"))


@pytest.mark.parametrize(
    ("stage", "command"),
    [
        ("engines-yes", ".venv-engines/bin/python -c 'import pyspark, nvtabular'"),
        ("serving-yes", "test -x .venv-serve/triton/backends/python/triton_python_backend_stub"),
        ("runtime-yes", "java -version"),
    ],
)
def test_parts_on_request(root, stage, command):
    """The stages of ENGINES=yes and SERVING=yes, which the image shares with them."""
    parts = ("--build-arg", "ENGINES=yes", "--build-arg", "SERVING=yes", "--target", stage)
    status, output = docker("build", "-f", root / "Dockerfile.cpu", *parts, "-q", root)
    assert status == 0, output[-4000:]
    status, output = docker("run", "--rm", output.split()[-1], "bash", "-c", command)
    assert status == 0, output
