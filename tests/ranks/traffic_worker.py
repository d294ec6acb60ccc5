"""Counts the bytes that go through the world in a training step, next to those of the plan.

    horovodrun -np N python -m tests.ranks.traffic_worker

Each rank writes {scenario: {"counted": ..., "planned": ...}} as JSON to $RANK_RESULTS/RANK.json;
both are {kind: [bytes sent to other ranks, bytes received from them]}.
"""

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from distributed_embeddings.collectives import World
from distributed_embeddings.layers.embedding import Embedding
from distributed_embeddings.merlin.distributed_embedding import DistributedEmbedding
from distributed_embeddings.planner import Plan, Table
from distributed_embeddings.planner.traffic import (
    COPIES,
    DENSE,
    GRADIENTS,
    IDS,
    VECTORS,
    BatchSizes,
    traffic,
)
from embedding_testing.plans import plan_of

from config.sections.optimizer import OptimizerConfig
from nn.optim.optimizers import create_optimizers
from nn.train.trainer import Trainer
from runtime.cluster import distributed

TABLES = ((50, 8), (7, 8), (30, 4), (21, 8), (11, 16))
INPUT_TABLE_MAP = (0, 1, 2, 3, 4, 0)  # two features share the first table
GLOBAL_BATCH_SIZE = 12
DENSE_SHAPES = ((5, 3), (4,))
SUMS = "sums"  # of copied tables and of dense gradients, which travel together

ALL_KINDS = {
    "data_parallel_threshold": 60,
    "row_slice_threshold": 390,
    "column_slice_threshold": 120,
}


class Scenario(NamedTuple):
    """A plan and what its features and its exchange are like.

    Attributes:
      thresholds: arguments of `plan`.
      hotness: maximum of ids per sample; 0: one.
      ragged: samples differ in their number of ids.
      combiner: of all tables.
      ids, exchange: dtypes.
      more: rows and columns of one more table, with a feature.
    """

    thresholds: dict
    hotness: int = 1
    ragged: bool = False
    combiner: str | None = "sum"
    ids: str = "int32"
    exchange: str = "float32"
    optimizer: str = "sgd"
    dp_input: bool = True
    more: tuple[tuple[int, int], ...] = ()


SCENARIOS = {
    "whole tables": Scenario({}),
    "whole tables, int64": Scenario({}, ids="int64"),
    "whole tables, half exchange": Scenario({}, hotness=3, exchange="float16"),
    "whole tables, ragged": Scenario({}, hotness=4, ragged=True),
    "without combiner": Scenario({}, hotness=2, combiner=None),
    "without combiner, ragged": Scenario({}, 3, ragged=True, combiner=None, exchange="bfloat16"),
    "model-parallel input": Scenario({}, hotness=2, dp_input=False),
    "column slices": Scenario({"column_slice_threshold": 100}, hotness=2),
    "column slices, row-wise": Scenario(
        {"column_slice_threshold": 100}, hotness=2, optimizer="rowwise_adagrad"
    ),
    "row slices": Scenario({"row_slice_threshold": 150}, hotness=3),
    "row slices, half exchange": Scenario({"row_slice_threshold": 1}, exchange="bfloat16"),
    "copied tables": Scenario({"data_parallel_threshold": 180}, hotness=2),
    "a large copied table": Scenario(
        {"data_parallel_threshold": 2**23}, hotness=2, more=((2**16 + 5, 64),)
    ),
    "all kinds": Scenario(
        ALL_KINDS, hotness=3, ragged=True, exchange="bfloat16", optimizer="rowwise_adagrad"
    ),
}


_counted = defaultdict(lambda: [0.0, 0.0])  # {kind: [bytes sent, bytes received]}


class CountingWorld(World):
    """The ranks, and how many bytes of each kind went to others and came from them."""

    def _count(self, kind: str, sent: float, received: float) -> None:
        _counted[kind][0] += sent
        _counted[kind][1] += received

    def all_to_all(self, tensor, splits, name):
        received, received_splits = super().all_to_all(tensor, splits, name)
        row_bytes = tensor.dtype.size * int(np.prod(tensor.shape[1:]))
        out, back = (
            row_bytes * float(np.delete(np.asarray(sizes), self.rank).sum())
            for sizes in (splits, received_splits)
        )
        last = name.rpartition(".")[2]
        kinds = {"ids": IDS, "lengths": IDS, "gradient": GRADIENTS, "row_means": GRADIENTS}
        self._count(kinds.get(last, VECTORS), out, back)
        return received, received_splits

    def all_reduce(self, tensors, op, name):
        if name.startswith("gradients"):
            # A ring: 2 (n - 1) / n of what is summed. bfloat16 travels as float32.
            widths = [4 if t.dtype == tf.bfloat16 else t.dtype.size for t in tensors]
            sizes = [int(tf.size(t)) * width for t, width in zip(tensors, widths, strict=True)]
            passed = 2 * (self.size - 1) / self.size * sum(sizes)
            self._count(SUMS, passed, passed)
        return super().all_reduce(tensors, op, name)

    def all_gather(self, tensor, name):
        gathered = super().all_gather(tensor, name)
        if name.startswith("gradients"):
            passed = (self.size - 1) / self.size * int(tf.size(gathered)) * gathered.dtype.size
            self._count(SUMS, passed, passed)
        return gathered


