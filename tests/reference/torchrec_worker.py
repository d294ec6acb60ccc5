"""Trains a model of TorchRec; runs in .venv-torch: FOLDER OPTIMIZER LEARNING_RATE STEPS.

FOLDER has rows, sizes and initial weights (`benchmarks.harness.worker`) and gets
`torchrec.npz`: logits of the first batch, and the losses of the steps.
"""

import sys
from pathlib import Path

import numpy as np

from benchmarks.harness.torch_training import load_weights
from benchmarks.harness.worker import load
from benchmarks.mlperf_training.torchrec_model import TorchRecTraining
from benchmarks.mlperf_training.workload import Rows, Sizes


def main() -> None:
    folder, optimizer = Path(sys.argv[1]), sys.argv[2]
    rows, sizes = load(folder, Rows, Sizes)
    results = {}
    for name, is_fused in (("plain", False), ("fused", True)):
        training = TorchRecTraining(
            rows,
            sizes,
            load_weights(folder),
            optimizer=optimizer,
            learning_rate=float(sys.argv[3]),
            is_fused=is_fused,
        )
        results[f"{name}_logits"] = training.logits()
        results[f"{name}_losses"] = [training.step() for _ in range(int(sys.argv[4]))]
    np.savez(folder / "torchrec.npz", **results)


if __name__ == "__main__":
    main()
