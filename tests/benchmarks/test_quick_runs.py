"""Every benchmark starts, at tiny sizes; without PyTorch a training is compared with itself."""

import subprocess
import sys

import numpy as np
import pytest

from benchmarks import preparation
from benchmarks.harness.training import has_package
from benchmarks.sequence_training import workload as sequences

TRAININGS = {
    "dlrm_training": (),
    "sequence_training": ("--models", "sim,dien,din"),
    "ncf_training": ("--shapes", "ml-1m"),
    "mlperf_training": (),
    "embedding_bag": ("--dtype", "bfloat16"),
    "dot_interaction": (),
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
def test_dlrm_compared_with_itself(root, tmp_path):
    (tmp_path / "checkout").symlink_to(root)  # another path
    page = run(root, "dlrm_training", "--quick", "--other", str(tmp_path / "checkout"))
    assert page.count("times the samples per second of") == 2  # precisions


@pytest.mark.long
@pytest.mark.parametrize("name", TRAININGS)
def test_training(name, root):
    torch = root / ".venv-torch/bin/python"
    if not has_package(torch, "torchrec"):
        pytest.skip("no .venv-torch with torchrec: `make bench-mlperf` makes it")
    page = run(root, name, "--quick", "--torch_python", str(torch), *TRAININGS[name])
    assert "ours" in page or "dot_custom" in page


@pytest.mark.quick("criteo")
@pytest.mark.parametrize("data", preparation.DATA)
def test_preparation(data, tmp_path):
    page = tmp_path / "page.md"
    flags = (f"--data={data}", "--engines=duckdb", "--quick", f"--output={page}")
    assert preparation.main(flags) == 0
    assert "| duckdb |" in page.read_text() and "- peak memory " in page.read_text()


@pytest.mark.long
def test_group_losses(root):
    assert "| true utility |" in run(root, "group_losses", "--quick")


def test_rows_of_histories():
    sizes = sequences.SequenceSizes(64, 2, 50, 400, 12, history_length=30)
    rows = sequences.make_rows(sizes)
    assert rows.positive_item.shape == (128, 30) and rows.labels.sum() == 64
    real = rows.positive_item > 0
    np.testing.assert_array_equal(real, np.sort(real, axis=1))  # right-aligned
    np.testing.assert_array_equal(real, rows.negative_item > 0)
    assert real[:, -1].all() and rows.target_item.min() > 0
