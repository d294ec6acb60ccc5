"""Packs the library of the dot interaction, which `make` has built."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "op_build"))

import op_wheel

op_wheel.pack(
    "tensorflow-dot-based-interact",
    "DLRM's dot interaction as a fused TensorFlow op for CPU and CUDA",
    [
        "tensorflow_dot_based_interact",
        "tensorflow_dot_based_interact.python",
        "tensorflow_dot_based_interact.python.ops",
    ],
    Path("tensorflow_dot_based_interact/python/ops/_dot_based_interact_ops.json"),
)
