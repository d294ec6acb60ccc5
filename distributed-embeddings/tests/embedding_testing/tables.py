"""Tables of one process."""

import numpy as np
from distributed_embeddings.collectives import World
from distributed_embeddings.layers.weights import LocalShard, TableWeight
from distributed_embeddings.planner import Shard


def whole_table(name, rows, variable, offset=0, kind=TableWeight):
    """A table of one process: `rows` rows of a variable from row `offset` on."""
    shard = Shard(0, 0, 0, rows, 0, variable.shape[1])
    dtype = np.dtype(variable.dtype.as_numpy_dtype)
    local = (LocalShard(shard, variable, offset),)
    return kind(name, (rows, variable.shape[1]), dtype, World(), (shard,), local)
