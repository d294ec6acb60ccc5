"""Lookup functions, at the original library's module path."""

from distributed_embeddings.layers.lookup import embedding_lookup, read_var_no_copy
from distributed_embeddings.ops.growing_vocabulary import integer_lookup

__all__ = ["embedding_lookup", "integer_lookup", "read_var_no_copy"]
