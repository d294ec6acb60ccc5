"""Trains DLRM and DCNv2 with all optional parts on the ranks and, on each of them, on one rank.

Each rank writes {scenario: what differs, or ""} as JSON to $RANK_RESULTS/RANK.json.
"""

import itertools
import json
import os
from pathlib import Path

import numpy as np
import tensorflow as tf
from distributed_embeddings.collectives import World

from config.config import Config
from dataloading.pipeline.batch import Batch
from dataloading.pipeline.shuffle import share_of_rank
from dataloading.synthetic.rows import synthetic_spec
from nn.ctr.model import CTRModel
from nn.train.losses import click_loss
from nn.train.trainer import Trainer
from recipes.from_flags import make_plan
from recipes.ranking.shape import model_config
from recipes.registry import DLRM
from runtime.cluster import distributed

ROWS, HOTNESS = (50, 7, 30), (1, 2, 3)
EDGES = [[-1, 0, 0.5, 2], [0, 1]]
BATCH, UNEVEN, STEPS = 12, 13, 3  # batches of steps, the last one of each training is uneven
PLANS = {
    "table_wise": {"dist_strategy": "basic"},
    "column_wise": {"column_slice_threshold": 60},
    "row_wise": {"row_slice_threshold": 100},
    "replicated": {"data_parallel_threshold": 1000},
}
MODELS = {
    "dot": {"embedding_dim": "4"},
    "cross": {"embedding_dim": "4,2,8", "interaction": "cross"},
    "without_numbers": {"embedding_dim": "4", "num_numerical": 0},
}


def train(world: World, plan: str, model: str, optimizer: str) -> dict[str, np.ndarray]:
    """Returns losses, weights and scores after some compiled steps, the same on every rank."""
    flags = dict(MODELS[model])
    num_numerical = flags.pop("num_numerical", 2)
    config = Config(DLRM).replace(
        dataset_type="synthetic",
        bottom_mlp_dims=(6, 4),
        top_mlp_dims=(5, 1),
        numerical_embedding="bins",
        numerical_bins=3,
        wide=True,
        dropout_rate=0.3,
        optimizer=optimizer,
        learning_rate=0.05,
        warmup_steps=0,
        decay_steps=0,
        batch_size=BATCH,
        epsilon=1e-3,
        cross_layer_projection_dim=3,
        **PLANS[plan],
        **flags,
    )
    spec = synthetic_spec(ROWS, HOTNESS, num_numerical=num_numerical)
    interaction = "cross" if config.family_flags.interaction == "cross" else "dot_tensorflow"
    ranking = CTRModel(
        model_config(config, spec, interaction),
        edges=EDGES,
        plan=make_plan(config, spec, world.size),
        world=world,
        seed=1,
    )
    trainer = Trainer(ranking, click_loss, ranking.create_optimizers(config.optimizer), 1.0, world)
    for step in range(STEPS):
        size = UNEVEN if step == STEPS - 1 else BATCH
        trainer.train_step(batches(world, num_numerical, step, size))
    result = {"loss": np.asarray(trainer.progress().loss)}
    result |= {variable.name: variable.numpy() for variable in ranking.dense_variables}
    for number, table in enumerate(ranking.embedding.get_weights(all_ranks=True)):
        result[f"table {number}"] = table
    inputs = next(batches(world, num_numerical, STEPS, BATCH)).inputs
    result["logits"] = world.all_gather(ranking(inputs), "logits").numpy()
    return result


def batches(world: World, num_numerical: int, step: int, size: int):
    """Returns an iterator of one batch, this rank's share of the global one, as a loader's."""
    rng = np.random.default_rng(step)
    begin, end, length = share_of_rank(size, world.rank, world.size)
    share = [*range(begin, end), *[0] * (length - end + begin)]
    numerical = rng.normal(size=(size, num_numerical)).astype(np.float32)[share]
    ids = tuple(
        rng.integers(0, rows, (size, hotness)).astype(np.int32)[share]
        for rows, hotness in zip(ROWS, HOTNESS, strict=True)
    )
    labels = rng.integers(0, 2, (size, 1)).astype(np.float32)[share]
    weights = np.full_like(labels, length * world.size / size)
    weights[end - begin :] = 0
    batch = Batch((numerical, ids), labels, weights)
    return iter(tf.data.Dataset.from_tensors(batch))


def difference(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> str:
    """Returns the first value that differs, or ""."""
    for (name, value), wanted in zip(actual.items(), expected.values(), strict=True):
        if value.shape != wanted.shape or not np.allclose(value, wanted, 1e-4, 3e-5):
            return f"{name} differs"
    return ""


def main() -> None:
    world = distributed.connect()
    optimizers = itertools.cycle(["sgd", "adagrad", "adam"])
    report = {}
    for model in MODELS:
        for plan in PLANS:
            optimizer = next(optimizers)
            results = (train(w, plan, model, optimizer) for w in (world, World()))
            report[f"{model} {plan} {optimizer}"] = difference(*results)
    folder = Path(os.environ["RANK_RESULTS"])
    (folder / f"{world.rank}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main()
