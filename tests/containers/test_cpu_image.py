"""Dockerfile.cpu, carried out line by line without an engine, and what runs in it.

Debian's own Python replaces python:3.11-slim (see Dockerfile.python). Root alone; takes
10 minutes and, below pytest's folder, 8 GB that are removed at the end.
"""

import os
import shutil
import subprocess

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import setup_environment
from tests.containers import dockerfile
from tests.containers.build_network import Network
from tests.containers.image_builder import Builder, Image, run

pytestmark = pytest.mark.long

DEBIAN_SOURCES = "/etc/apt/sources.list.d/debian.sources"
TRAINING = [
    *("dlrm.py", "--dataset_path", "/data/demo", "--run_dir", "/data/run", "--batch_size", "256"),
    "--preset=terabyte",
    *("--embedding_dim", "8", "--bottom_mlp_dims", "16,8", "--top_mlp_dims", "16,1"),
    *("--max_steps", "5", "--print_freq", "2", "--seed", "1"),
]


def missing() -> str:
    """Returns the reason why this machine cannot build, or an empty text."""
    if os.geteuid():
        return "root is needed, to mount and chroot"
    programs = [name for name in ("debootstrap", "unshare", "chroot") if not shutil.which(name)]
    if programs:
        return (
            f"{programs} not found; install them (Debian: apt-get install debootstrap util-linux)"
        )
    if not os.path.exists(DEBIAN_SOURCES):
        return f"{DEBIAN_SOURCES}, the list of Debian's package sources, does not exist"
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True,
        check=False,
    )
    return "mounting is not allowed here" if tried.returncode else ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Removed at the end: pytest itself would keep the last three."""
    path = tmp_path_factory.mktemp("image")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def builder(folder, root):
    """Has the stand-in for the Python image."""
    if why := missing():
        pytest.skip(why)
    debian = folder / "bookworm"
    done = subprocess.run(
        ["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", debian],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    (debian / "etc/apt/sources.list").unlink()
    shutil.copy(DEBIAN_SOURCES, debian / "etc/apt/sources.list.d/")
    for kept in (debian / "var/cache/apt/archives").glob("*.deb"):
        kept.unlink()
    (debian / "etc/resolv.conf").touch()
    # As in Docker's images of Debian: what apt has downloaded, and its binary indexes, do not stay.
    (debian / "etc/apt/apt.conf.d/docker-clean").write_text(
        'APT::Keep-Downloaded-Packages "false";\n'
        'Dir::Cache::pkgcache "";\nDir::Cache::srcpkgcache "";\n'
        'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };\n'
    )

    network = Network(folder / "network")
    folders = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    plain = Image((debian,), {"PATH": folders})
    stand_in = dockerfile.read(root / "tests/containers/Dockerfile.python")
    python = Builder(folder / "python", root, {"bookworm": plain}, network).build(
        stand_in, stand_in.stages[-1]
    )
    file = dockerfile.read(root / "Dockerfile.cpu")
    return Builder(folder / "cpu", root, {file.arguments["PYTHON_IMAGE"]: python}, network)


@pytest.fixture(scope="module")
def image(builder, root):
    file = dockerfile.read(root / "Dockerfile.cpu")
    return builder.build(file, file.stages[-1])


@pytest.fixture(scope="module")
def data(image, folder):
    """A volume that belongs to the image's user, with generated clicks."""
    volume = folder / "data"
    volume.mkdir()
    os.chown(volume, 1000, 1000)
    generate = ["python", "-m", "dataloading.synthetic", "--output", "/data/demo", "--rows", "5000"]
    status, output = run(image, folder / "generate", generate, {volume: "/data"})
    assert status == 0, output
    return volume


def test_default_command(image, tmp_path):
    status, output = run(image, tmp_path / "help")
    assert status == 0 and "--dataset_path" in output