class Model(tf.Module):
    """Tables and some dense weights; the loss touches all of them."""

    def __init__(self, world, scenario: Scenario, plan: Plan):
        super().__init__()
        combiner = scenario.combiner
        self.embedding = DistributedEmbedding(
            [
                Embedding(table.rows, table.dim, combiner=combiner, name=table.name)
                for table in plan.tables
            ],
            input_table_map=[feature.table for feature in plan.features],
            dp_input=scenario.dp_input,
            world=world,
            plan=plan,
            exchange_dtype=scenario.exchange,
            name="embedding",
        )
        self.embedding.build(None)
        self.dense = [tf.Variable(tf.ones(shape)) for shape in DENSE_SHAPES]

    def loss(self, _, inputs):
        outputs = [getattr(o, "values", o) for o in self.embedding(inputs)]
        factor = tf.add_n([tf.reduce_sum(v) for v in self.dense])
        return factor * tf.add_n([tf.reduce_sum(tf.square(o)) for o in outputs]), {}


class Rows:
    """An iterator of one batch, again and again."""

    def __init__(self, batch):
        self.batch = batch

    def get_next(self):
        return self.batch


def make_plan(world, scenario: Scenario) -> Plan:
    shapes = (*TABLES, *scenario.more)
    features = (*INPUT_TABLE_MAP, *range(len(TABLES), len(shapes)))
    return plan_of(
        [Table(f"t{t}", rows, dim) for t, (rows, dim) in enumerate(shapes)],
        world.size,
        input_table_map=features,
        hotness=[scenario.hotness] * len(features),
        combined=[scenario.combiner is not None] * len(features),
        global_batch_size=GLOBAL_BATCH_SIZE,
        exchange_itemsize=tf.as_dtype(scenario.exchange).size,
        id_itemsize=tf.as_dtype(scenario.ids).size,
        state_bytes_per_row=4 if scenario.optimizer == "rowwise_adagrad" else 0,
        dp_input=scenario.dp_input,
        **scenario.thresholds,
    )


def draw(plan: Plan, scenario: Scenario) -> list[list[list[np.ndarray]]]:
    """Ids of each rank's samples, [rank][feature][sample]; the same on all ranks."""
    rng = np.random.default_rng(1)

    def count() -> int:
        return rng.integers(0, scenario.hotness + 1) if scenario.ragged else scenario.hotness

    return [
        [
            [
                rng.integers(0, plan.tables[feature.table].rows, count())
                for _ in range(GLOBAL_BATCH_SIZE // plan.world_size)
            ]
            for feature in plan.features
        ]
        for _ in range(plan.world_size)
    ]


def count_ids(plan: Plan, scenario: Scenario, drawn) -> BatchSizes:
    """Counts in the ids what the plan's exchange depends on."""

    def different(t: int, ranks) -> set[int]:
        features = plan.workload.features_of[t]
        return {i for r in ranks for f in features for sample in drawn[r][f] for i in sample}

    ranks = range(plan.world_size)
    distinct = {}
    for t in plan.row_sliced_tables:
        bounds = plan.row_bounds(t)
        distinct[t] = tuple(
            tuple(
                sum(bounds[owner] <= i < bounds[owner + 1] for i in different(t, [rank]))
                for owner in ranks
            )
            for rank in ranks
        )
    return BatchSizes(
        samples=tuple(len(ids[0]) for ids in drawn),
        ids=tuple(tuple(sum(map(len, samples)) for samples in features) for features in drawn),
        ragged=(scenario.ragged,) * len(plan.features),
        distinct=distinct,
        touched={t: len(different(t, ranks)) for t in plan.table_parallel_tables},
    )


def inputs_of(world, plan: Plan, scenario: Scenario, drawn) -> tuple:
    """Returns the arguments of a call of the tables."""
    wanted, ranks = range(len(plan.features)), [world.rank]
    if not scenario.dp_input:
        wanted, ranks = plan.input_ids_list[world.rank], range(world.size)
    rows = [[sample for rank in ranks for sample in drawn[rank][f]] for f in wanted]
    dtype = tf.as_dtype(scenario.ids)
    if scenario.ragged:
        return tuple(
            tf.ragged.constant([[*row] for row in samples], dtype=dtype, ragged_rank=1)
            for samples in rows
        )
    return tuple(tf.constant(np.stack(samples), dtype) for samples in rows)


def run(scenario: Scenario) -> dict:
    connected = distributed.connect()
    world = CountingWorld(connected.rank, connected.size)
    plan = make_plan(world, scenario)
    drawn = draw(plan, scenario)
    model = Model(world, scenario, plan)
    options = OptimizerConfig(
        optimizer="sgd", embedding_optimizer=scenario.optimizer, warmup_steps=0, decay_steps=0
    )
    tables = model.embedding
    optimizers = create_optimizers(
        options, model.dense, tables.trainable_variables, tables.row_means()
    )
    trainer = Trainer(model, model.loss, optimizers, world=world)
    _counted.clear()
    trainer.train_step(Rows(inputs_of(world, plan, scenario, drawn)))
    dense_bytes = sum(4 * int(np.prod(shape)) for shape in DENSE_SHAPES)
    estimate = traffic(plan, count_ids(plan, scenario, drawn), dense_bytes=dense_bytes)[world.rank]
    planned = {
        kind: [estimate.sent(kind), estimate.received(kind)] for kind in (IDS, VECTORS, GRADIENTS)
    }
    planned[SUMS] = [
        bytes_of(COPIES) + bytes_of(DENSE) for bytes_of in (estimate.sent, estimate.received)
    ]
    return {
        "counted": {kind: _counted[kind] for kind in planned},
        "planned": planned,
        "kinds": sorted({shard.kind for shard in plan.local_shards(world.rank)}),
        "slices": max(map(len, plan.column_slices)),
    }


def main() -> None:
    tf.config.run_functions_eagerly(True)
    report = {name: run(scenario) for name, scenario in SCENARIOS.items()}
    rank = distributed.current().rank
    Path(os.environ["RANK_RESULTS"], f"{rank}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main()
