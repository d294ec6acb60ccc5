import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.merlin.distributed_embedding import DistributedEmbedding
from distributed_embeddings.planner import HOST, Shard, Table
from embedding_testing.fake_world import run_threads
from embedding_testing.plans import plan_of
from embedding_testing.tables import built, counting, ids, tables

from nn.optim import optimizers
from nn.optim.optimizers import create


def test_two_shards_of_a_table_on_one_rank():
    """Columns in host memory and on the device, in another order than the variables'."""
    whole = plan_of([Table("t0", 6, 4), Table("t1", 5, 2)], 1)
    shards = (
        Shard(0, 0, 0, 6, 2, 4),
        Shard(1, 0, 0, 5, 0, 2, device=HOST),
        Shard(0, 0, 0, 6, 0, 2, device=HOST),
    )
    cut = dataclasses.replace(whole, table_shards=(shards,))
    values = [np.arange(24, dtype="f").reshape(6, 4), np.arange(10, dtype="f").reshape(5, 2)]
    after = []
    for chosen in (whole, cut):
        layer = built(tables((6, 4), (5, 2)), plan=chosen)
        layer.set_weights(values)
        for got, expected in zip(layer.get_weights(), values, strict=True):
            np.testing.assert_array_equal(got, expected)
        variables = layer.trainable_variables
        optimizer = optimizers.create(
            "rowwise_adagrad", variables, 0.1, row_means=layer.row_means()
        )
        with tf.GradientTape() as tape:
            output = layer(ids([[1, 3], [2, 2]], [[4], [0]]), concatenate=True)
            loss = tf.reduce_sum(tf.square(output))
        optimizer.apply(tape.gradient(loss, variables), 0)
        after.append((output, *layer.get_weights()))
    for got, expected in zip(after[1], after[0], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="whole"),
        pytest.param({"row_slice_threshold": 1}, id="row slices"),
        pytest.param({"data_parallel_threshold": 100}, id="copies"),
    ],
)
def test_adam_decay_of_unread_table(options):
    """Table 1 has the width of table 0, and shares its variable where both are on one rank."""

    def step(world):
        layer = counting(
            DistributedEmbedding(
                tables((3, 2), (4, 2), (5, 2)), input_table_map=[0, 2], world=world, **options
            )
        )
        optimizer = create("adam", layer.trainable_variables, 0.5, weight_decay=0.5)
        mine = slice(world.rank * 2 // world.size, (world.rank + 1) * 2 // world.size)
        with tf.GradientTape() as tape:
            outputs = layer([tf.constant([[1], [2]])[mine], tf.constant([[0], [4]])[mine]])
            loss = tf.add_n([tf.reduce_sum(output) for output in outputs])
        gradients = tape.gradient(loss, layer.trainable_variables)
        optimizer.apply(gradients, 0)
        weights = layer.get_weights()  # of all ranks, on the chief
        return weights[1] if world.is_chief else None

    for size in (1, 2):
        unread = run_threads(size, step)[0]
        np.testing.assert_array_equal(unread, [[100 + r] * 2 for r in range(4)], err_msg=str(size))