def test_remains_of_the_build(image, tmp_path):
    commands = (
        "id -u; ! command -v gcc g++ cc mpicxx nvcc; ! touch dlrm.py x 2>&1; touch runs/x data/x; "
        "! ls -A /var/lib/apt/lists | grep -v partial; ! ls /wheels/*; ! ls -d .git .venv-torch; "
        "ls -A .venv-serve; env"
    )
    status, output = run(image, tmp_path / "look", ["bash", "-uc", commands])
    assert status == 0 and output.startswith("1000\n")
    assert "cannot touch 'runs" not in output and "cannot touch 'dlrm.py'" in output
    # The settings by which this machine reaches the index.
    assert "PIP_" not in output and "certificates.crt" not in output
    for layer in image.layers[1:]:
        assert not list(layer.glob("run/*")) and not list(layer.glob("root/.cache/*"))


def test_programs_that_jobs_call(image, tmp_path):
    programs = "command -v make && command -v mpirun && command -v ssh && numactl --show"
    status, output = run(image, tmp_path / "programs", ["bash", "-c", programs])
    assert status == 0 and "policy: default" in output, output


def test_packages(image, tmp_path, root):
    argv = ["python", "-m", "pip", "list", "--format=freeze"]
    status, output = run(image, tmp_path / "list", argv)
    pins = map(Requirement, setup_environment.lines_of(root / "requirements/base.lock"))
    names = {
        canonicalize_name(pin.name): str(pin.specifier)[2:]
        for pin in pins
        if pin.marker is None or pin.marker.evaluate({"python_full_version": "3.11.13"})
    }
    installed = {
        line.partition("==")[0].lower().replace("_", "-"): line.partition("==")[2]
        for line in output.splitlines()
        if "==" in line
    }
    own = {
        "horovod",
        "tensorflow-dot-based-interact",
        "distributed-embeddings-kernels",
        "dataloading-kernels",
        "pip",
        "setuptools",
        "wheel",
    }
    assert (
        status == 0
        and names.items() <= installed.items()
        and installed.keys() - names.keys() <= own
    )
    assert installed["horovod"] == "0.28.1+stall"


@pytest.mark.parametrize(
    "launcher", ["python", "horovodrun -np 2 python", "mpirun --oversubscribe -np 2 python"]
)
def test_training(image, data, tmp_path, launcher):
    argv = [*launcher.split(), *TRAINING]
    status, output = run(image, tmp_path / "run", argv, {data: "/data"})
    assert status == 0 and "epoch 0 step 5/5  auc" in output and "interaction dot_custom" in output


@pytest.mark.parametrize("user", ["1000", "4242"])
def test_training_in_a_read_only_image(image, data, tmp_path, user):
    """Only /data is written, as with enroot and `docker run --read-only --user`."""
    subprocess.run(["chown", "-R", user, data], check=True)
    try:
        status, output = run(
            image, tmp_path / "run", ["python", *TRAINING], {data: "/data"}, user, read_only=True
        )
    finally:
        subprocess.run(["chown", "-R", "1000", data], check=True)
    assert status == 0 and "epoch 0 step 5/5  auc" in output


def test_make_demo(image, tmp_path):
    status, output = run(image, tmp_path / "make", ["make", "--dry-run", "demo"])
    assert status == 0 and "dataloading.synthetic" in output
    assert not any(
        word in output for word in ("pip", "setup_environment", "install.sh", "horovod.sh")
    )


@pytest.mark.parametrize(
    ("stage", "command"),
    [
        ("engines-yes", ".venv-engines/bin/python -c 'import pyspark, nvtabular'"),
        ("serving-yes", "test -x .venv-serve/triton/backends/python/triton_python_backend_stub"),
        ("runtime-yes", "java -version"),
    ],
)
def test_parts_on_request(builder, image, root, tmp_path, stage, command):
    """The stages of ENGINES=yes and SERVING=yes, which the image shares with them."""
    file = dockerfile.read(root / "Dockerfile.cpu", {"ENGINES": "yes", "SERVING": "yes"})
    built = builder.build(file, file.stage(stage))
    status, output = run(built, tmp_path / "run", ["bash", "-c", command])
    assert status == 0, output
