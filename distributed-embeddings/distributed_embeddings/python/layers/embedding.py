"""Layers of one table, at the original library's module path."""

from distributed_embeddings.layers.concat_one_hot import ConcatOneHotEmbedding
from distributed_embeddings.layers.embedding import Embedding
from distributed_embeddings.layers.integer_lookup import IntegerLookup

__all__ = ["ConcatOneHotEmbedding", "Embedding", "IntegerLookup"]
