"""The items of highest score of each user, exactly, over blocks of users and items."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from distributed_embeddings.collectives import World

from nn.metrics.classification import NonFiniteScores

# Columns whose maximum decides whether they are looked at again.
_CHUNK = 16
# At most this many users per block, and about this many blocks of few users.
MAX_USERS, FEW_BLOCKS, MIN_USERS = 512, 16, 8
# The logits of a block, 8 MiB, stay in the processor's caches; the vectors of its items are looked
# up again for each block of users.
MAX_ITEMS = 4096


class TopItems(NamedTuple):
    """Items of some users, the highest score first and of equal logits the lower item first.

    items: int32 [users, count]; -1 where a user has fewer items.
    scores: sigmoid(logit), float32 [users, count].
    """

    items: np.ndarray
    scores: np.ndarray


class Pairs(NamedTuple):
    """Pairs of users and items that are left out, by ascending item.

    users: int [n], numbers of the users in their block.
    items: int [n].
    """

    users: np.ndarray
    items: np.ndarray


def top_columns(logits: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns values and columns of the `count` highest of each row, ties by column.

    Neighboring columns are compared by their maximum first: of N chunks that come before another
    one, by maximum and then by place, each has an element that comes before all of that one. So the
    first N elements are in the first N chunks. This reads the matrix once.

    Args:
        logits: [rows, columns], a static multiple of 16 columns; no NaN.
        count: at most the number of columns.
    """
    num_chunks = logits.shape[1] // _CHUNK
    chunked = tf.reshape(logits, [-1, num_chunks, _CHUNK])
    num_used = min(count, num_chunks)
    chunks = tf.math.top_k(tf.reduce_max(chunked, axis=2), num_used).indices
    chunks = tf.sort(chunks, axis=1)
    near = tf.reshape(tf.gather(chunked, chunks, batch_dims=1), [-1, num_used * _CHUNK])
    values, places = tf.math.top_k(near, count)
    columns = tf.gather(chunks, places // _CHUNK, batch_dims=1) * _CHUNK + places % _CHUNK
    return values, columns


class TopItemSearch:
    """Searches the items 0 to `num_items - 1` for the highest logits of users.

    Args:
        score: `score(inputs, items) -> logits [users, items]` float32, of a block of users and
            items, int32 [items]; a TensorFlow function, which may be collective.
        num_items: number of items.
        count: items per user, at least 1.
        world: the ranks that share the users; None: one process.
        max_users: users per block, of many.
    """

    def __init__(
        self,
        score: Callable[[Any, tf.Tensor], tf.Tensor],
        num_items: int,
        count: int,
        world: World | None = None,
        max_users: int = MAX_USERS,
    ):
        self._score, self._world = score, world or World()
        self._num_items, self._count, self._max_users = num_items, count, max_users
        self._block_items = min(MAX_ITEMS, -(-num_items // _CHUNK) * _CHUNK)

    def num_rounds(self, num_users: int) -> int:
        """Returns how often `search` yields."""
        return -(-num_users // (self._users_per_block(num_users) * self._world.size))

    def _users_per_block(self, num_users: int) -> int:
        return min(self._max_users, max(MIN_USERS, -(-num_users // FEW_BLOCKS)))

    def search(
        self,
        num_users: int,
        inputs: Callable[[np.ndarray], Any],
        excluded: Callable[[np.ndarray], Pairs] | None = None,
    ) -> Iterator[TopItems]:
        """Yields the items of all users in order, a few users at a time; collective.

        The division into blocks does not depend on the number of ranks, and neither do the results.

        Args:
            num_users: the users are numbered from 0.
            inputs: returns the inputs of `score` of some users, int64 [users].
            excluded: returns the pairs of these users that are left out; None: none are.

        Yields:
            On rank 0 the next users; no users on the other ranks.

        Raises:
            NonFiniteScores: On every rank: a logit is NaN or infinite.
        """
        block = self._users_per_block(num_users)
        per_round = block * self._world.size
        for start in range(0, num_users, per_round):
            first = start + block * self._world.rank
            # A rank without users computes those of the last one again.
            numbers = np.minimum(np.arange(first, first + block), num_users - 1)
            pairs = excluded(numbers) if excluded else Pairs(*np.zeros([2, 0], np.int64))
            items, logits = self._search_block(block, inputs(numbers), pairs)
            items, logits = (
                self._world.all_gather(values, f"top_items.{name}")
                for name, values in (("items", items), ("logits", logits))
            )
            _check_finite(np.asarray(logits))
            stop = min(per_round, num_users - start) if self._world.is_chief else 0
            yield TopItems(np.asarray(items)[:stop], tf.sigmoid(logits[:stop]).numpy())

    def logits(self, inputs: Any) -> np.ndarray:
        """Returns the logits of all items of some users, float32 [users, items]; collective."""
        starts = range(0, self._num_items, self._block_items)
        blocks = [self._block_logits(inputs, self._items_from(start)) for start in starts]
        return np.concatenate(blocks, axis=1)[:, : self._num_items]

    @tf.function(reduce_retracing=True, autograph=False)
    def _block_logits(self, inputs, items: tf.Tensor) -> tf.Tensor:
        return self._score(inputs, items)

    def _items_from(self, start: int) -> np.ndarray:
        """Returns a block of items; the last one is filled with copies of the last item."""
        items = np.arange(start, start + self._block_items, dtype=np.int32)
        return np.minimum(items, self._num_items - 1)

    def _search_block(self, num_users: int, inputs: Any, pairs: Pairs) -> list[tf.Tensor]:
        """Returns items and logits of a block of users; NaN if a logit is not finite."""
        best = [
            tf.fill([num_users, self._count], tf.constant(-1, tf.int32)),
            tf.fill([num_users, self._count], tf.constant(-np.inf, tf.float32)),
        ]
        is_finite = tf.constant(True)
        for start in range(0, self._num_items, self._block_items):
            items = self._items_from(start)
            masked = self._masked(num_users, start, pairs)
            *best, finite = self._merge(inputs, items, masked, best)
            is_finite = tf.logical_and(is_finite, finite)
        items, logits = best
        return [items, tf.where(is_finite, logits, np.nan)]

    def _masked(self, num_users: int, start: int, pairs: Pairs) -> np.ndarray:
        """Returns (user, column) of pairs that do not count in a block of items, int32 [n, 2]."""
        stop = min(start + self._block_items, self._num_items)
        left, right = np.searchsorted(pairs.items, [start, stop])
        own = np.stack([pairs.users[left:right], pairs.items[left:right] - start], axis=1)
        copies = np.arange(stop - start, self._block_items)
        users = np.repeat(np.arange(num_users), len(copies))
        filled = np.stack([users, np.tile(copies, num_users)], axis=1)
        return np.concatenate([own, filled]).astype(np.int32)

    @tf.function(reduce_retracing=True, autograph=False)
    def _merge(self, inputs, items: tf.Tensor, masked: tf.Tensor, best: list[tf.Tensor]):
        """Returns the best items and logits with those of a block, and whether all are finite."""
        logits = self._score(inputs, items)
        logits.set_shape([None, self._block_items])
        # One pass: a sum of finite numbers is finite unless they are out of all proportion.
        is_finite = tf.math.is_finite(tf.reduce_sum(logits))
        least = tf.fill([tf.shape(masked)[0]], tf.constant(-np.inf, logits.dtype))
        with tf.control_dependencies([is_finite]):  # the last use: so nothing is copied
            logits = tf.tensor_scatter_nd_update(logits, masked, least)
        values, columns = top_columns(logits, min(self._count, self._block_items))
        # Items of earlier blocks come first: so they win ties.
        values = tf.concat([best[1], values], axis=1)
        # Pairs that are left out can be among the highest of few.
        new = tf.where(tf.math.is_inf(values[:, self._count :]), -1, tf.gather(items, columns))
        candidates = tf.concat([best[0], new], axis=1)
        values, places = tf.math.top_k(values, self._count)
        return tf.gather(candidates, places, batch_dims=1), values, is_finite


def _check_finite(logits: np.ndarray) -> None:
    if np.isnan(logits).any():
        raise NonFiniteScores(
            "recommendations: logits are NaN or infinite. The model has diverged: restore an "
            "earlier checkpoint; with --amp, try without it."
        )
