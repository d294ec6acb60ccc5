"""Top items compared with a full sort: ties, excluded pairs, blocks, ranks, invalid logits."""

import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.collectives import World

from nn import top_items
from nn.metrics.classification import NonFiniteScores
from nn.top_items import Pairs, TopItemSearch, top_columns


def expected_items(logits, count, excluded=()):
    """Item lists of a stable full sort by falling logit."""
    rows = []
    for user, row in enumerate(logits):
        order = np.argsort(-row, kind="stable")
        left_out = {item for u, item in excluded if u == user}
        kept = [item for item in order.tolist() if item not in left_out][:count]
        rows.append(kept + [-1] * (count - len(kept)))
    return np.array(rows)


def searched(logits, count, excluded=(), world=None):
    """Items and scores of all users."""
    table = tf.constant(logits, tf.float32)

    def score(users, items):
        return tf.gather(tf.gather(table, users), items, axis=1)

    def pairs(numbers):
        own = [(row, item) for row, user in enumerate(numbers) for u, item in excluded if u == user]
        own = np.array(sorted(own, key=lambda pair: pair[1]), np.int64).reshape(-1, 2)
        return Pairs(own[:, 0], own[:, 1])

    search = TopItemSearch(score, logits.shape[1], count, world)
    pieces = list(search.search(len(logits), lambda n: n.astype(np.int32), pairs))
    assert len(pieces) == search.num_rounds(len(logits))
    return tuple(np.concatenate(arrays) for arrays in zip(*pieces, strict=True))


@pytest.mark.parametrize("count", [1, 3, 64, 200])
@pytest.mark.parametrize("levels", [2, 5, 10_000])
def test_top_columns(count, levels):
    rng = np.random.default_rng(count)
    logits = rng.integers(0, levels, [7, 256]).astype(np.float32)
    values, columns = top_columns(tf.constant(logits), count)
    expected = expected_items(logits, count)
    np.testing.assert_array_equal(columns, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(logits, expected, axis=1))


@pytest.mark.parametrize("num_items", [1, 63, 64, 65, 300])
@pytest.mark.parametrize("count", [1, 10, 70])
def test_full_sort(num_items, count, monkeypatch):
    """Few levels, so that most logits are tied; blocks of 128 items and 8 users."""
    monkeypatch.setattr(top_items, "MAX_ITEMS", 128)
    rng = np.random.default_rng(num_items)
    logits = rng.integers(-3, 3, [21, num_items]).astype(np.float32)
    excluded = {(int(u), int(i)) for u, i in rng.integers(0, [21, num_items], [200, 2])}
    items, scores = searched(logits, count, excluded=excluded)
    expected = expected_items(logits, count, excluded=excluded)
    np.testing.assert_array_equal(items, expected)
    kept = np.take_along_axis(logits, np.maximum(expected, 0), axis=1)
    at = expected >= 0
    np.testing.assert_allclose(scores[at], 1 / (1 + np.exp(-kept[at])), rtol=1e-6)


def test_user_without_items():
    logits = np.zeros([2, 4], np.float32)
    items, _ = searched(logits, 2, excluded=[(1, item) for item in range(4)])
    assert items.tolist() == [[0, 1], [-1, -1]]


class _Two(World):
    """Rank 0 or 1 of two; gathers what it sends twice."""

    def all_gather(self, tensor, name):
        return tf.concat([tensor, tensor], axis=0)


@pytest.mark.parametrize("rank", [0, 1])
def test_division_into_blocks(rank, monkeypatch):
    """The two ranks compute alternate blocks of 8 users, and only rank 0 gets the result."""
    seen = []
    logits = np.zeros([20, 3], np.float32)
    search = TopItemSearch(lambda u, i: tf.zeros([tf.size(u), tf.size(i)]), 3, 1, _Two(rank, 2))

    def inputs(numbers):
        seen.append(numbers.tolist())
        return numbers.astype(np.int32)

    sizes = [len(piece.items) for piece in search.search(len(logits), inputs)]
    assert sizes == ([16, 4] if rank == 0 else [0, 0])
    first = [list(range(8)), list(range(16, 20)) + [19] * 4]
    assert seen == (first if rank == 0 else [list(range(8, 16)), [19] * 8])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite(value):
    logits = np.zeros([30, 100], np.float32)
    logits[17, 70] = value
    with pytest.raises(NonFiniteScores, match="logits are NaN or infinite. The model has diverged"):
        searched(logits, 2)
