"""DLRM (https://arxiv.org/abs/1906.00091) on generated clicks.

python main.py
horovodrun -np 4 python main.py
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from absl import app, flags
from distributed_embeddings.collectives import World, current
from distributed_embeddings.keras import keras
from distributed_embeddings.python.layers import dist_model_parallel as dmp
from distributed_embeddings.python.layers.embedding import Embedding

FLAGS = flags.FLAGS
NUM_NUMERICAL = 13


def define_flags() -> None:
    """Defines the flags of the command line."""
    size = {"lower_bound": 1}
    flags.DEFINE_float("learning_rate", 1, "Learning rate of SGD.")
    flags.DEFINE_integer("batch_size", 65536, "Samples per step of all ranks.", **size)
    flags.DEFINE_integer("num_batches", 340, "Training batches.", **size)
    flags.DEFINE_list("table_sizes", ["1000"] * 26, "Rows of each table.")
    flags.DEFINE_integer("embedding_dim", 128, "Columns of the tables.", **size)
    flags.DEFINE_list("bottom_mlp_dims", ["512", "256", "128"], "Widths of the bottom MLP.")
    flags.DEFINE_list("top_mlp_dims", ["1024", "1024", "512", "256", "1"], "Widths of the top MLP.")
    flags.DEFINE_bool("dp_input", False, "Data-parallel instead of model-parallel input.")
    flags.DEFINE_string("dist_strategy", "memory_balanced", "Placement strategy.")
    flags.DEFINE_integer("print_freq", 1000, "Steps between printed losses.", **size)


def mlp(widths: Sequence[str], last_activation: str | None) -> keras.Sequential:
    """Dense layers with ReLU, but for the last one."""
    activations = ["relu"] * (len(widths) - 1) + [last_activation]
    pairs = zip(map(int, widths), activations, strict=True)
    return keras.Sequential([keras.layers.Dense(n, activation) for n, activation in pairs])


class DotDLRM(keras.Model):
    """DLRM with sharded tables and replicated MLPs.

    Args:
        table_sizes: Rows of each table.
    """

    def __init__(self, table_sizes: Sequence[int]):
        super().__init__()
        self.bottom = mlp(FLAGS.bottom_mlp_dims, "relu")
        self.top = mlp(FLAGS.top_mlp_dims, None)
        limits = [1 / math.sqrt(rows) for rows in table_sizes]
        self.embeddings = dmp.DistributedEmbedding(
            [
                Embedding(rows, FLAGS.embedding_dim, keras.initializers.RandomUniform(-x, x))
                for rows, x in zip(table_sizes, limits, strict=True)
            ],
            strategy=FLAGS.dist_strategy,
            dp_input=FLAGS.dp_input,
        )

    def call(self, inputs):
        """Returns logits [batch, 1] of (numerical [batch, 13], ids of each feature [batch])."""
        numerical, ids = inputs
        bottom = self.bottom(numerical)
        vectors = tf.stack([bottom, *self.embeddings(ids)], axis=1)
        products = tf.matmul(vectors, vectors, transpose_b=True)
        count = vectors.shape[1]
        below = [i * count + j for i in range(count) for j in range(i)]
        pairs = tf.gather(tf.reshape(products, [-1, count * count]), below, axis=1)
        return self.top(tf.concat([pairs, bottom], axis=1))


def generate(
    num_batches: int, table_sizes: Sequence[int], features: Sequence[int] | None, seed: int
) -> Iterator[tuple]:
    """Draws batches ((numerical, ids), labels) in which two ids and a numerical feature decide.

    Args:
        features: Features whose ids are of the samples of all ranks (model-parallel input); None:
            all features, of this rank's samples.
    """
    world, batch_size = current(), FLAGS.batch_size
    local_size = batch_size // world.size
    local = slice(world.rank * local_size, (world.rank + 1) * local_size)
    for number in range(num_batches):
        rng = np.random.default_rng([seed, number])
        numerical = rng.random([batch_size, NUM_NUMERICAL], np.float32)
        ids = [rng.integers(0, rows, batch_size) for rows in table_sizes]
        logits = 2.0 * numerical[:, 0] - 1
        for feature in ids[:2]:
            logits = logits + np.where(feature % 2, 1.5, -1.5)
        labels = (rng.random(batch_size) < 1 / (1 + np.exp(-logits))).astype(np.float32)
        if features is None:
            ids = [feature[local] for feature in ids]
        else:
            ids = [ids[f] for f in features]
        yield (
            (tf.constant(numerical[local]), [tf.constant(feature) for feature in ids]),
            tf.constant(labels[local, None]),
        )


def evaluate(model: DotDLRM, test: Iterator[tuple], world: World) -> tuple[float, float]:
    """Returns the AUC and the mean loss of the test samples of all ranks."""
    auc, mean_loss = keras.metrics.AUC(8000, from_logits=True), keras.metrics.Mean()
    bce = keras.losses.BinaryCrossentropy(from_logits=True)
    for inputs, labels in test:
        labels = world.all_gather(labels, "labels")
        logits = world.all_gather(model(inputs), "logits")
        auc.update_state(labels, logits)
        mean_loss.update_state(bce(labels, logits))
    return float(auc.result()), float(mean_loss.result())


def main(_) -> None:
    """Trains one epoch and evaluates."""
    world = current()
    if FLAGS.batch_size % world.size:
        raise app.UsageError(
            f"--batch_size {FLAGS.batch_size} is not divisible by {world.size} ranks"
        )
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[world.local_rank % len(gpus)], "GPU")
    table_sizes = [int(rows) for rows in FLAGS.table_sizes]
    model = DotDLRM(table_sizes)
    features = None if FLAGS.dp_input else model.embeddings.strategy.input_ids_list[world.rank]
    optimizer = keras.optimizers.legacy.SGD(FLAGS.learning_rate)
    bce = keras.losses.BinaryCrossentropy(from_logits=True)

    @tf.function
    def train_step(inputs, labels):
        with tf.GradientTape() as tape:
            loss = bce(labels, model(inputs))
        tape = dmp.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    for step, batch in enumerate(generate(FLAGS.num_batches, table_sizes, features, 0)):
        loss = train_step(*batch)
        if step == 0:
            dmp.broadcast_variables(model.variables, root_rank=0)
        if step % FLAGS.print_freq == 0:
            (mean,) = world.all_reduce([loss], "mean", "mean_loss")
            if world.is_chief:
                print(f"step: {step}, loss: {mean:.5f}", flush=True)
    test = generate(math.ceil(FLAGS.num_batches / 10), table_sizes, features, 1)
    auc, test_loss = evaluate(model, test, world)
    if world.is_chief:
        print(f"Evaluation completed, AUC: {auc:.5f}, test_loss: {test_loss:.5f}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
