"""Training throughput of NeuMF compared with plain PyTorch, in one interleaved run."""

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
from dataloading.pipeline.batch import InteractionInputs
from dataloading.synthetic.power_law import PowerLaw
from nn.ncf.model import NCFModel, ncf_loss
from nn.ncf.sizes import NEUMF, NCFConfig, embedding_tables
from nn.train.trainer import Trainer

OURS = Side("ours (TensorFlow)", "ncf_training")
LAZY, DENSE = training.adam_peers("peers.torch_ncf")
LOW = Side("ours, bfloat16", "ncf_training", options=(("dtype", "mixed_bfloat16"),))
SIDES = (OURS, LAZY, DENSE, DENSE.memory_kept(), LOW._replace(is_compared=False, is_peer=False))
TARGET_RATIO = 1.5
# Adam makes a step of full length of the sign of a gradient that rounding decides, and the dense
# one moves rows that do not occur.
LOSS_TOLERANCE = 2e-3
NEGATIVES = 4  # of each interaction
# P(a user has more than n interactions) falls as (n / 20)^-1.16 from 20 on: their mean is then that
# of MovieLens, 144. The most popular item has 0.7 % of ml-20m. Both are guesses, not fits.
MIN_INTERACTIONS, MAX_INTERACTIONS, USER_ALPHA, ITEM_ALPHA = 20, 9254, 1.16, 0.6
# (users, items) of the data sets of the name.
SHAPES = {"ml-20m": (138_493, 26_744), "ml-1m": (6_040, 3_706)}
DROPOUT = 0.5
# The recipe's on ml-20m.
SIZES = {
    "factors": 64,
    "layers": (256, 256, 128, 64),
    "batch_size": 2**17,
    "num_batches": 4,  # different ones
    "learning_rate": 0.0045,
    "betas": (0.25, 0.5),
    "epsilon": 1e-8,
}


def make_rows(sizes: SimpleNamespace, folder: Path) -> dict[str, np.ndarray]:
    """Rows as the loader makes them: shuffled interactions and uniform negatives.

    A batch is a small part of an epoch, so that its samples are drawn independently: a user as
    often as he has interactions, whether the sample is one of them or a negative.

    Returns:
        user, item: int32 [n].
        labels: float32 [n, 1].
    """
    random = np.random.default_rng(1)
    count = sizes.batch_size * sizes.num_batches
    events = MIN_INTERACTIONS * random.random(sizes.users) ** (-1 / USER_ALPHA)
    cumulative = np.cumsum(np.minimum(events, MAX_INTERACTIONS))
    users = np.searchsorted(cumulative, random.random(count) * cumulative[-1], side="right")
    positive = random.random(count) < 1 / (1 + NEGATIVES)
    names = random.permutation(sizes.items)  # a popular item's id is any
    popular = names[PowerLaw(sizes.items, ITEM_ALPHA).draw(random, count)]
    items = np.where(positive, popular, random.integers(0, sizes.items, count))
    labels = positive.astype(np.float32)[:, np.newaxis]
    return {"user": users.astype(np.int32), "item": items.astype(np.int32), "labels": labels}


def start(folder: Path, dropout: float, dtype: str = "float32") -> RecipeTraining:
    """Our side: model, optimizers and training step of `ncf.py`."""
    rows, sizes = load_on_cpu(folder)
    shape = NCFConfig(NEUMF, sizes.users, sizes.items, sizes.factors, sizes.layers, dropout)
    model = NCFModel(shape, seed=1, dtype=dtype)
    beta1, beta2 = sizes.betas
    adam = {"beta1": beta1, "beta2": beta2, "epsilon": sizes.epsilon}
    options = constant_rate("adam", sizes.learning_rate, **adam)
    trainer = Trainer(model, ncf_loss, model.create_optimizers(options))
    inputs = InteractionInputs(rows.user, rows.item)
    batches = labelled(inputs, rows.labels, sizes.batch_size)
    tables = [name for name, _, _ in embedding_tables(shape)]
    return RecipeTraining(model, trainer, batches).save_weights(folder, tables)


def main(argv: Sequence[str] | None = None) -> int:
    args = training.parse(TrainingOptions, argv, "ncf_training", __doc__, rounds=6, steps=1)
    quick = {"batch_size": 256} if args.quick else {}
    cases = [
        Case(
            shape,
            SIDES,
            SimpleNamespace(users=users, items=items, **SIZES | quick),
            {"dropout": DROPOUT},
            1e-2 if args.quick else LOSS_TOLERANCE,
            TARGET_RATIO,
            compared_options={"dropout": 0.0},  # each side draws the units in its own way
        )
        for shape, (users, items) in SHAPES.items()
    ]
    fact = f"float32, dropout {DROPOUT}, Adam; losses are compared without dropout"
    title = "Training throughput of NeuMF"
    return training.run("ncf_training", title, cases, make_rows, args, fact)


if __name__ == "__main__":
    sys.exit(main())
