"""Saves and restores a table of 1.5 GiB and prints by how much the resident memory grew, in MiB.

python -m tests.runtime.checkpoint.save_memory_worker FOLDER [--slices N]

With `--slices` the table is N variables of its columns, as on one rank that has several slices.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import tensorflow as tf
from distributed_embeddings.collectives import World
from distributed_embeddings.layers.weights import LocalShard, TableWeight
from distributed_embeddings.planner import Shard

from runtime import checkpoint

ROWS, COLUMNS, CHUNK = 3 * 2**20, 128, 2**16


def status_mib(name: str) -> float:
    """VmRSS or VmHWM of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(name)]
    return int(line.split()[1]) / 1024


class Growth:
    """Returns the increase of the resident memory from the beginning to its peak."""

    def __enter__(self):
        Path("/proc/self/clear_refs").write_text("5")
        self._before = status_mib("VmRSS")
        return self

    def __exit__(self, *exception):
        self.mib = status_mib("VmHWM") - self._before


def row_values(first: int, columns: np.ndarray) -> np.ndarray:
    """Other values in every row and column."""
    rows = np.arange(first, first + CHUNK, dtype=np.float32)[:, np.newaxis]
    return rows + columns.astype(np.float32) / 1000


def make_table(slices: int) -> TableWeight:
    """The table, of which every row was written and some were gathered."""
    width, local = COLUMNS // slices, []
    for number in range(slices):
        variable = tf.Variable(tf.zeros([ROWS, width]))
        columns = np.arange(number * width, (number + 1) * width)
        for first in range(0, ROWS, CHUNK):
            rows = tf.range(first, first + CHUNK)
            variable.scatter_update(tf.IndexedSlices(row_values(first, columns), rows))
        tf.gather(variable, [1, 5])
        shard = Shard(0, 0, 0, ROWS, number * width, (number + 1) * width)
        local.append(LocalShard(shard, variable, 0))
    shards = tuple(stored.shard for stored in local)
    name, dtype = "sparse/table", np.dtype(np.float32)
    return TableWeight(name, (ROWS, COLUMNS), dtype, World(), shards, tuple(local))


def main() -> None:
    """Prints the result as a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--slices", type=int, default=1)
    options = parser.parse_args()
    table = make_table(options.slices)
    with Growth() as saving:
        path = checkpoint.save(options.folder / "checkpoints", [table], {})
    for stored in table.local:
        for first in range(0, ROWS, CHUNK):
            rows = tf.range(first, first + CHUNK)
            stored.variable.scatter_update(
                tf.IndexedSlices(tf.zeros([CHUNK, stored.shard.columns]), rows)
            )
    with Growth() as restoring:
        checkpoint.restore(path, [table])
    for stored in table.local:
        columns = np.arange(stored.shard.column_start, stored.shard.column_end)
        for first in (0, ROWS // 2, ROWS - CHUNK):
            got = tf.gather(stored.variable, tf.range(first, first + CHUNK)).numpy()
            np.testing.assert_array_equal(got, row_values(first, columns))
    print(
        json.dumps(
            {
                "table_mib": ROWS * COLUMNS * 4 // 2**20,
                "saving_mib": saving.mib,
                "restoring_mib": restoring.mib,
            }
        )
    )


if __name__ == "__main__":
    main()
