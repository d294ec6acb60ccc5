"""Embedding tables that are distributed over processes, for Keras 2 models.

    import distributed_embeddings as dmp

The names, arguments and module paths are those of NVIDIA Merlin's distributed-embeddings. They are
imported when they are first used: the planner needs no TensorFlow.

Importing the package makes `tf.keras` Keras 2 in TensorFlow 2.16 and later, unless the environment
variable TF_USE_LEGACY_KERAS is set, or the program has used `tf.keras` before.
"""

import importlib
import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # TensorFlow reads it when it loads `tf.keras`

__version__ = "1.0.0"

_MODULE_OF = {
    "DistEmbeddingStrategy": "merlin.strategy",
    "BroadcastGlobalVariablesCallback": "data_parallel.broadcast",
    "ConcatOneHotEmbedding": "layers.concat_one_hot",
    "DistributedEmbedding": "merlin.distributed_embedding",
    "DistributedGradientTape": "data_parallel.gradient_tape",
    "DistributedOptimizer": "data_parallel.optimizer",
    "Embedding": "layers.embedding",
    "IntegerLookup": "layers.integer_lookup",
    "LazyAdam": "optimizers.sparse_optimizers",
    "RowWiseAdagrad": "optimizers.sparse_optimizers",
    "broadcast_variables": "data_parallel.broadcast",
    "embedding_lookup": "layers.lookup",
    "keep_freed_memory": "freed_memory",
}
_MODULES = {"dist_model_parallel": "python.layers.dist_model_parallel"}

__all__ = sorted(["__version__", *_MODULE_OF, *_MODULES])


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{_MODULES[name]}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_MODULES})
