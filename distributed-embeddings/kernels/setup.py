"""Packs the library of the embedding bags, which `make` has built."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "op_build"))

import op_wheel

op_wheel.pack(
    "distributed-embeddings-kernels",
    "Embedding lookup and table update of distributed-embeddings as fused TensorFlow ops",
    ["distributed_embeddings_kernels"],
    Path("distributed_embeddings_kernels/_embedding_bag_ops.json"),
)
