"""Scripts that only the images run, with stand-ins for what they call."""

import json
import os
import re
import shutil
import subprocess

import pytest

# Lists the packages of a file next to it, "installs" by adding to the list, makes a copy of itself.
PYTHON = """#!/bin/bash
list=$(dirname "$0")/packages
case "$*" in
*" list "*) cat "$list" ;;
*"-m venv --system-site-packages --without-pip .venv")
  mkdir -p .venv/bin && cp "$0" .venv/bin/python && cp "$list" .venv/bin/ ;;
*" install "*" --no-deps "*)
  [ ! -e broken ] && [ -z "${PIP_CONSTRAINT:-}" ] || exit 1
  cat "${@: -1}" >>"$list"
  [ ! -e careless ] || sed -i s/1.24.4/1.26.4/ "$list" ;;
*) exit 9 ;;
esac
"""
CONTAINER = """\
Typing.Extensions==4.0
horovod==0.28.1
numpy==1.24.4
pip==24.0
pyyaml==5.0
tensorflow==2.15.0+nv24.5
"""


@pytest.fixture
def clone(root, tmp_path):
    folder = tmp_path / "a clone"
    for name in ("runtime/setup", "requirements"):
        (folder / name).mkdir(parents=True)
    (folder / "container").mkdir()
    for name in ("runtime/setup/ngc_packages.sh", "requirements/ngc.lock"):
        shutil.copy(root / name, folder / name)
    (folder / "container/python").write_text(PYTHON)
    (folder / "container/python").chmod(0o755)
    (folder / "container/packages").write_text(CONTAINER)
    return folder


def ngc_packages(clone):
    return subprocess.run(
        ["bash", "runtime/setup/ngc_packages.sh", "container/python"],
        cwd=clone,
        env={**os.environ, "PIP_CONSTRAINT": "/etc/pip/constraint.txt"},  # as in the container
        capture_output=True,
        text=True,
        check=False,
    )


def test_installed_packages(clone, root):
    done = ngc_packages(clone)
    lock = (root / "requirements/ngc.lock").read_text().splitlines()
    lacking = [line for line in lock if "==" in line and not re.match("PyYAML|typing_ext", line)]
    assert done.returncode == 0, done.stderr
    assert f"installing {len(lacking)} packages" in done.stdout
    assert (clone / ".venv/bin/packages").read_text() == CONTAINER + "\n".join(lacking) + "\n"
    assert (clone / "container/packages").read_text() == CONTAINER
    assert (clone / ".venv/installed").exists() and (clone / ".venv/horovod").exists()


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (
            "no horovod",
            "container/python has no horovod; this is for NVIDIA's TensorFlow containers",
        ),
        ("broken", "pip could not install the packages of requirements/ngc.lock"),
        ("careless", r"packages of the container would be replaced: numpy==1.24.4"),
    ],
)
def test_troubles(clone, trouble, message):
    if trouble == "no horovod":
        (clone / "container/packages").write_text(CONTAINER.replace("horovod", "horovodo"))
    else:
        (clone / trouble).touch()
    done = ngc_packages(clone)
    assert done.returncode == 1 and message in done.stderr
    assert not (clone / ".venv/installed").exists()


@pytest.mark.parametrize(
    ("listed", "status", "addresses"), [("0\n1\n12\n", 0, ["0", "1", "12"]), ("", 1, None)]
)
def test_gpu_addresses(root, tmp_path, listed, status, addresses):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\nprintf '{listed!s}'\n".replace("\n1", "\\n1"))
    (tmp_path / "nvidia-smi").chmod(0o755)
    done = subprocess.run(
        [root / "runtime/gpu_addresses.sh"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    if addresses:
        assert json.loads(done.stdout) == {"name": "gpu", "addresses": addresses}
    else:
        assert "nvidia-smi lists no GPU" in done.stderr
