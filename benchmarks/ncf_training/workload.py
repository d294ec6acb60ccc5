"""Workload of the NCF benchmark: sizes and rows.

NumPy only: the environment of the PyTorch side has nothing else.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dataloading.synthetic.power_law import PowerLaw

LEARNING_RATE = 0.0045
BETA1, BETA2, EPSILON = 0.25, 0.5, 1e-8
NEGATIVES = 4  # of each interaction
# P(a user has more than n interactions) falls as (n / 20)^-1.16 from 20 on: their mean is then that
# of MovieLens, 144. The most popular item has 0.7 % of ml-20m. Both are guesses, not fits.
MIN_INTERACTIONS, MAX_INTERACTIONS, USER_ALPHA, ITEM_ALPHA = 20, 9254, 1.16, 0.6
# (users, items) of the data sets of the name.
SHAPES = {"ml-20m": (138_493, 26_744), "ml-1m": (6_040, 3_706)}


@dataclass(frozen=True)
class NCFSizes:
    """Sizes of the model and of its batches; the defaults are the recipe's on ml-20m."""

    users: int = SHAPES["ml-20m"][0]
    items: int = SHAPES["ml-20m"][1]
    factors: int = 64
    layers: tuple[int, ...] = (256, 256, 128, 64)
    dropout: float = 0.5
    batch_size: int = 2**17
    num_batches: int = 4  # different ones; an epoch of the benchmark


class NCFRows(NamedTuple):
    """user, item [n] int32; labels [n, 1] float32."""

    user: np.ndarray
    item: np.ndarray
    labels: np.ndarray


def of_shape(shape: str, batch_size: int) -> NCFSizes:
    users, items = SHAPES[shape]
    return replace(NCFSizes(), users=users, items=items, batch_size=batch_size)


def make_rows(sizes: NCFSizes, seed: int = 1) -> NCFRows:
    """Rows as the loader makes them: shuffled interactions and uniform negatives.

    A batch is a small part of an epoch, so that its samples are drawn independently: a user as
    often as he has interactions, whether the sample is one of them or a negative.
    """
    random = np.random.default_rng(seed)
    count = sizes.batch_size * sizes.num_batches
    events = MIN_INTERACTIONS * random.random(sizes.users) ** (-1 / USER_ALPHA)
    cumulative = np.cumsum(np.minimum(events, MAX_INTERACTIONS))
    users = np.searchsorted(cumulative, random.random(count) * cumulative[-1], side="right")
    positive = random.random(count) < 1 / (1 + NEGATIVES)
    names = random.permutation(sizes.items)  # a popular item's id is any
    popular = names[PowerLaw(sizes.items, ITEM_ALPHA).draw(random, count)]
    items = np.where(positive, popular, random.integers(0, sizes.items, count))
    labels = positive.astype(np.float32)[:, np.newaxis]
    return NCFRows(users.astype(np.int32), items.astype(np.int32), labels)
