"""Trains small models on the ranks it is started on; rank 0 compares them with one rank's.

    python -m tests.ranks.equality_worker --reference FILE.npz       (one process: writes the file)
    horovodrun -np N python -m tests.ranks.equality_worker --reference FILE.npz

Each rank writes {scenario: what differs, or ""} as JSON to $RANK_RESULTS/RANK.json.
"""

import argparse
import itertools
import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from distributed_embeddings.layers.embedding import Embedding
from distributed_embeddings.layers.weights import TableUniform
from distributed_embeddings.merlin.distributed_embedding import DistributedEmbedding

from config.sections.optimizer import OptimizerConfig
from dataloading.pipeline.batch import Batch
from dataloading.pipeline.shuffle import share_of_rank
from nn.layers.fully_connected import MLP
from nn.optim.optimizers import create_optimizers
from nn.train.losses import binary_cross_entropy
from nn.train.trainer import Trainer
from runtime.cluster import distributed

TABLES = ((50, 8), (7, 8), (30, 4), (21, 8), (11, 16))
INPUT_TABLE_MAP = [0, 1, 2, 3, 4, 0]  # two features share the first table
BATCH_SIZES = (12, 7)  # an uneven last batch

OPTIMIZERS = {
    "sgd": ("sgd", "sgd", 0.5),
    "adagrad": ("adagrad", "adagrad", 0.1),
    "rowwise_adagrad": ("adagrad", "rowwise_adagrad", 0.1),
    "adam": ("adam", "adam", 0.01),
    "lazy_adam": ("adam", "lazy_adam", 0.01),
}
PLACEMENTS = {
    "basic": {"strategy": "basic"},
    "memory_balanced": {"strategy": "memory_balanced"},
    "memory_optimized": {"strategy": "memory_optimized"},
    "cost": {"strategy": "cost"},
    "column_slices": {"column_slice_threshold": 100},
    "host": {"strategy": "memory_balanced", "gpu_embedding_size": 100},
    "row_slices": {"row_slice_threshold": 150},
    "data_parallel": {"data_parallel_threshold": 180},
    "all_kinds": {
        "data_parallel_threshold": 60,
        "row_slice_threshold": 390,
        "column_slice_threshold": 120,
    },
}
INPUTS = ("one_hot", "multi_hot", "ragged", "model_parallel", "model_parallel_ragged")


class Scenario(NamedTuple):
    placement: str
    inputs: str
    optimizer: str
    compiled: bool = False
    dtype: str = "float32"
    exchange_dtype: str | None = None

    @property
    def name(self) -> str:
        parts = [self.placement, self.inputs, self.optimizer]
        parts += ["compiled"] if self.compiled else []
        parts += [self.dtype] if self.dtype != "float32" else []
        parts += [f"exchange_{self.exchange_dtype}"] if self.exchange_dtype else []
        return "-".join(parts)

    @property
    def tolerance(self) -> float:
        """Relative and absolute; bfloat16 has 8 bits of mantissa."""
        low = self.exchange_dtype or self.dtype != "float32"
        return 3e-2 if low else 3e-5


# Tracing one takes as long as a dozen others.
COMPILED = [Scenario("all_kinds", inputs, "adagrad", compiled=True) for inputs in INPUTS[:3]]
COMPILED.append(Scenario("column_slices", "model_parallel", "sgd", compiled=True))


def scenarios(turn: int) -> list[Scenario]:
    """Each placement with each kind of input, and with one optimizer: which one, depends on the
    turn, so that len(OPTIMIZERS) turns have all; and two of COMPILED."""
    pairs = [
        (placement, inputs)
        for placement, inputs in itertools.product(PLACEMENTS, INPUTS)
        if not (
            inputs.startswith("model_parallel")
            and placement in ("row_slices", "data_parallel", "all_kinds")
        )
    ]
    names = list(OPTIMIZERS)
    scenarios = [Scenario(*pair, names[(i + turn) % len(names)]) for i, pair in enumerate(pairs)]
    scenarios += [COMPILED[(turn + more) % len(COMPILED)] for more in (0, 1)]
    for dtype in ("mixed_bfloat16", "mixed_float16"):
        scenarios.append(Scenario("all_kinds", "ragged", "sgd", dtype=dtype))
    for dtype in ("bfloat16", "float16"):
        scenarios.append(Scenario("all_kinds", "multi_hot", "sgd", exchange_dtype=dtype))
    return scenarios


