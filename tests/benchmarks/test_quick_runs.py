"""Every benchmark starts, at tiny sizes."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import preparation, sequence_training
from benchmarks.harness.training import has_package

TRAININGS = {
    "dlrm_training": (),
    "sequence_training": (),
    "ncf_training": (),
    "mlperf_training": (),
    "embedding_bag": ("--dtype", "bfloat16"),
}
WITHOUT_PYTORCH = {
    "dot_interaction": (),
    "embedding_bag.keras_tables": ("--optimizers", "new.SGD,legacy.momentum"),
    "group_losses": (),
}


def run(root, name, *flags):
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *flags],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("name", TRAININGS)
def test_training(name, root):
    torch = root / ".venv-torch/bin/python"
    if not has_package(torch, "torchrec"):
        pytest.skip("no .venv-torch with torchrec: `make bench-mlperf` makes it")
    page = run(root, name, "--quick", "--torch_python", str(torch), *TRAININGS[name])
    assert "times the samples per second of" in page


@pytest.mark.long
@pytest.mark.parametrize("name", WITHOUT_PYTORCH)
def test_without_pytorch(name, root):
    assert "; for information" in run(root, name, "--quick", *WITHOUT_PYTORCH[name])


@pytest.mark.quick("criteo")
@pytest.mark.parametrize("data", preparation.DATA)
def test_preparation(data, tmp_path):
    page = tmp_path / "page.md"
    flags = (f"--data={data}", "--engines=duckdb", "--quick", f"--output={page}")
    assert preparation.main(flags) == 0
    assert "| duckdb |" in page.read_text() and "- peak memory " in page.read_text()


def test_rows_of_histories():
    sizes = SimpleNamespace(**sequence_training.SIZES | sequence_training.QUICK)
    rows = sequence_training.make_rows(sizes, Path())
    assert rows["positive_item"].shape == (32, 12) and rows["labels"].sum() == 16
    real = rows["positive_item"] > 0
    np.testing.assert_array_equal(real, np.sort(real, axis=1))  # right-aligned
    np.testing.assert_array_equal(real, rows["negative_item"] > 0)
    assert real[:, -1].all() and rows["target_item"].min() > 0
