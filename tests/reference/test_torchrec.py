"""TorchRec's DLRM_DCN and DLRM, those of MLPerf's reference, train like ours from our weights."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import mlperf_training
from benchmarks.harness import worker
from benchmarks.harness.training import has_package
from config import criteo_multi_hot

TORCH_PYTHON = Path(__file__).resolve().parents[2] / ".venv-torch/bin/python"
STEPS = 100
# The layers of MLPerf's model, narrow, with its hotness.
SIZES = {
    **mlperf_training.SIZES,
    "table_rows": tuple(min(rows, 500) for rows in criteo_multi_hot.CARDINALITIES),
    "batch_size": 64,
    "num_batches": 100,
    "dim": 8,
    "bottom_mlp_dims": (32, 16, 8),
    "top_mlp_dims": (64, 64, 32, 16, 1),
    "cross_rank": 32,
}


def train_torchrec(folder: Path) -> dict[str, np.ndarray]:
    words = [TORCH_PYTHON, "-m", "tests.reference.torchrec_worker", folder]
    done = subprocess.run(
        [*words, str(STEPS)],
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
    [(3, "adagrad", mlperf_training.SIZES["learning_rate"]), (0, "sgd", 0.1)],
    ids=["DLRM_DCN", "DLRM"],
)
def test_training(num_cross_layers, optimizer, learning_rate, tmp_path):
    if not has_package(TORCH_PYTHON, "torchrec"):
        pytest.skip("no .venv-torch with torchrec: `make test-reference` makes it")
    options = {"optimizer": optimizer, "learning_rate": learning_rate}
    sizes = SimpleNamespace(**SIZES | options | {"num_cross_layers": num_cross_layers})
    worker.save(tmp_path, mlperf_training.make_rows(sizes, tmp_path), sizes)
    rows, _ = worker.load(tmp_path)
    training = mlperf_training.make_training(tmp_path, rows, sizes, "float32")
    first = type(rows)(*(column[: sizes.batch_size] for column in rows))
    logits = training.model(mlperf_training.inputs_of(first, sizes)).numpy()
    losses = [training.step() for _ in range(STEPS)]
    assert np.mean(losses[-10:]) < losses[0] - 0.03, "the model learns"
    results = train_torchrec(tmp_path)
    np.testing.assert_allclose(results["logits"], logits, rtol=0, atol=1e-5)
    np.testing.assert_allclose(results["losses"], losses, rtol=0, atol=1e-4)
