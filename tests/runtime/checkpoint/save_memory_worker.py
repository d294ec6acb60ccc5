"""Saves and restores a table of 1.5 GiB and prints by how much the resident memory grew, in MiB.

python -m tests.runtime.checkpoint.save_memory_worker FOLDER SLICES

The table is SLICES variables of its columns, as on one rank that has several slices.
"""

import contextlib
import json
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
from distributed_embeddings.collectives import World
from distributed_embeddings.layers.weights import LocalShard, TableWeight
from distributed_embeddings.planner import Shard

from runtime import checkpoint
from runtime.checkpoint.saver import Saver

ROWS, COLUMNS, CHUNK = 3 * 2**20, 128, 2**16


def status_mib(name: str) -> float:
    """VmRSS or VmHWM of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(name)]
    return int(line.split()[1]) / 1024


@contextlib.contextmanager
def growth(grown: dict[str, float], name: str):
    """Stores the increase of the resident memory from the beginning of the block to its peak."""
    Path("/proc/self/clear_refs").write_text("5")
    before = status_mib("VmRSS")
    yield
    grown[name] = status_mib("VmHWM") - before


def row_values(first: int, shard: Shard) -> np.ndarray:
    """Other values in every row and column."""
    rows = np.arange(first, first + CHUNK, dtype=np.float32)[:, np.newaxis]
    return rows + np.arange(shard.column_start, shard.column_end, dtype=np.float32) / 1000


def main(folder: str, slices: int) -> None:
    """Prints the result as a line of JSON."""
    width, grown = COLUMNS // slices, {"table_mib": ROWS * COLUMNS * 4 / 2**20}
    local = []
    for start in range(0, COLUMNS, width):
        variable = tf.Variable(tf.zeros([ROWS, width]))
        local.append(LocalShard(Shard(0, 0, 0, ROWS, start, start + width), variable, 0))
    shards = tuple(stored.shard for stored in local)
    shape, dtype = (ROWS, COLUMNS), np.dtype(np.float32)
    table = TableWeight("sparse/table", shape, dtype, World(), shards, tuple(local))

    def fill(factor: float) -> None:
        for stored in local:
            for first in range(0, ROWS, CHUNK):
                values = factor * row_values(first, stored.shard)
                rows = tf.range(first, first + CHUNK)
                stored.variable.scatter_update(tf.IndexedSlices(values, rows))
            tf.gather(stored.variable, [1, 5])

    fill(1.0)
    checkpoints = checkpoint.Folder(Path(folder) / "checkpoints")
    checkpoints.acquire()
    saver = Saver(checkpoints)
    with growth(grown, "saving_mib"):
        saver.save(1, [table], {}, {})
        saver.wait()
    (outcome,) = saver.outcomes()
    assert outcome.fault is None and outcome.path is not None, outcome
    checkpoints.release()
    fill(0.0)
    with growth(grown, "restoring_mib"):
        checkpoint.restore(outcome.path, [table])
    for stored in local:
        for first in (0, ROWS // 2, ROWS - CHUNK):
            read = tf.gather(stored.variable, tf.range(first, first + CHUNK)).numpy()
            np.testing.assert_array_equal(read, row_values(first, stored.shard))
    print(json.dumps(grown))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
