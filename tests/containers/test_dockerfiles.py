"""The Dockerfiles: files that they copy, versions that they pin, and their page."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import setup_environment
from tests.containers import dockerfile
from tests.containers.dockerignore import Ignored, context

FILES = ("Dockerfile", "Dockerfile.cuda", "Dockerfile_spark", "Dockerfile.cpu")
SERVERS = ("deployment/tf/Dockerfile", "deployment/hps/Dockerfile")


@pytest.fixture(params=FILES)
def name(request):
    return request.param


@pytest.fixture
def file(name, root):
    return dockerfile.read(root / name)


def versions(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==([\w.+-]+)", path.read_text(), re.MULTILINE))


def test_copied_files(file, root):
    files = context(root)
    for copy in file.instructions("COPY"):
        *sources, _ = copy.words()
        for source in sources:
            if copy.flag("from"):
                assert file.stage(copy.flag("from")), copy
            else:
                assert any(Path(f).is_relative_to(source) for f in files), copy
    for run in file.instructions("RUN"):
        assert all(file.stage(m["from"]) for m in run.mounts() if m["type"] == "bind")


def lineage_runs(file) -> list[str]:
    """The RUNs of the last stage and of those that it is made from."""
    stage, texts = file.stages[-1], []
    while stage:
        texts += [i.text for i in stage.instructions if i.keyword == "RUN"]
        stage = file.stage(stage.image)
    return texts


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda", "Dockerfile_spark"])
def test_working_folders_of_nvidia(name, file):
    """Each is a link to the folder with the recipe's scripts."""
    (run,) = (run for run in lineage_runs(file) if "ln -s" in run)
    (command,) = (part.strip() for part in run.split("&&") if "ln -s" in part)
    folders = re.search(r"for folder in (.*?);", command)[1].split()
    assert 'ln -s "/workspace/recommenders/original/${folder##*/}"' in command
    assert {"/dlrm", "/workspace/dlrm"} <= set(folders)
    if name != "Dockerfile_spark":
        assert set(folders) == {
            "/dlrm",
            "/sim",
            "/workspace/dlrm",
            "/workspace/sim",
            "/workspace/ncf",
        }


@pytest.mark.parametrize("name", [*FILES, *SERVERS])
def test_hadolint(name, root):
    program = Path(sys.executable).with_name("hadolint")
    result = subprocess.run([program, root / name], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_python_of_the_cpu_image(root):
    """One for which all environments of the image have a lock."""
    image = dockerfile.read(root / "Dockerfile.cpu").arguments["PYTHON_IMAGE"]
    version = tuple(
        map(int, re.fullmatch(r"python:(\d+)\.(\d+)\.\d+-slim-bookworm", image).groups())
    )
    for lock in ("base", "serve"):
        assert version in setup_environment.supported_versions(root / f"requirements/{lock}.lock")


def test_versions_of_the_locks(root):
    """Packages added to NVIDIA's TensorFlow 2.15 have the versions of `make test-floor`."""
    ngc = versions(root / "requirements/ngc.lock")
    floor = {canonicalize_name(k): v for k, v in versions(root / "requirements/floor.lock").items()}
    assert all(floor[canonicalize_name(name)] == version for name, version in ngc.items())
    assert not {"tensorflow-cpu", "tensorflow", "numpy", "horovod", "keras"} & ngc.keys()


def test_versions_of_the_spark_lock(root):
    """Versions of .venv-engines for Python 3.10, that of the container."""
    lines = setup_environment.lines_of(root / "requirements/engines.lock")
    pins = [Requirement(line) for line in lines]
    marked = {"python_full_version": "3.10.12"}
    pins = [pin for pin in pins if pin.marker is None or pin.marker.evaluate(marked)]
    engines = {(pin.name, str(pin.specifier)) for pin in pins}
    spark = versions(root / "requirements/spark.lock")
    assert {(name.lower(), f"=={version}") for name, version in spark.items()} <= engines


def test_dockerignore_and_gitignore(root):
    def listed(*how):
        done = subprocess.run(["git", "ls-files", *how], cwd=root, capture_output=True, text=True)
        return [name for name in done.stdout.splitlines() if (root / name).exists()]

    ignored = Ignored((root / ".dockerignore").read_text())
    assert not any(pattern.startswith("!") for pattern in ignored.patterns)
    tracked = listed()
    assert tracked and not [name for name in tracked if ignored(name)]
    never = listed("--others", "--ignored", "--exclude-standard", "--directory")
    assert not [name for name in never if not ignored(name.rstrip("/"))]


def test_arguments_on_the_page(root):
    page = (root / "docs/how_to/containers.md").read_text()
    arguments = {}
    for name in FILES:
        declared = re.findall(r"^ARG (\w+)", (root / name).read_text(), re.MULTILINE)
        arguments[name] = set(declared)
        for argument in declared:
            assert f"`{argument}`" in page, (name, argument)
    for command in re.findall(r"^docker build .*(?:\\\n.*)*", page, re.MULTILINE):
        name = re.search(r"(?:-f|--file) (\S+)", command)
        build_arguments = re.findall(r"--build-arg (\w+)=", command)
        assert set(build_arguments) <= arguments[name[1] if name else "Dockerfile"], command


def test_trainings_on_the_page(root):
    """Process 1 ignores SIGTERM until it has a handler, and Docker waits for 10 seconds only."""
    page = re.sub(r"\\\n *", "", (root / "docs/how_to/containers.md").read_text())
    commands = [line for line in page.splitlines() if line.startswith("docker run ")]
    trainings = [line for line in commands if "dlrm.py" in line]
    assert len(trainings) >= 4
    for command in commands:
        assert (" --init " in command) or command == "docker run --rm recommenders:cpu", command
    for command in trainings:
        assert " --stop-timeout 300 " in command, command
