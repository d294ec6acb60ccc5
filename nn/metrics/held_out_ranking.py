"""HR@k, NDCG@k and recall@k of held-out items among the items of each user."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from distributed_embeddings.collectives import World
from numpy.typing import NDArray

from nn.metrics.classification import NonFiniteScores
from nn.metrics.group_metrics import first_positive, ndcg
from nn.top_items import Pairs

# Logits of users and items at a time.
_BLOCK_ELEMENTS = 1 << 24
_METRICS = ("hr", "ndcg", "recall")


class Sums(NamedTuple):
    """Sums over users with held-out items, and the number of these users."""

    users: float
    hr: float
    ndcg: float
    recall: float


def users_per_block(num_items: int, limit: int) -> int:
    """Returns the number of users whose logits of all items are in memory together."""
    return max(1, min(limit, _BLOCK_ELEMENTS // num_items))


@dataclass(frozen=True, kw_only=True)
class HeldOutRanking:
    """Ranking of the items of users, next to one by popularity; exact on any number of ranks.

    Each user counts once. HR@k is 1 if a held-out item is in the first k places, else 0; recall@k
    the share of the user's held-out items there; NDCG@k as in `GroupMetrics`. Items of equal scores
    are in random order, and the metric is its expected value.

    The division into blocks does not depend on the number of ranks, and neither do the results.

    Attributes:
        prefix: start of the names of the metrics.
        k: see above.
        num_users: users, numbered from 0.
        block: users that are scored together.
        logits: numbers of users, int64 [users] -> float32 [users, items]; may be collective.
        popularity: numbers of users -> the popularity of these items, [users, items].
        held_out: numbers of users -> held-out items, as pairs of places in these arrays.
        left_out: numbers of users -> pairs that do not count, unless they are held out.
        world: the ranks, which share the users.
    """

    prefix: str
    k: int
    num_users: int
    block: int
    logits: Callable[[NDArray[np.int64]], NDArray[np.float32]]
    popularity: Callable[[NDArray[np.int64]], NDArray[np.generic]]
    held_out: Callable[[NDArray[np.int64]], Pairs]
    left_out: Callable[[NDArray[np.int64]], Pairs]
    world: World

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the metrics: each one of the model, and then that of popularity."""
        names = (f"{self.prefix}{metric}@{self.k}" for metric in _METRICS)
        return tuple(name + end for name in names for end in ("", "_popularity"))

    @property
    def num_rounds(self) -> int:
        """Number of blocks of each rank."""
        return -(-self.num_users // (self.block * self.world.size))

    def measure(self, advance: Callable[[], object] = lambda: None) -> dict[str, float]:
        """Returns the metrics by name; collective.

        Args:
            advance: called after each block.

        Raises:
            NonFiniteScores: on every rank: a logit is NaN or infinite.
        """
        sums = list[list[list[float]]]()
        for first in range(0, self.num_rounds * self.world.size, self.world.size):
            start = (first + self.world.rank) * self.block
            # A rank without users computes those of the last one again.
            numbers = np.minimum(np.arange(start, start + self.block), self.num_users - 1)
            logits = self.logits(numbers)
            numbers = numbers[: max(0, self.num_users - start)]
            held_out, left_out = self.held_out(numbers), self.left_out(numbers)
            scores = (logits[: len(numbers)], self.popularity(numbers))
            sums.append(
                [list(map(float, _sums(each, held_out, left_out, self.k))) for each in scores]
            )
            advance()
        blocks = [block for own in self.world.gather_objects(sums, "ranking.sums") for block in own]
        model, popularity = (
            Sums(*(math.fsum(values) for values in zip(*rows, strict=True)))
            for rows in zip(*blocks, strict=True)
        )
        if math.isnan(model.users):
            raise NonFiniteScores(
                "ranking: logits are NaN or infinite. The model has diverged: restore an earlier "
                "checkpoint; with --amp, try without it."
            )
        values = (
            getattr(sums, name) / sums.users if sums.users else math.nan
            for name in _METRICS
            for sums in (model, popularity)
        )
        return dict(zip(self.names, values, strict=True))


def _sums(scores: NDArray[np.generic], held_out: Pairs, left_out: Pairs, k: int) -> Sums:
    """Returns the sums of a block of users, NaN if a score is not finite."""
    if not np.isfinite(scores).all():
        return Sums(*[math.nan] * 4)
    users, num_items = np.asarray(held_out.users), scores.shape[1]
    own = scores[users, held_out.items]
    scores = scores.astype(np.float64)
    scores[left_out.users, left_out.items] = -math.inf
    scores[users, held_out.items] = own
    above, ties = np.empty([2, len(users)], np.int64)
    for start in range(0, len(users), size := users_per_block(num_items, len(users) or 1)):
        part = slice(start, start + size)
        rows, values = scores[users[part]], own[part, np.newaxis]
        above[part], ties[part] = (rows > values).sum(axis=1), (rows == values).sum(axis=1)
    counts = np.bincount(users, minlength=len(scores))
    real, k = counts > 0, min(k, num_items)
    recalled = np.bincount(users, np.clip(k - above, 0, ties) / ties, len(scores))[real]
    # The best tie of each user, by user and then by place.
    _, index, positives = np.unique(
        users * (num_items + 1) + above, return_index=True, return_counts=True
    )
    best = np.unique(users[index], return_index=True)[1]
    first = index[best]
    _, hits = first_positive(above[first], ties[first], positives[best], k)
    ndcgs = ndcg(users, above, ties, np.ones(len(users)), k)
    return Sums(real.sum(), hits, ndcgs.sum(), (recalled / counts[real]).sum())
