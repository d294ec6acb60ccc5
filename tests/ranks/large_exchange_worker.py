"""Rank 0 sends more than 2^31 elements to rank 1."""

import json
import os
from pathlib import Path

import tensorflow as tf

from runtime.cluster import distributed

WIDTH = 128
ROWS = 2**31 // WIDTH + 3

if __name__ == "__main__":
    world = distributed.connect()
    sent = ROWS if world.rank == 0 else 0
    rows = tf.fill([sent, WIDTH], tf.constant(5, tf.uint8))
    if sent:
        rows = tf.tensor_scatter_nd_update(rows, [[ROWS - 1, WIDTH - 1]], tf.ones([1], rows.dtype))
    received, sizes = world.all_to_all(rows, tf.constant([0, sent]), "large")
    result = {
        "elements": int(tf.size(received, tf.int64)),
        "sizes": sizes.numpy().tolist(),
        "last": received[-1, -2:].numpy().tolist() if world.rank == 1 else [],
    }
    (Path(os.environ["RANK_RESULTS"]) / f"{world.rank}.json").write_text(json.dumps(result))
