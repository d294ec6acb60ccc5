"""Distributed embedding tables; `import nn.embedding as dmp`.

The names are those of NVIDIA Merlin's distributed-embeddings (its `dist_model_parallel` and
`embedding` modules). They are imported when they are first used: the planner needs no TensorFlow.
"""

import importlib

_MODULE_OF = {
    "BroadcastGlobalVariablesCallback": "nn.embedding.merlin_api.data_parallel",
    "ConcatOneHotEmbedding": "nn.embedding.merlin_api.concat_one_hot",
    "DistributedEmbedding": "nn.embedding.merlin_api.layer:MerlinDistributedEmbedding",
    "DistributedGradientTape": "nn.embedding.merlin_api.data_parallel",
    "DistributedOptimizer": "nn.embedding.merlin_api.data_parallel",
    "Embedding": "nn.embedding.embedding",
    "IntegerLookup": "nn.embedding.merlin_api.integer_lookup",
    "broadcast_variables": "nn.embedding.merlin_api.data_parallel",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _MODULE_OF[name].partition(":")
    value = getattr(importlib.import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
