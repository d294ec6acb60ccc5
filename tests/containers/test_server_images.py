"""The Dockerfiles of servers for GPU backends, which were not built."""

import re
from pathlib import Path

import pytest

from tests.containers import dockerfile

FOLDERS = ("deployment/tf", "deployment/hps")


@pytest.fixture(params=FOLDERS)
def folder(request, root) -> Path:
    return root / request.param


@pytest.fixture
def file(folder):
    return dockerfile.read(folder / "Dockerfile")


def test_image_of_the_reference(folder, file, root):
    """The containers that the page of the backends names."""
    (stage,) = file.stages
    name = {"tf": "tensorflow", "hps": "hps"}[folder.name]
    page = (root / "docs/reference/deployment.md").read_text()
    (row,) = re.findall(rf"^\| `{name}` \|.*$", page, re.MULTILINE)
    assert re.search(r":\d+\.\d+", stage.image) and f"`{stage.image}`" in row


def test_context(folder, file):
    """All that is copied is next to the file, where the original's command builds."""
    for copy in file.instructions("COPY"):
        *sources, _ = copy.words()
        assert all((folder / source).is_file() for source in sources), copy


def test_packages(root):
    pins = re.findall(
        r"^\w+==.*$", (root / "deployment/tf/packages.lock").read_text(), re.MULTILINE
    )
    served = (root / "requirements/serve.lock").read_text().splitlines()
    assert pins and all(any(line.startswith(pin) for line in served) for pin in pins)
    assert any(pin.startswith("numpy==1.") for pin in pins), "Triton's Python backend needs it"


@pytest.mark.parametrize("folder", FOLDERS)
def test_command_on_the_page(folder, root):
    page = (root / "docs/how_to/serve.md").read_text()
    assert re.search(rf"^docker build -t \w+ {folder}$", page, re.MULTILINE)
    assert "not been built" in page
