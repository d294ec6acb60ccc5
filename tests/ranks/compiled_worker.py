"""Compiled functions that use one lookup, or its gradient, several times.

Part of checks_worker.py.
"""

import distributed_embeddings as dmp
import numpy as np
import tensorflow as tf
from distributed_embeddings.exchange.gradients import sum_over_ranks

STEPS = 20


def check(world) -> str:
    tables = [dmp.Embedding(5, 4, combiner="sum", name=f"t{t}") for t in range(3)]
    layer = dmp.DistributedEmbedding(tables, world=world, name="compiled")
    layer.build(None)
    variables = layer.trainable_variables
    inner = tf.function(lambda ids: layer(ids))

    def losses(look_up, ids):
        """Returns the losses of two lookups, the second of other ids."""
        return [
            tf.add_n([tf.reduce_sum(vectors**power) for power, vectors in enumerate(output, 2)])
            for output in (look_up(ids), look_up([4 - feature for feature in ids]))
        ]

    def together(look_up, ids):
        with tf.GradientTape() as tape:
            loss = tf.add_n(losses(look_up, ids))
        return dense(tape.gradient(loss, variables))

    def apart(look_up, ids):
        with tf.GradientTape(persistent=True) as tape:
            both = losses(look_up, ids)
        gradients = []
        for number, loss in enumerate(both):
            with tf.name_scope(f"scope_{number}"):
                gradients.append(dense(tape.gradient(loss, variables)))
        return [first + second for first, second in zip(*gradients, strict=True)]

    rng = np.random.default_rng(world.rank)
    compiled = [
        (tf.function(function), name) for function in (together, apart) for name in (layer, inner)
    ]
    for _ in range(STEPS):
        ids = [tf.constant(rng.integers(0, 5, [6, 2])) for _ in tables]
        expected = together(layer, ids)
        for function, look_up in compiled:
            for result, wanted in zip(function(look_up, ids), expected, strict=True):
                np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
    weight = tf.Variable([1.0, 2.0])

    @tf.function
    def constant():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight)
        return sum_over_ranks(world, [tape.gradient(loss, weight)], [weight], "constant")[0]

    for _ in range(2):
        np.testing.assert_array_equal(constant(), [world.size] * 2)
    return "equal"


def dense(gradients) -> list[tf.Tensor]:
    return [tf.convert_to_tensor(gradient) for gradient in gradients]
