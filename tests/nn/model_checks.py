"""Checks of a model's training step: numeric gradients, and two ranks against one."""

import numpy as np
import tensorflow as tf
from distributed_embeddings.collectives import World
from distributed_embeddings.exchange.gradients import sum_over_ranks
from distributed_embeddings.planner import Table
from embedding_testing.fake_world import TensorWorld, run_threads
from embedding_testing.plans import plan_of

from nn.optim.optimizers import create


def optimizer_groups(model):
    dense, tables = model.dense_variables, model.table_variables
    return [create("adam", dense, 0.1), create("lazy_adam", tables, 0.1)]


def check_gradients(loss, variables):
    """Numeric gradients along one direction per variable, in float64.

    Args:
        loss: Returns the loss of the variables' values, always with the same random numbers.
    """
    loss = tf.function(loss, autograph=False)
    with tf.GradientTape() as tape:
        total = loss()
    rng, step = np.random.default_rng(3), 1e-6
    for variable, gradient in zip(variables, tape.gradient(total, variables), strict=True):
        direction = rng.normal(size=variable.shape)
        values = variable.numpy()
        ends = []
        for sign in (1, -1):
            variable.assign(values + sign * step * direction)
            ends.append(float(loss()))
        variable.assign(values)
        numeric = (ends[0] - ends[1]) / (2 * step)
        analytic = np.sum(np.array(tf.convert_to_tensor(gradient)) * direction)
        np.testing.assert_allclose(analytic, numeric, rtol=1e-5, atol=1e-8, err_msg=variable.name)


def check_two_ranks(kind, loss, config, tables, batch, **placement):
    """Two ranks, one with a padding row, give the loss and SGD step of one rank with all 5 rows.

    Args:
        kind: The class of the model.
        tables: (name, rows, columns) of each.
        **placement: Arguments of `plan_of`.
    """
    tables = [Table(*table) for table in tables]
    whole = plan_of(tables, 2, combined=[False] * len(tables), **placement)
    weights = tf.constant([[[1.2]] * 3, [[1.2], [1.2], [0.0]]])  # 3 rows * 2 ranks / 5 real ones

    def run(world):
        world = TensorWorld(world)
        mine = [[0, 1, 2], [3, 4, 0]][world.rank]
        share = tf.nest.map_structure(lambda of: tf.gather(of, mine), batch)
        share = share._replace(weights=weights[world.rank])
        model = kind(config, seed=4, dtype="float64", world=world, plan=whole)
        return step_of_sgd(model, loss, share, world)

    one = kind(config, seed=4, dtype="float64")
    total, dense, of_tables = step_of_sgd(one, loss, batch, World())
    results = run_threads(2, run)
    np.testing.assert_allclose(np.mean([result[0] for result in results]), total, rtol=1e-7)
    for _, dense_of_rank, tables_of_rank in results:
        for name, values in dense.items():
            np.testing.assert_allclose(dense_of_rank[name], values, atol=1e-7, err_msg=name)
        for got, expected in zip(tables_of_rank, of_tables, strict=True):
            np.testing.assert_allclose(got, expected, atol=1e-7)


def step_of_sgd(model, loss, batch, world):
    """(loss, dense weights by name, whole tables) after a step as the trainer takes it."""
    variables = [*model.dense_variables, *model.table_variables]
    with tf.GradientTape() as tape:
        total, _ = loss(model, batch)
        scaled = total / world.size
    gradients = tape.gradient(scaled, variables)
    gradients = sum_over_ranks(world, gradients, variables, "gradients")
    for variable, gradient in zip(variables, gradients, strict=True):
        if isinstance(gradient, tf.IndexedSlices):
            variable.scatter_sub(gradient)
        else:
            variable.assign_sub(gradient)
    dense = {model.name_of(v): v.numpy() for v in model.dense_variables}
    return float(total), dense, model.embedding.get_weights(all_ranks=True)
