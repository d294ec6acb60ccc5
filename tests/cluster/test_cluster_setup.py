"""setup.sh, which installs what the other tests here need, with stand-ins of dpkg and apt."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).with_name("setup.sh")


@pytest.mark.parametrize(
    ("programs", "output"),
    [
        ({"dpkg-query": "echo installed", "apt-get": "exit 9"}, "cluster-setup: all is there"),
        (
            {"dpkg-query": '[ "$3" != munge ] && echo installed', "apt-get": "", "id": "echo 1000"},
            "cluster-setup: not root, who could install munge; make test-cluster skips what needs",
        ),
        ({}, "cluster-setup: nothing is installed, because this is not Debian; make test-cluster"),
    ],
    ids=["all is there", "not root", "no Debian"],
)
def test_setup_without_installation(tmp_path, programs, output):
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", SCRIPT],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert (done.stdout + done.stderr).startswith(output)
