"""Negatives without interactions of the user: by hand, uniform, all of them, and errors."""

import numpy as np
import pytest

from dataloading.interactions import unseen_items
from dataloading.interactions.unseen_items import TooFewUnseen, draw_unseen, draw_unseen_in_use


def keys_of(touched, num_items):
    pairs = [user * num_items + item for user, items in touched.items() for item in items]
    return np.sort(np.array(pairs, np.int64))


def test_all_unseen_items():
    """All negatives are requested: each row has the items that its user did not touch."""
    touched = {0: [1, 2], 1: [0, 4], 3: [2, 3]}
    drawn = draw_unseen(np.array([0, 1, 3, 0]), 5, keys_of(touched, 5), 3, 0)
    assert drawn.dtype == np.int32
    assert np.sort(drawn, axis=1).tolist() == [[0, 3, 4], [1, 2, 3], [0, 1, 4], [0, 3, 4]]


def test_user_without_items_and_no_rows():
    nothing = np.empty(0, np.int64)
    assert np.sort(draw_unseen(np.array([7]), 3, nothing, 3, 0)).tolist() == [[0, 1, 2]]
    assert draw_unseen(np.empty(0, np.int64), 3, nothing, 3, 0).shape == (0, 3)


@pytest.mark.parametrize("count", [1, 40, 90])
def test_new_and_distinct_items(count):
    """Compared with sets: sparse and dense rows, users in any order and repeated."""
    random, num_items = np.random.default_rng(count), 200
    touched = {
        user: random.choice(num_items, random.integers(0, 111), replace=False) for user in range(50)
    }
    users = random.integers(0, 50, 300)
    drawn = draw_unseen(users, num_items, keys_of(touched, num_items), count, 1)
    assert drawn.shape == (300, count)
    for user, row in zip(users, drawn, strict=True):
        assert len(set(row)) == count
        assert set(row) <= set(range(num_items)) - set(touched[user])


@pytest.mark.parametrize(("num_items", "count"), [(12, 7), (60, 9)], ids=["dense", "sparse"])
def test_uniform_draws(num_items, count):
    """Unseen items are equally frequent at each position of a row and in pairs (chi-square)."""
    touched, rows = [0, 3, 4, num_items - 1], 20_000
    drawn = draw_unseen(
        np.zeros(rows, np.int32), num_items, keys_of({0: touched}, num_items), count, 5
    )
    unseen = np.setdiff1d(np.arange(num_items), touched)
    for place in (0, count - 1):
        observed = np.bincount(drawn[:, place], minlength=num_items)[unseen]
        expected = rows / len(unseen)
        statistic = np.sum((observed - expected) ** 2) / expected
        freedom = len(unseen) - 1
        assert abs(statistic - freedom) < 5 * np.sqrt(2 * freedom)
    together = np.mean(np.any(drawn == unseen[0], axis=1) & np.any(drawn == unseen[1], axis=1))
    expected = count * (count - 1) / (len(unseen) * (len(unseen) - 1))
    assert abs(together - expected) < 5 * np.sqrt(expected / rows)


def test_seeds():
    users, keys = np.arange(40), keys_of({3: [5]}, 500)
    first, again = (draw_unseen(users, 500, keys, 10, 1) for _ in range(2))
    assert np.array_equal(first, again)
    for seed in (2, [1, 1]):
        assert np.mean(draw_unseen(users, 500, keys, 10, seed) == first) < 0.1
    # Rows of one user differ.
    assert len(np.unique(draw_unseen(np.zeros(40, int), 500, keys, 10, 1), axis=0)) == 40


def test_blocks(monkeypatch):
    """Small blocks, the last of them shorter: all rows are drawn, each by its own user."""
    monkeypatch.setattr(unseen_items, "_BLOCK_ROWS", 3)
    num_items = 6
    touched = {user: [i for i in range(num_items) if i != user] for user in range(num_items)}
    users = np.array([5, 0, 3, 3, 2, 1, 4, 0])
    drawn = draw_unseen(users, num_items, keys_of(touched, num_items), 1, 0)
    assert drawn[:, 0].tolist() == users.tolist()


def test_excluded_items_without_interactions():
    """Items 0, 2 and 5 of 7 are in no interaction; user 1 may be asked about 3 and 6."""
    keys = keys_of({0: [1, 3], 1: [1, 4], 3: [6]}, 7)
    users = np.array([1, 3, 1])
    drawn = draw_unseen_in_use(users, 7, keys, 2, 0)
    assert drawn.dtype == np.int32
    assert [set(row) for row in drawn[[0, 2]]] == [{3, 6}] * 2
    assert set(drawn[1]) <= {1, 3, 4}
    with pytest.raises(ValueError, match="user 1 .*touched 2 of 4 items, so 2 are unseen, fewer"):
        draw_unseen_in_use(users, 7, keys, 3, 0)


def test_large_numbers():
    """Keys beyond 32 bits, users of 32 bits, as many items as ids allow."""
    num_items, users = unseen_items.MOST_IDS, np.array([2_000_000_000], np.int32)
    keys = keys_of({2_000_000_000: range(100)}, num_items)
    drawn = draw_unseen(users, num_items, keys, 1000, 0)
    assert drawn.min() >= 100
    assert drawn.max() > 1_900_000_000


@pytest.mark.parametrize(
    ("count", "keys", "message"),
    [
        (3, [5, 6, 7], r"user 1 \(as numbered in the data set\) touched 3 of 5 items, so 2 are"),
        (1, [5, 6, 7, 8, 9], "0 are unseen.*: more items, or leave that user out of the data"),
    ],
)
def test_errors(count, keys, message):
    with pytest.raises(ValueError, match=message):
        draw_unseen(np.array([0, 1]), 5, np.array(keys, np.int64), count, 0)


def test_repeated_items():
    """A user who touched 2 of 4 items: the others are equally likely."""
    drawn = draw_unseen(np.zeros(50, np.int32), 4, np.array([1, 2]), 40, 0, distinct=False)
    assert set(drawn.ravel()) == {0, 3}
    assert abs((drawn == 0).mean() - 0.5) < 0.05
    with pytest.raises(TooFewUnseen, match="so 0 are unseen"):
        draw_unseen(np.zeros(1, np.int32), 2, np.array([0, 1]), 1, 0, distinct=False)
