"""Time of `embedding_lookup` against `tf.nn.embedding_lookup_sparse`: forward, gradient, SGD.

Examples:
python benchmark.py
python benchmark.py --voc 1000 --emb 16 --batch 64 --max_hotness 20 --iterations 3
"""

import statistics
import time
from collections.abc import Callable

import tensorflow as tf
from absl import app, flags
from distributed_embeddings import embedding_lookup
from distributed_embeddings.keras import keras

FLAGS = flags.FLAGS
flags.DEFINE_integer("voc", 1_000_000, "Rows of the table.", lower_bound=2)
flags.DEFINE_integer("emb", 128, "Columns of the table.", lower_bound=1)
flags.DEFINE_integer("batch", 16384, "Samples.", lower_bound=1)
flags.DEFINE_integer("max_hotness", 500, "Most ids of a sample; the least is 1.", lower_bound=1)
flags.DEFINE_integer("iterations", 10, "Measured calls, after one of warm-up.", lower_bound=1)


def measure(name: str, call: Callable) -> None:
    """Prints the median time of a call in ms."""
    times = []
    for _ in range(FLAGS.iterations + 1):
        start = time.perf_counter()
        for tensor in tf.nest.flatten(call()):
            if tensor is not None:
                tensor.numpy()[:1]  # waits for the device
        times.append(time.perf_counter() - start)
    print(f"{name} time: {1e3 * statistics.median(times[1:]):.3f} ms", flush=True)


def benchmark(name: str, table: tf.Variable, look_up: Callable[[], tf.Tensor]) -> None:
    """Measures a lookup, its gradient, and the update of the table by SGD."""
    optimizer = keras.optimizers.legacy.SGD(0.01)
    measure(name, look_up)
    with tf.GradientTape(persistent=True) as tape:
        vectors = look_up()
    measure(f"{name} grad", lambda: tf.convert_to_tensor(tape.gradient(vectors, table).values[:1]))
    gradient = tape.gradient(vectors, table)

    def update() -> tf.Tensor:
        optimizer.apply_gradients([(gradient, table)])
        return table[:1]

    measure(f"{name} SGD", update)


def main(_) -> None:
    """Draws ids, and compares both lookups."""
    tf.random.set_seed(0)
    lengths = tf.random.uniform([FLAGS.batch], 1, FLAGS.max_hotness + 1, tf.int64)
    # Without id 0, which `tf.sparse.from_dense` would drop.
    ids = tf.random.uniform([tf.reduce_sum(lengths)], 1, FLAGS.voc, tf.int64)
    ragged = tf.RaggedTensor.from_row_lengths(ids, lengths)
    sparse = ragged.to_sparse()
    table = tf.Variable(tf.random.uniform([FLAGS.voc, FLAGS.emb]))

    def look_up_sparse() -> tf.Tensor:
        return tf.nn.embedding_lookup_sparse(table, sparse, None, combiner="mean")

    def look_up_ragged() -> tf.Tensor:
        return embedding_lookup(table, ragged, combiner="mean")

    difference = tf.reduce_max(tf.abs(look_up_sparse() - look_up_ragged()))
    print(f"{len(ids):,} ids; largest difference of the two: {difference:.1e}")
    benchmark("ragged", table, look_up_ragged)
    benchmark("sparse", table, look_up_sparse)


if __name__ == "__main__":
    app.run(main)
