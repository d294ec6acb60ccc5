"""Tables of one process."""

import numpy as np
import tensorflow as tf
from distributed_embeddings.collectives import World
from distributed_embeddings.layers.embedding import Embedding
from distributed_embeddings.layers.weights import LocalShard, TableWeight
from distributed_embeddings.merlin.distributed_embedding import DistributedEmbedding
from distributed_embeddings.planner import Shard


def whole_table(name, rows, variable, offset=0, kind=TableWeight):
    """A table of one process: `rows` rows of a variable from row `offset` on."""
    shard = Shard(0, 0, 0, rows, 0, variable.shape[1])
    dtype = np.dtype(variable.dtype.as_numpy_dtype)
    local = (LocalShard(shard, variable, offset),)
    return kind(name, (rows, variable.shape[1]), dtype, World(), (shard,), local)


def tables(*shapes, combiner="sum", **options):
    return [
        Embedding(rows, dim, combiner=combiner, name=f"t{i}", **options)
        for i, (rows, dim) in enumerate(shapes)
    ]


def built(embeddings, **options):
    layer = DistributedEmbedding(embeddings, **options)
    layer.build(None)
    return layer


def counting(layer):
    """Sets row r of table t to 100 t + r in every column."""
    layer.build(None)
    layer.set_weights(
        [
            np.repeat(100.0 * t + np.arange(rows), dim).reshape(rows, dim).astype("f")
            for t, (rows, dim) in enumerate(w.shape for w in layer.table_weights())
        ]
    )
    return layer


def ids(*features):
    return tuple(tf.constant(feature, tf.int32) for feature in features)
