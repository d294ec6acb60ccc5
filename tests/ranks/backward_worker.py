"""Steps in which some ranks hold, look up or train nothing, and plans with odd shards.

Part of checks_worker.py.
"""

import itertools

import numpy as np
import tensorflow as tf
from distributed_embeddings.collectives import World
from distributed_embeddings.exchange.gradients import sum_over_ranks
from distributed_embeddings.layers.embedding import Embedding
from distributed_embeddings.merlin.distributed_embedding import DistributedEmbedding

from nn.optim import optimizers

RAGGED = [[1, 0], [], [1], [0, 1, 1], [0], [1]]
PAIRS = [[0, 1], [1, 1], [1, 0], [0, 0], [1, 0], [0, 1]]


def tables(shapes, combiner="sum", **frozen):
    return [
        Embedding(
            rows, dim, combiner=combiner, name=f"t{t}", trainable=not frozen.get(f"t{t}", False)
        )
        for t, (rows, dim) in enumerate(shapes)
    ]


# Name: (tables, options of the layer, ids of each feature)
CASES = {
    "loose ragged ids": (tables([(2, 4), (2, 6)], None), {}, [RAGGED, RAGGED]),
    "fixed ids on one rank and ragged ids on another": (
        tables([(2, 4), (2, 4)]),
        {"strategy": "basic"},
        [PAIRS, RAGGED],
    ),
    "ranks without tables": (tables([(2, 4)]), {"column_slice_threshold": 10**8}, [PAIRS]),
    "a frozen table alone": (
        tables([(2, 4)], t0=True),
        {"column_slice_threshold": 10**8},
        [RAGGED],
    ),
    "more ranks than columns": (tables([(2, 2)]), {}, [PAIRS]),
    "more ranks than rows": (
        tables([(2, 4), (2, 4)]),
        {"row_slice_threshold": 1},
        [PAIRS, RAGGED],
    ),
    "a frozen table alone on a rank": (
        tables([(2, 4), (2, 4), (2, 4)], t0=True),
        {"strategy": "basic"},
        [PAIRS, PAIRS, PAIRS],
    ),
    "vectors side by side in column slices": (
        tables([(2, 16), (2, 16)], None),
        {"column_slice_threshold": 20},
        [PAIRS, PAIRS],
    ),
    "tables without a lookup": (
        tables([(2, 4), (3, 4), (2, 4)]),
        {"input_table_map": [0], "row_slice_threshold": 12},
        [PAIRS],
    ),
}


def run(world, case, compiled):
    """Outputs of this rank's samples after a step, and all tables."""
    embeddings, options, features = CASES[case]
    name = "odd" if compiled else "_odd"  # TensorFlow's graphs refuse such a scope
    layer = DistributedEmbedding(embeddings, world=world, name=name, **options)
    layer.build(None)
    rng = np.random.default_rng(0)
    layer.set_weights([rng.normal(size=w.shape).astype("f") for w in layer.table_weights()])
    bounds = [len(PAIRS) * r // world.size for r in range(world.size + 1)]
    mine = slice(*bounds[world.rank : world.rank + 2])
    ids = [
        tf.ragged.constant(rows[mine], dtype=tf.int32, ragged_rank=1)
        if rows is RAGGED
        else tf.constant(rows[mine])
        for rows in features
    ]
    join = case == "vectors side by side in column slices"
    variables = layer.trainable_variables
    optimizer = optimizers.create("rowwise_adagrad", variables, 0.1, row_means=layer.row_means())

    def look_up():
        outputs = layer(ids, concatenate=join)
        return [outputs] if join else [getattr(o, "flat_values", o) for o in outputs]

    def step():
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = tf.add_n([tf.reduce_sum(tf.square(o)) for o in look_up()])
        gradients = tape.gradient(loss, variables)
        optimizer.apply(sum_over_ranks(world, gradients, variables, "g"), 0)

    if compiled:
        step, look_up = (tf.function(f, autograph=False) for f in (step, look_up))
    step()
    return [o.numpy() for o in look_up()], layer.get_weights(all_ranks=True)


def check(world) -> dict[str, list[bool]]:
    """By case, eager and compiled, whether weights and outputs are those of one rank."""
    report = {}
    for case, compiled in itertools.product(CASES, (False, True)):
        if not compiled:
            everyone, expected = run(World(), case, compiled)
        outputs, weights = run(world, case, compiled)
        same = all(np.allclose(a, b, atol=1e-5) for a, b in zip(weights, expected, strict=True))
        parts = [world.all_gather(o, f"outputs.{i}").numpy() for i, o in enumerate(outputs)]
        same_outputs = all(
            np.allclose(a, b, atol=1e-5) for a, b in zip(parts, everyone, strict=True)
        )
        report.setdefault(case, []).extend([bool(same), bool(same_outputs)])
    return report
