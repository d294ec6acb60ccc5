"""The NCF benchmark's rows, its page, and that both sides train the same model."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.harness import workload_files
from benchmarks.harness.training import TrainingMeasurements
from benchmarks.ncf_training import __main__ as ncf_training
from benchmarks.ncf_training import workload
from nn.ncf.config import NCFConfig

TINY = workload.NCFSizes(users=20, items=60, factors=4, layers=(8, 6), batch_size=64, num_batches=2)
TORCH_PYTHON = Path(".venv-torch/bin/python")


def test_sizes_of_the_recipe():
    sizes = workload.of_shape("ml-20m", 2**17)
    assert sizes == workload.NCFSizes()
    assert (sizes.users, sizes.items) == (138_493, 26_744)
    small = workload.of_shape("ml-1m", 100)
    assert (small.users, small.items, small.batch_size) == (6_040, 3_706, 100)
    defaults = NCFConfig("neumf", 1, 1)
    for name in ("factors", "layers", "dropout"):
        assert getattr(sizes, name) == getattr(defaults, name)


def test_rows():
    sizes = workload.of_shape("ml-20m", 2**13)
    rows = workload.make_rows(sizes)
    assert rows.user.dtype == rows.item.dtype == np.int32
    assert rows.labels.dtype == np.float32
    assert rows.user.shape == rows.item.shape == rows.labels[:, 0].shape == (2**15,)
    assert rows.user.min() >= 0 and rows.user.max() < sizes.users
    assert rows.item.min() >= 0 and rows.item.max() < sizes.items
    assert abs(rows.labels.mean() - 0.2) < 4 * np.sqrt(0.16 / 2**15)
    of_positives, of_negatives = (
        np.bincount(rows.item[rows.labels[:, 0] == label]).max() for label in (1, 0)
    )
    assert of_positives > 3 * of_negatives  # popular, against uniform, of a quarter of the rows


def test_facts_by_hand():
    rows = workload.make_rows(TINY)._replace(
        user=np.repeat([1, 2, 3, 4], 32), item=np.repeat([7, 8, 7, 7], 32)
    )
    assert workload.facts(rows, TINY) == {"distinct users": 2.0, "distinct items": 1.5}


def test_rows_and_sizes_on_disk(tmp_path):
    rows = workload.make_rows(TINY)
    workload_files.save(tmp_path, rows, TINY)
    stored, sizes = workload_files.load(tmp_path, workload.NCFRows, workload.NCFSizes)
    for column, expected in zip(stored, rows, strict=True):
        np.testing.assert_array_equal(column, expected)
    assert sizes == TINY


@pytest.mark.parametrize(("dense_ms", "met"), [(160.0, True), (140.0, False)])
def test_page(dense_ms, met):
    """The faster plain peer counts."""
    args = SimpleNamespace(shapes=["ml-1m"], rounds=2, steps=1, threads=2, batch_size=4096)
    measurements = TrainingMeasurements(ncf_training.cases_of(args))
    for side, ms in zip(ncf_training.SIDES, (100.0, 300.0, dense_ms, 110.0, 40.0), strict=True):
        measurements.step_ms[side.name, "ml-1m"] = [ms, ms]
        measurements.faults[side.name, "ml-1m"] = [1.0, 1.0]
        measurements.described[side.name, "ml-1m"] = [{"version": "1.0"}]
    measurements.first_losses = {"ml-1m": [0.7]}
    measurements.foreign_cpu = [0.0]
    parts = {"forward": [40.0], "forward and backward": [80.0], "step": [105.0]}
    measurements.parts = {(ncf_training.OURS.name, "ml-1m"): [parts]}
    facts = {"ml-1m": {"distinct users": 6000.0}}
    page = ncf_training.page_of(measurements, facts, args)
    assert page.is_met is met
    page = str(page)
    verdict = "met" if met else "MISSED"
    assert f"- ml-1m: {dense_ms / 100:.2f} times the samples per second of PyTorch, dense" in page
    assert f"target 1.5: {verdict}" in page
    assert "| ml-1m | ours (TensorFlow) | update | 25 |" in page
    assert "--shapes ml-1m --rounds 2 --steps 1 --threads 2 --batch_size 4096" in page
    assert "ml-1m: 6,040 users, 3,706 items; 6,000 distinct users per batch" in page


def test_our_side(tmp_path):
    from benchmarks.ncf_training.ours import NCFTraining

    sizes = replace(TINY, num_batches=1)
    training = NCFTraining(workload.make_rows(sizes), sizes, dropout=0.0)
    training.save_weights(tmp_path / "weights.npz")
    losses = [training.step() for _ in range(120)]
    assert losses[-1] < losses[0] / 2
    with np.load(tmp_path / "weights.npz") as stored:
        assert stored["mlp_item"].shape == (60, 4)
        assert stored["mlp.dense_0.kernel"].shape == (8, 6)
        assert stored["output.gmf_kernel"].shape == (4, 1)
    times = training.parts_ms(2)
    assert {name: len(ms) for name, ms in times.items()} == {
        "lookup": 2,
        "forward": 2,
        "forward and backward": 2,
        "step": 2,
    }


@pytest.mark.long
@pytest.mark.parametrize("shape", workload.SHAPES)
def test_both_sides(shape, tmp_path, root):
    if not (root / TORCH_PYTHON).exists():
        pytest.skip("no .venv-torch: `make bench-ncf` makes it")
    command = [sys.executable, "-m", "benchmarks.ncf_training", "--shapes", shape]
    command += ["--rounds", "1", "--batch_size", "512", "--output", str(tmp_path / "page.md")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    # Without a page the losses differed; whether the target is met means nothing at this size.
    assert (tmp_path / "page.md").exists(), done.stderr
    assert f"| {shape} | PyTorch, SparseAdam |" in (tmp_path / "page.md").read_text()
