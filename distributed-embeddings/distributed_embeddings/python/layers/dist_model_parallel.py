"""Layer, strategy, tape, optimizer and broadcast, at the original library's module path."""

from distributed_embeddings.data_parallel.broadcast import (
    BroadcastGlobalVariablesCallback,
    broadcast_variables,
)
from distributed_embeddings.data_parallel.gradient_tape import DistributedGradientTape
from distributed_embeddings.data_parallel.optimizer import DistributedOptimizer
from distributed_embeddings.layers.embedding import Embedding
from distributed_embeddings.layers.lookup import read_var_no_copy
from distributed_embeddings.merlin.distributed_embedding import DistributedEmbedding
from distributed_embeddings.merlin.strategy import DistEmbeddingStrategy

__all__ = [
    "BroadcastGlobalVariablesCallback",
    "DistEmbeddingStrategy",
    "DistributedEmbedding",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Embedding",
    "broadcast_variables",
    "read_var_no_copy",
]