def all_rows(step: int, inputs: str):
    """(ids of each feature as lists of lists, labels) of a global batch."""
    rng = np.random.default_rng(step)
    count = BATCH_SIZES[step % len(BATCH_SIZES)]
    features = []
    for f, t in enumerate(INPUT_TABLE_MAP):
        rows = TABLES[t][0]
        if inputs.endswith("ragged"):
            features.append([rng.integers(0, rows, rng.integers(0, 4)) for _ in range(count)])
        else:
            hotness = 1 if inputs == "one_hot" else 1 + f % 3
            features.append(list(rng.integers(0, rows, [count, hotness])))
    return features, rng.integers(0, 2, [count, 1]).astype(np.float32)


class Rows:
    """Iterator of this rank's batches, padded as the loader pads them."""

    def __init__(self, world, scenario: Scenario, layer):
        self.world, self.scenario, self.layer = world, scenario, layer
        self.step = 0

    def get_next(self) -> Batch:
        features, labels = all_rows(self.step, self.scenario.inputs)
        self.step += 1
        count, size = len(labels), self.world.size
        shares = [share_of_rank(count, rank, size) for rank in range(size)]
        length = shares[0][2]

        def share(values, rank):
            begin, end, _ = shares[rank]
            empty = np.zeros(0, np.int64)
            filler = empty if self.scenario.inputs.endswith("ragged") else values[0]
            return [*values[begin:end], *[filler] * (length - (end - begin))]

        if self.scenario.inputs.startswith("model_parallel"):
            ids = [
                [row for rank in range(size) for row in share(features[f], rank)]
                for f in self.layer.input_ids_list[self.world.rank]
            ]
        else:
            ids = [share(values, self.world.rank) for values in features]
        begin, end, _ = shares[self.world.rank]
        weights = np.zeros([length, 1], np.float32)
        weights[: end - begin] = length * size / count
        labels = np.concatenate([labels[begin:end], np.zeros([length - (end - begin), 1], "f")])
        tensors = tuple(
            tf.ragged.constant([list(row) for row in rows], dtype=tf.int32, ragged_rank=1)
            if self.scenario.inputs.endswith("ragged")
            else tf.constant(np.stack(rows), tf.int32)
            for rows in ids
        )
        return Batch(tensors, tf.constant(labels), tf.constant(weights))


class Model(tf.Module):
    """Tables and two dense layers."""

    def __init__(self, world, scenario: Scenario):
        super().__init__()
        combiners = itertools.cycle(["sum", "mean"] if "hot" in scenario.inputs else ["sum"])
        self.embedding = DistributedEmbedding(
            [
                Embedding(
                    rows,
                    dim,
                    embeddings_initializer=TableUniform(1, f"t{t}"),
                    combiner=next(combiners),
                    name=f"t{t}",
                )
                for t, (rows, dim) in enumerate(TABLES)
            ],
            input_table_map=INPUT_TABLE_MAP,
            dp_input=not scenario.inputs.startswith("model_parallel"),
            world=world,
            exchange_dtype=scenario.exchange_dtype,
            dtype=scenario.dtype,
            name="embedding",
            **PLACEMENTS[scenario.placement],
        )
        self.embedding.build(None)
        self.mlp = MLP((6, 1), seed=1, linear_output=True, name="mlp", dtype=scenario.dtype)
        self.mlp(tf.zeros([1, sum(TABLES[t][1] for t in INPUT_TABLE_MAP)], self.mlp.compute_dtype))

    def __call__(self, ids):
        return tf.cast(self.mlp(self.embedding(ids, concatenate=True)), tf.float32)


