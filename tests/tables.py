"""Tables for tests."""

import numpy as np

from nn.embedding.plan import Shard
from nn.embedding.weights import LocalShard, TableWeight
from runtime.distributed import World


def whole_table(name, rows, variable, offset=0, kind=TableWeight):
    """A table of one process: `rows` rows of a variable from row `offset` on."""
    shard = Shard(0, 0, 0, rows, 0, variable.shape[1])
    dtype = np.dtype(variable.dtype.as_numpy_dtype)
    local = (LocalShard(shard, variable, offset),)
    return kind(name, (rows, variable.shape[1]), dtype, World(), (shard,), local)
