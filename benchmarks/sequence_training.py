"""Training throughput of SIM, DIEN and DIN compared with plain PyTorch, in one interleaved run."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from benchmarks.harness import training
from benchmarks.harness.tensorflow_training import (
    RecipeTraining,
    constant_rate,
    labelled,
    load_on_cpu,
)
from benchmarks.harness.training import Case, Side, TrainingOptions
from dataloading.pipeline.batch import SequenceInputs
from dataloading.synthetic.power_law import PowerLaw
from nn.optim.optimizers import create_optimizers
from nn.sequence.loss import sequence_loss
from nn.sequence.model import SequenceModel
from nn.sequence.sizes import SequenceModelConfig
from nn.train.trainer import Trainer

OURS = Side("ours (TensorFlow)", "sequence_training")
PEERS = training.adam_peers("peers.torch_sequence")
# Models, and the targets; the others are for information.
TARGETS = {"sim": 1.3, "dien": None, "din": None}
# After the first step, PyTorch's dense Adam has another epsilon, and moves rows that do not occur.
LOSS_TOLERANCE = 2e-3
# Exponents of the power laws: the most popular item has 0.5 % of the events, the largest category
# 12 %. These are guesses at Amazon Books, whose sizes are below, not fits.
ITEM_ALPHA, CATEGORY_ALPHA, USER_ALPHA = 0.7, 1.0, 0.7
# Users have at least 20 events; P(more than n) falls as (n / 20)^-1.5.
MIN_EVENTS, EVENTS_ALPHA = 20, 1.5
# The recipe's on Amazon Books.
SIZES = {
    "batch_size": 4096,
    "num_batches": 8,  # different ones
    "users": 105_925,
    "items": 1_209_081,
    "categories": 2_330,
    "learning_rate": 0.01,
    "embedding_dim": 16,
    "history_length": 100,
    "long_seq_length": 90,
    "top_k": 50,
    "stage_one_mlp_dims": (200,),
    "stage_two_mlp_dims": (200, 80),
    "aux_mlp_dims": (100, 50),
}
QUICK = {"batch_size": 16, "num_batches": 2, "users": 100, "items": 200, "categories": 20}
QUICK |= {"history_length": 12, "long_seq_length": 8, "top_k": 4}
OF_MODEL = ("embedding_dim", "history_length", "long_seq_length", "top_k")
OF_MODEL += ("stage_one_mlp_dims", "stage_two_mlp_dims", "aux_mlp_dims")


def make_rows(sizes: SimpleNamespace, folder: Path) -> dict[str, np.ndarray]:
    """Rows as the preparation makes them: each event twice, with its own item and a negative one.

    Histories are right-aligned; negatives are drawn uniformly. Ids start at 1.

    Returns:
        user, target_item, target_category: int32 [n, 1].
        positive_item, positive_category, negative_item, negative_category: histories, int32
            [n, length].
        labels: float32 [n, 1].
    """
    random = np.random.default_rng(1)
    pairs = sizes.batch_size * sizes.num_batches // 2
    category_of = np.zeros(sizes.items, np.int32)
    category_of[1:] = _draw(random, sizes.categories, CATEGORY_ALPHA, sizes.items - 1)
    users = _draw(random, sizes.users, USER_ALPHA, pairs)
    # An event of a user of many events is as likely to be met as any: sizes are biased by length.
    events = MIN_EVENTS * random.random(pairs) ** (-1 / (EVENTS_ALPHA - 1))
    earlier = 1 + np.floor(random.random(pairs) * (events - 1))
    lengths = np.minimum(earlier, sizes.history_length).astype(np.int64)
    real = np.arange(sizes.history_length) >= sizes.history_length - lengths[:, np.newaxis]
    bought = _draw(random, sizes.items, ITEM_ALPHA, pairs)
    positive = real * _draw(random, sizes.items, ITEM_ALPHA, real.shape)

    def any_items(shape):
        return random.integers(1, sizes.items, shape, np.int32)

    target = np.stack([bought, any_items(pairs)], axis=1).reshape(-1, 1)
    positive = np.repeat(positive, 2, axis=0)
    items = {"target": target, "positive": positive}
    items["negative"] = np.repeat(real, 2, axis=0) * any_items(positive.shape)
    rows = {"user": np.repeat(users, 2)[:, np.newaxis]}
    rows |= {f"{name}_item": ids for name, ids in items.items()}
    rows |= {f"{name}_category": category_of[ids] for name, ids in items.items()}
    rows["labels"] = np.tile([[1.0], [0.0]], [pairs, 1]).astype(np.float32)
    order = random.permutation(2 * pairs)  # as a training shuffles
    return {name: column[order] for name, column in rows.items()}


def _draw(random: np.random.Generator, cardinality: int, alpha: float, shape) -> np.ndarray:
    """Ids 1 to cardinality - 1, int32, by a power law, in an order of its own."""
    names = np.random.default_rng(cardinality).permutation(cardinality - 1).astype(np.int32)
    return 1 + names[PowerLaw(cardinality - 1, alpha).draw(random, shape)]


def start(folder: Path, model_type: str) -> RecipeTraining:
    """Our side: model, optimizers and training step of `sim.py`."""
    rows, sizes = load_on_cpu(folder)
    config = SequenceModelConfig(
        model_type=model_type,
        user_features=("user_id",),
        user_cardinalities=(sizes.users,),
        item_features=("item_id", "cat_id"),
        item_cardinalities=(sizes.items, sizes.categories),
        **{name: getattr(sizes, name) for name in OF_MODEL},
    )
    model = SequenceModel(config, seed=1)
    inputs = SequenceInputs(
        user=(rows.user,),
        target=(rows.target_item, rows.target_category),
        positive=(rows.positive_item, rows.positive_category),
        negative=(rows.negative_item, rows.negative_category),
    )
    options = constant_rate("adam", sizes.learning_rate)
    optimizers = create_optimizers(options, model.dense_variables, model.table_variables)
    batches = labelled(inputs, rows.labels, sizes.batch_size)
    trainer = Trainer(model, sequence_loss, optimizers)
    tables = ("user", "item", "category")
    return RecipeTraining(model, trainer, batches).save_weights(folder, tables)


def main(argv: Sequence[str] | None = None) -> int:
    args = training.parse(TrainingOptions, argv, "sequence_training", __doc__)
    sizes = SimpleNamespace(**SIZES | (QUICK if args.quick else {}))
    kept = [peer.memory_kept() for peer in PEERS]
    cases = [
        Case(
            model,
            # a DIEN that keeps its memory takes 3 GiB
            (OURS, *PEERS, *(kept if model == "sim" else ())),
            sizes,
            {"model_type": model},
            1e-2 if args.quick else LOSS_TOLERANCE,
            target,
        )
        for model, target in TARGETS.items()
    ]
    title = "Training throughput of SIM, DIEN and DIN"
    return training.run("sequence_training", title, cases, make_rows, args, "float32, Adam")


if __name__ == "__main__":
    sys.exit(main())
