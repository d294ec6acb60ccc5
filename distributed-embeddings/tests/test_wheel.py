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


@pytest.fixture
def run_outside(installed, run_script, tmp_path, monkeypatch):
    """Runs a program on the installed wheel, in another folder; returns its output."""
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)  # programs do not select Keras 2
    paths = filter(None, [str(installed), os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": os.pathsep.join(paths)}

    def run(*args):
        done = run_script(*args, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


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
def test_imports_without_optional_packages(installed, run_outside):
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
    assert str(installed) in run_outside("-c", program)


def test_quick_start_outside_the_repository(run_outside):
    output = run_outside(PACKAGE / "examples/quick_start.py")
    first, *_, last = map(float, re.findall(r"^step \d+: loss ([\d.]+)$", output, re.MULTILINE))
    assert last < 0.1 < first