def train(world, scenario: Scenario) -> dict[str, np.ndarray]:
    """Losses, weights after the steps, and outputs on one more batch; on every rank the same."""
    tf.config.run_functions_eagerly(not scenario.compiled)
    model = Model(world, scenario)
    dense, sparse, rate = OPTIMIZERS[scenario.optimizer]
    options = OptimizerConfig(
        optimizer=dense,
        embedding_optimizer=sparse,
        learning_rate=rate,
        warmup_steps=0,
        decay_steps=0,
        epsilon=1e-3,  # a gradient of 1e-9 that should be 0 must not move anything
    )
    optimizers = create_optimizers(
        options,
        model.mlp.trainable_variables,
        model.embedding.trainable_variables,
        model.embedding.row_means(),
    )

    def loss(model, batch):
        return binary_cross_entropy(batch.labels, model(batch.inputs), batch.weights), {}

    trainer = Trainer(model, loss, optimizers, world=world)
    rows = Rows(world, scenario, model.embedding)
    losses = []
    for _ in BATCH_SIZES:
        if scenario.compiled:
            dataset = tf.data.Dataset.from_tensors(rows.get_next())
            trainer.train_step(iter(dataset))
        else:
            trainer.train_step(rows)
        losses.append(trainer.progress().loss)
    result = {"losses": np.asarray(losses)}
    for t, table in enumerate(model.embedding.get_weights(all_ranks=True)):
        result[f"table {t}"] = table
    for v in model.mlp.trainable_variables:
        result[v.name] = v.numpy()
    last = rows.get_next()  # of a full batch
    outputs = world.all_gather(model(last.inputs), "outputs")
    result["outputs"] = outputs.numpy()[world.all_gather(last.weights, "real").numpy()[:, 0] > 0]
    return result


def difference(actual, expected, tolerance: float) -> str:
    for key, value in actual.items():
        if value.shape != expected[key].shape:
            return f"{key} is {value.shape}, expected {expected[key].shape}"
        if not np.allclose(value, expected[key], rtol=tolerance, atol=tolerance):
            return f"{key} is off by {np.abs(value - expected[key]).max():.2g}"
    return ""


def one_rank(world) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(what to compare with, {scenario: what differs from it on one rank, or ""}).

    On one rank all tables are where the samples are, so that a placement changes nothing: one will
    do for every kind of input and optimizer.
    """
    reference = {}
    for inputs, optimizer in itertools.product(INPUTS, OPTIMIZERS):
        expected = train(world, Scenario("basic", inputs, optimizer))
        reference.update({f"{inputs}/{optimizer}/{key}": v for key, v in expected.items()})
    chosen = dict.fromkeys([*scenarios(turn=0), *COMPILED])
    return reference, compare(world, chosen, reference)


def compare(world, chosen, reference: dict[str, np.ndarray]) -> dict[str, str]:
    """{scenario: what differs from one rank in eager float32, or ""}."""
    report = {}
    for scenario in chosen:
        result = train(world, scenario)
        key = f"{scenario.inputs}/{scenario.optimizer}"
        expected = {name: reference[f"{key}/{name}"] for name in result}
        report[scenario.name] = difference(result, expected, scenario.tolerance)
    return report


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reference", required=True)
    parser.add_argument("--turn", type=int, help="see `scenarios`")
    args = parser.parse_args()
    world = distributed.connect()
    if world.size == 1:
        reference, report = one_rank(world)
        np.savez(args.reference, **reference)
    else:
        with np.load(args.reference) as stored:
            report = compare(world, scenarios(args.turn), dict(stored))
    folder = Path(os.environ["RANK_RESULTS"])
    (folder / f"{world.rank}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main()
