"""Trains a model of TorchRec; runs in .venv-torch: FOLDER STEPS.

FOLDER has rows, sizes and initial weights (`benchmarks.harness.worker`) and gets
`torchrec.npz`: logits of the first batch, and the losses of the steps.
"""

import sys
from pathlib import Path

import numpy as np
import torch

from benchmarks.peers.torchrec_dlrm import start


def main() -> None:
    folder = Path(sys.argv[1])
    training = start(folder, "float32")
    first = training.batches[0]
    with torch.no_grad():
        logits = training.model(first.numerical, first.ids).numpy()
    losses = [training.step() for _ in range(int(sys.argv[2]))]
    np.savez(folder / "torchrec.npz", logits=logits, losses=losses)


if __name__ == "__main__":
    main()
