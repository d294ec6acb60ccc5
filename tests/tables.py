"""Tables for tests."""

import numpy as np

from nn.embedding.planner import Shard
from nn.embedding.weights import LocalShard, TableWeight
from runtime.checkpoint import describe, resolve
from runtime.checkpoint.reader import rows_of
from runtime.cluster.distributed import World


def whole_table(name, rows, variable, offset=0, kind=TableWeight):
    """A table of one process: `rows` rows of a variable from row `offset` on."""
    shard = Shard(0, 0, 0, rows, 0, variable.shape[1])
    dtype = np.dtype(variable.dtype.as_numpy_dtype)
    local = (LocalShard(shard, variable, offset),)
    return kind(name, (rows, variable.shape[1]), dtype, World(), (shard,), local)


def arrays_of(folder):
    """{name: whole array as a matrix} of the newest checkpoint in a folder, whatever its parts."""
    path = resolve(folder)
    entries = describe(path).weights.items()
    return {name: np.concatenate([*rows_of(path, entry)]) for name, entry in entries}
