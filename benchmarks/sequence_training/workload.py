"""Workload of the sequence benchmark: sizes and rows.

NumPy only: the environment of the PyTorch side has nothing else.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dataloading.synthetic.power_law import PowerLaw

MODEL_TYPES = ("sim", "dien", "din")
LEARNING_RATE = 0.01
# Exponents of the power laws: the most popular item has 0.5 % of the events, the largest category
# 12 %. These are guesses at Amazon Books, whose sizes are below, not fits.
ITEM_ALPHA, CATEGORY_ALPHA, USER_ALPHA = 0.7, 1.0, 0.7
# Users have at least 20 events; P(more than n) falls as (n / 20)^-1.5.
MIN_EVENTS, EVENTS_ALPHA = 20, 1.5


@dataclass(frozen=True)
class SequenceSizes:
    """Sizes of the model and of its batches; the defaults are the recipe's on Amazon Books."""

    batch_size: int = 4096
    num_batches: int = 8  # different ones; an epoch of the benchmark
    users: int = 105_925
    items: int = 1_209_081
    categories: int = 2_330
    embedding_dim: int = 16
    history_length: int = 100
    long_seq_length: int = 90
    top_k: int = 50
    num_heads: int = 4
    stage_one_mlp_dims: tuple[int, ...] = (200,)
    stage_two_mlp_dims: tuple[int, ...] = (200, 80)
    aux_mlp_dims: tuple[int, ...] = (100, 50)

    @property
    def item_dim(self) -> int:
        """Elements of an item's vector: item and category."""
        return 2 * self.embedding_dim


class SequenceRows(NamedTuple):
    """user [n, 1], target item and category [n, 1], positive and negative histories [n, length] of
    items and their categories, all int32; labels [n, 1] float32."""

    user: np.ndarray
    target_item: np.ndarray
    target_category: np.ndarray
    positive_item: np.ndarray
    positive_category: np.ndarray
    negative_item: np.ndarray
    negative_category: np.ndarray
    labels: np.ndarray


def make_rows(sizes: SequenceSizes, seed: int = 1) -> SequenceRows:
    """Rows as the preparation makes them: each event twice, with its own item and a negative one.

    Histories are right-aligned; negatives are drawn uniformly. Ids start at 1.
    """
    random = np.random.default_rng(seed)
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

    targets = np.stack([bought, any_items(pairs)], axis=1).reshape(-1, 1)
    positive = np.repeat(positive, 2, axis=0)
    negative = np.repeat(real, 2, axis=0) * any_items(positive.shape)
    rows = SequenceRows(
        user=np.repeat(users, 2)[:, np.newaxis],
        target_item=targets,
        target_category=category_of[targets],
        positive_item=positive,
        positive_category=category_of[positive],
        negative_item=negative,
        negative_category=category_of[negative],
        labels=np.tile([[1.0], [0.0]], [pairs, 1]).astype(np.float32),
    )
    order = random.permutation(2 * pairs)  # as a training shuffles
    return SequenceRows(*(column[order] for column in rows))


def _draw(random: np.random.Generator, cardinality: int, alpha: float, shape) -> np.ndarray:
    """Ids 1 to cardinality - 1, int32, by a power law, in an order of its own."""
    names = np.random.default_rng(cardinality).permutation(cardinality - 1).astype(np.int32)
    return 1 + names[PowerLaw(cardinality - 1, alpha).draw(random, shape)]
