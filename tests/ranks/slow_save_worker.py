"""A save and a restore on which rank 0 works longer than ranks wait for each other."""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
from distributed_embeddings.layers.weights import LocalShard, TableWeight
from distributed_embeddings.planner import Shard

from runtime import checkpoint
from runtime.checkpoint import writer
from runtime.cluster import distributed
from tests.runtime.checkpoint.array_weights import save

TIMEOUT_S, SLOW_S = 5, 7.5  # Horovod looks once a second, and ends after two looks at most
BLOCKS = 9  # of rank 0


class Slow(TableWeight):
    """Rank 0 takes its time for every block that it reads from the checkpoint."""

    def write(self, row, values, column=0):
        time.sleep(SLOW_S / BLOCKS if self.world.is_chief else 0)
        super().write(row, values, column)


if __name__ == "__main__":
    tf.zeros([1])  # TensorFlow starts here: it would be part of the first wait
    world = distributed.connect(TIMEOUT_S)
    rows, dim = (BLOCKS - 1) * 8192 + 2048, 128  # blocks of 4 MiB are 8192 rows
    bounds = [(0, rows - 1), (rows - 1, rows)]
    shards = tuple(Shard(0, rank, *bounds[rank], 0, dim) for rank in range(2))
    mine = tf.Variable(tf.fill([shards[world.rank].rows, dim], float(world.rank + 1)))
    local = (LocalShard(shards[world.rank], mine, 0),)
    table = Slow("sparse/t", (rows, dim), np.dtype("f"), world, shards, local)
    if world.is_chief:
        sync = writer.sync_file
        writer.sync_file = lambda file: (time.sleep(SLOW_S), sync(file))
    started = time.monotonic()
    path = save(Path(sys.argv[1]), [table], {}, world)
    saved_s = time.monotonic() - started
    mine.assign(tf.zeros_like(mine))
    checkpoint.restore(path, [table], world)
    result = {
        "saved_s": saved_s,
        "restored_s": time.monotonic() - started - saved_s,
        "values": np.unique(mine.numpy()).tolist(),
    }
    (Path(os.environ["RANK_RESULTS"]) / f"{world.rank}.json").write_text(json.dumps(result))
