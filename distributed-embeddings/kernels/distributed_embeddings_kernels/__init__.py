"""The compiled part of distributed-embeddings: see `distributed_embeddings.ops.kernels`."""

from pathlib import Path

LIBRARY = Path(__file__).with_name("_embedding_bag_ops.so")
