"""The wheel: its content and metadata, and programs on it outside the repository."""

import email
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Wheel of a copy of the package, in which nothing has been built before."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("build", "artifacts", "*.egg-info", "__pycache__")
    shutil.copytree(PACKAGE, folder / "source", ignore=ignored)
    command = ["make", "-C", folder / "source", "pip_pkg", f"PYTHON={sys.executable}"]
    subprocess.run(command, check=True)
    (path,) = (folder / "source/artifacts").iterdir()
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """Folder that the wheel is installed into."""
    folder = tmp_path_factory.mktemp("installed")
    options = ["--quiet", "--no-deps", "--no-index", "--target", folder]
    subprocess.run([*PIP, "install", *options, wheel], check=True)
    return folder


def run_outside(installed: Path, folder: Path, *args) -> str:
    """Runs a program on the installed wheel; returns its output."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment.pop("TF_USE_LEGACY_KERAS", None)  # programs do not select Keras 2
    paths = [str(installed), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    done = subprocess.run(
        [sys.executable, *args],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_content(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    packaged = {name for name in names if ".dist-info/" not in name}
    source = PACKAGE / "distributed_embeddings"
    modules = {str(path.relative_to(PACKAGE)) for path in source.rglob("*.py")}
    assert packaged == {*modules, "distributed_embeddings/py.typed"}
    assert wheel.name.endswith("-py3-none-any.whl")


def test_metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    assert metadata["Name"] == "distributed-embeddings"
    assert f"-{metadata['Version']}-" in wheel.name
    required = [text for text in metadata.get_all("Requires-Dist") if "extra ==" not in text]
    assert sorted(text.split(">")[0] for text in required) == ["numpy", "tensorflow", "tf-keras"]
    assert set(metadata.get_all("Provides-Extra")) == {"horovod", "test"}
    assert metadata.get_payload().startswith("# distributed-embeddings")


@pytest.mark.long
def test_imports_without_optional_packages(installed, tmp_path):
    """Nothing needs hypothesis or Horovod to be imported."""
    program = """
import importlib, pkgutil, sys
sys.modules.update(hypothesis=None, horovod=None)
import distributed_embeddings
assert "tensorflow" not in sys.modules
for module in pkgutil.walk_packages(distributed_embeddings.__path__, "distributed_embeddings."):
    importlib.import_module(module.name)
print(distributed_embeddings.__file__)
"""
    assert str(installed) in run_outside(installed, tmp_path, "-c", program)


def test_quick_start_outside_the_repository(installed, tmp_path):
    shutil.copy(PACKAGE / "examples/quick_start.py", tmp_path)
    output = run_outside(installed, tmp_path, "quick_start.py")
    first, *_, last = map(float, re.findall(r"^step \d+: loss ([\d.]+)$", output, re.MULTILINE))
    assert last < 0.1 < first
