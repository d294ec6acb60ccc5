"""Checkpoints written before modules became packages (November 2026) still resume.

Each archive is the checkpoint after step 10 of the golden run of the same name.
"""

import json
import tarfile

import pytest

import dlrm
import ncf
from tests import tastes
from tests.training import test_golden_losses as golden_losses


@pytest.mark.parametrize("name", ["dlrm_adagrad", "neumf"])
def test_resumed_losses(name, tmp_path, root):
    with tarfile.open(root / f"tests/golden/checkpoints/{name}.tar.xz") as archive:
        archive.extractall(tmp_path)
    flags = [f"--resume={tmp_path / 'checkpoint'}", f"--run_dir={tmp_path}"]
    if name == "neumf":
        tastes.write(tmp_path / "rows")
        flags += [f"--dataset_path={tmp_path / 'rows'}", *golden_losses.COLLABORATIVE_FLAGS]
        assert ncf.main(["prog", *flags]) == 0
        losses = golden_losses.losses_of(tmp_path, "loss", "test_loss")
    else:
        flags += [*golden_losses.FLAGS, *golden_losses.RUNS[name][1]]
        assert dlrm.main(["prog", *flags]) == 0
        losses = golden_losses.losses_of(tmp_path, "loss", "log_loss")
    expected = json.loads((root / f"tests/golden/{name}.json").read_text())
    assert losses == pytest.approx(expected[10:], rel=2e-4)
