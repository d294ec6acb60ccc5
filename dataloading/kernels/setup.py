"""Packs the library of the loaders, which `make` has built."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "op_build"))

import op_wheel

op_wheel.pack(
    "dataloading-kernels",
    "Copies of samples for shuffled batches",
    ["dataloading_kernels"],
    Path("dataloading_kernels/_loader_ops.json"),
)
