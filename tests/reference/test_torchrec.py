"""TorchRec's DLRM_DCN and DLRM, those of MLPerf's reference, train like ours from our weights."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness import worker
from benchmarks.harness.training import has_package
from benchmarks.mlperf_training import workload
from benchmarks.mlperf_training.ours import RankingTraining
from config import criteo_multi_hot

TORCH_PYTHON = Path(__file__).resolve().parents[2] / ".venv-torch/bin/python"
STEPS = 100
# The layers of MLPerf's model, narrow, with its hotness.
SIZES = {
    "table_rows": tuple(min(rows, 500) for rows in criteo_multi_hot.CARDINALITIES),
    "hotness": criteo_multi_hot.HOTNESS,
    "batch_size": 64,
    "num_batches": 100,
    "dim": 8,
    "bottom_mlp_dims": (32, 16, 8),
    "top_mlp_dims": (64, 64, 32, 16, 1),
    "cross_rank": 32,
}


def train_torchrec(folder: Path, optimizer: str, learning_rate: float) -> dict[str, np.ndarray]:
    words = [TORCH_PYTHON, "-m", "tests.reference.torchrec_worker", folder, optimizer]
    done = subprocess.run(
        [*words, str(learning_rate), str(STEPS)],
        cwd=TORCH_PYTHON.parents[2],
        env={**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with np.load(folder / "torchrec.npz") as results:
        return dict(results)


@pytest.mark.parametrize(
    ("num_cross_layers", "optimizer", "learning_rate"),
    [(3, "adagrad", workload.LEARNING_RATE), (0, "sgd", 0.1)],
    ids=["DLRM_DCN", "DLRM"],
)
def test_training(num_cross_layers, optimizer, learning_rate, tmp_path):
    if not has_package(TORCH_PYTHON, "torchrec"):
        pytest.skip("no .venv-torch with torchrec: `make test-reference` makes it")
    sizes = workload.Sizes(**SIZES, num_cross_layers=num_cross_layers)
    rows = workload.make_rows(sizes)
    worker.save(tmp_path, rows, sizes)
    training = RankingTraining(rows, sizes, optimizer=optimizer, learning_rate=learning_rate)
    training.save_weights(tmp_path / "weights.npz")
    logits = training.logits()
    losses = [training.step() for _ in range(STEPS)]
    assert np.mean(losses[-10:]) < losses[0] - 0.03, "the model learns"
    results = train_torchrec(tmp_path, optimizer, learning_rate)
    for tables in ("plain", "fused"):  # of PyTorch and of fbgemm
        np.testing.assert_allclose(results[f"{tables}_logits"], logits, rtol=0, atol=1e-5)
        np.testing.assert_allclose(results[f"{tables}_losses"], losses, rtol=0, atol=1e-4)
