"""The sequence benchmark's rows, its page, and that both sides train the same model."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.harness import workload_files
from benchmarks.harness.training import TrainingMeasurements
from benchmarks.sequence_training import __main__ as sequence_training
from benchmarks.sequence_training import workload
from nn.sequence.config import SequenceModelConfig

TINY = workload.SequenceSizes(
    batch_size=64, num_batches=2, users=50, items=400, categories=12, history_length=30
)
TORCH_PYTHON = Path(".venv-torch/bin/python")


def test_sizes_of_the_recipe():
    sizes = workload.SequenceSizes()
    assert (sizes.users, sizes.items, sizes.categories) == (105_925, 1_209_081, 2_330)
    assert (sizes.batch_size, sizes.history_length, sizes.long_seq_length) == (4096, 100, 90)
    assert sizes.item_dim == 32
    defaults = SequenceModelConfig("sim", (), (), ("item",), (2,))
    for name in ("embedding_dim", "history_length", "long_seq_length", "top_k"):
        assert getattr(sizes, name) == getattr(defaults, name)
    for name in ("stage_one_mlp_dims", "stage_two_mlp_dims", "aux_mlp_dims"):
        assert getattr(sizes, name) == getattr(defaults, name)


def test_rows():
    rows = workload.make_rows(TINY)
    assert rows.positive_item.shape == (128, 30)
    assert all(column.dtype == np.int32 for column in rows[:-1])
    assert rows.labels.dtype == np.float32
    assert rows.labels.sum() == 64  # each event twice
    for item, category in (
        (rows.target_item, rows.target_category),
        (rows.positive_item, rows.positive_category),
        (rows.negative_item, rows.negative_category),
    ):
        assert item.max() < TINY.items
        assert category.max() < TINY.categories
        np.testing.assert_array_equal(category == 0, item == 0)
        of_item = {}  # an item has one category
        for i, c in zip(item.ravel(), category.ravel(), strict=True):
            assert of_item.setdefault(i, c) == c
    assert rows.target_item.min() > 0
    real = rows.positive_item > 0
    np.testing.assert_array_equal(real, rows.negative_item > 0)
    np.testing.assert_array_equal(real, np.sort(real, axis=1))  # right-aligned
    assert real[:, -1].all()
    assert not real.all()


def test_facts_by_hand():
    sizes = workload.SequenceSizes(batch_size=2, num_batches=1, history_length=4, long_seq_length=2)
    rows = workload.make_rows(sizes)._replace(
        target_item=np.array([[1], [2]]),
        positive_item=np.array([[0, 0, 1, 3], [0, 0, 0, 3]]),
        negative_item=np.array([[0, 0, 8, 9], [0, 0, 0, 7]]),
    )
    assert workload.facts(rows, sizes) == {
        "real steps": 1.5,
        "distinct items, sim": 6,  # 0 1 2 3, and of the negatives the last: 9 7
        "distinct items, dien": 7,  # and 8, but not the first position's
    }


def test_rows_and_sizes_on_disk(tmp_path):
    rows = workload.make_rows(TINY)
    workload_files.save(tmp_path, rows, TINY)
    stored, sizes = workload_files.load(tmp_path, workload.SequenceRows, workload.SequenceSizes)
    for column, expected in zip(stored, rows, strict=True):
        np.testing.assert_array_equal(column, expected)
    assert sizes == TINY


@pytest.mark.parametrize(("dense_ms", "met"), [(140.0, True), (120.0, False)])
def test_page(dense_ms, met):
    """The faster peer counts, of SIM only; sides that keep memory are for information."""
    args = SimpleNamespace(
        models=["sim", "din"],
        rounds=2,
        rounds_of_others=2,
        steps=1,
        threads=2,
        batch_size=4096,
        items=TINY.items,
    )
    cases = [sequence_training.case_of(model_type, args) for model_type in args.models]
    measurements = TrainingMeasurements(cases)
    for case in cases:
        for side, ms in zip(case.sides, (100.0, 300.0, dense_ms, 110.0, 110.0), strict=False):
            key = side.name, case.name
            measurements.step_ms[key] = [ms, ms]
            measurements.faults[key] = [1.0, 1.0]
            measurements.described[key] = [{"version": "1.0"}]
    measurements.first_losses = {"sim": [3.0], "din": [0.7]}
    measurements.foreign_cpu = [0.0]
    parts = {"forward": [40.0], "forward and backward": [80.0], "step": [100.0]}
    measurements.parts = {(sequence_training.OURS.name, "sim"): [parts]}
    facts = {"real steps": 49.0, "distinct items, sim": 6.0, "distinct items, dien": 7.0}
    page = sequence_training.page_of(measurements, facts, workload.SequenceSizes(), args)
    assert page.is_met is met
    page = str(page)
    verdict = "met" if met else "MISSED"
    assert f"- sim: {dense_ms / 100:.2f} times the samples per second of PyTorch, dense" in page
    assert f"target 1.3: {verdict}" in page
    assert "| sim | ours (TensorFlow) | update | 20 |" in page
    assert page.count("memory kept |") == 2  # of SIM only
    assert "--models sim din --rounds 2" in page
    assert "--items 400" in page


@pytest.mark.long
def test_our_side(tmp_path):
    from benchmarks.sequence_training.ours import SequenceTraining

    sizes = workload.SequenceSizes(
        batch_size=32,
        num_batches=1,
        users=20,
        items=60,
        categories=5,
        embedding_dim=4,
        history_length=6,
        long_seq_length=4,
        top_k=3,
    )
    training = SequenceTraining(workload.make_rows(sizes), sizes, "sim")
    training.save_weights(tmp_path / "sim.npz")
    losses = [training.step() for _ in range(30)]
    assert losses[-1] < losses[0] / 2
    with np.load(tmp_path / "sim.npz") as stored:
        assert stored["item"].shape == (60, 4)
        assert stored["stage_one_mlp.dense_0.kernel"].shape == (4 + 2 * 8, 200)
    times = training.parts_ms(2)
    assert {name: len(ms) for name, ms in times.items()} == {
        "forward": 2,
        "forward and backward": 2,
        "recurrences, forward": 2,
        "recurrences, both passes": 2,
        "step": 2,
    }


@pytest.mark.long
@pytest.mark.parametrize("model_type", workload.MODEL_TYPES)
def test_both_sides(model_type, tmp_path, root):
    if not (root / TORCH_PYTHON).exists():
        pytest.skip("no .venv-torch: `make bench` makes it")
    command = [sys.executable, "-m", "benchmarks.sequence_training", "--models", model_type]
    command += ["--rounds", "1", "--rounds_of_others", "1", "--steps", "1"]
    command += ["--batch_size", "64", "--items", "5000", "--output", str(tmp_path / "page.md")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    # Without a page the losses differed; whether the targets are met means nothing at this size.
    assert (tmp_path / "page.md").exists(), done.stderr
    assert f"| {model_type} | PyTorch, SparseAdam |" in (tmp_path / "page.md").read_text()
