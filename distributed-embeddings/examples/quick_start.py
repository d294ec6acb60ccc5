"""Hybrid-parallel training of a Keras model: tables sharded over ranks, dense layers replicated.

python quick_start.py
horovodrun -np 2 python quick_start.py
"""

import numpy as np
import tensorflow as tf
from distributed_embeddings.collectives import current
from distributed_embeddings.python.layers import dist_model_parallel as dmp

GLOBAL_BATCH_SIZE, NUM_STEPS = 256, 60
TABLE_SIZES = [(1000, 16), (200, 16), (50, 8), (10, 8)]


class ClickModel(tf.keras.Model):
    """Embedding tables and one dense layer.

    Args:
        table_sizes: Rows and columns of each table.
    """

    def __init__(self, table_sizes):
        super().__init__()
        tables = [tf.keras.layers.Embedding(rows, dim) for rows, dim in table_sizes]
        # 1. Wrap the list of embedding layers.
        self.embeddings = dmp.DistributedEmbedding(tables)
        self.dense = tf.keras.layers.Dense(1)

    def call(self, ids):
        """Returns logits [batch, 1] of one id tensor [batch] per table."""
        return self.dense(tf.concat(self.embeddings(ids), axis=1))


def main():
    """Trains on generated clicks, which the first feature decides."""
    world = current()
    rng = np.random.default_rng(0)  # the same samples on every rank
    ids = [rng.integers(0, rows, GLOBAL_BATCH_SIZE) for rows, _ in TABLE_SIZES]
    labels = (ids[0] % 2).astype("float32")[:, None]
    local = slice(world.rank, None, world.size)  # this rank's samples
    ids, labels = [tf.constant(feature[local]) for feature in ids], tf.constant(labels[local])

    model = ClickModel(TABLE_SIZES)
    loss_function = tf.keras.losses.BinaryCrossentropy(from_logits=True)
    optimizer = tf.keras.optimizers.Adam(0.05)

    @tf.function
    def training_step(ids, labels, first_batch):
        with tf.GradientTape() as tape:
            loss = loss_function(labels, model(ids))
        # 2. Wrap the tape.
        tape = dmp.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        if first_batch:
            # 3. Replicated variables start equal on all ranks.
            dmp.broadcast_variables(model.variables, root_rank=0)
        return loss

    for step in range(NUM_STEPS):
        loss = training_step(ids, labels, step == 0)
        if step % 20 == 0 or step == NUM_STEPS - 1:
            (mean,) = world.all_reduce([loss], "mean", "loss")
            if world.is_chief:
                print(f"step {step}: loss {mean:.4f}")


if __name__ == "__main__":
    main()
