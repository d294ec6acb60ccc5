"""Negatives: numbers against a slow reference, distributions, histories."""

import numpy as np
import pytest

from dataloading.histories.negatives import POPULARITY, UNIFORM, Negatives, features_of_items
from dataloading.spec.feature_spec import FeatureSpec
from tests.preproc.amazon_books.amazon_reference import negative, popular_negative, random_64


def uniform(num_items, seed=3):
    return Negatives(UNIFORM, seed, num_items, np.empty(0, np.int32))


def keys_of(negatives, users, events, labels):
    return negatives.keys(np.zeros(len(users), np.int64), users, events, labels)


def test_numbers_against_reference():
    seed, users, events = 2**64 - 1, np.array([1, 2**31]), np.array([0, 10**9])
    steps, num_items = np.arange(101), 2**31 - 1
    negatives = uniform(num_items, seed)
    keys = keys_of(negatives, users, events, np.array([1, 0]))
    assert keys.tolist() == [random_64(seed, 1, 0, 1), random_64(seed, 2**31, 10**9, 0)]
    drawn = negatives.draw(np.repeat(keys[:1], 101), steps, steps + 1)
    expected = [negative((seed, 1, 0, 1, step), step + 1, num_items) for step in range(101)]
    assert drawn.tolist() == expected


def chi_square_is_likely(counts, expected) -> bool:
    """Below the 99.9 % point of the chi-square distribution (Wilson and Hilferty's formula)."""
    freedom = len(counts) - 1
    statistic = ((counts - expected) ** 2 / expected).sum()
    limit = freedom * (1 - 2 / (9 * freedom) + 3.09 * (2 / (9 * freedom)) ** 0.5) ** 3
    return statistic < limit


def test_uniform_negatives():
    """Negatives are uniform over users, events and steps, and pairs of steps are independent."""
    num_items, positive, users = 20, 7, np.arange(1, 40_001)
    negatives = uniform(num_items)
    keys, positives = keys_of(negatives, users, users % 50, users % 2), np.full(40_000, positive)
    drawn = [negatives.draw(keys, np.full(40_000, step), positives) for step in (0, 1, 100)]
    for each in drawn:
        counts = np.bincount(each, minlength=num_items + 1)
        assert counts[0] == counts[positive] == 0
        assert len(counts) == num_items + 1
        others = np.delete(counts, [0, positive])
        assert chi_square_is_likely(others, len(users) / (num_items - 1))
    pairs = np.unique(drawn[0] * 100 + drawn[1], return_counts=True)[1]
    assert len(pairs) == (num_items - 1) ** 2
    assert chi_square_is_likely(pairs, len(users) / len(pairs))


def test_negatives_by_popularity():
    """Negatives are proportional to the numbers of events, independently of the positive item."""
    counts, users = np.arange(1, 21), np.arange(1, 40_001)
    events = np.repeat(np.arange(1, 21, dtype=np.int32), counts)
    negatives = Negatives(POPULARITY, 3, 20, events)
    keys = keys_of(negatives, users, users % 50, users % 2)
    drawn = negatives.draw(keys, np.zeros(len(keys), np.int64), users)
    expected = len(users) * counts / len(events)
    assert chi_square_is_likely(np.bincount(drawn, minlength=21)[1:], expected)


def test_negatives_of_two_items():
    keys = keys_of(uniform(2), np.arange(50), np.arange(50), np.arange(50) % 2)
    positives = np.arange(50) % 2 + 1
    assert (uniform(2).draw(keys, np.arange(50), positives) == 3 - positives).all()


@pytest.mark.parametrize("distribution", [UNIFORM, POPULARITY])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_histories(implementation, distribution, dtype):
    """Full, short and empty histories of 3 steps, against a loop."""
    events = np.array([5, 2, 2, 9], dtype)
    negatives = Negatives(distribution, 2**64 - 1, 9, events)
    users, before, labels = np.array([1, 2, 3]), np.array([70, 2, 0]), np.array([1, 0, 1])
    positive = np.array([[9, 1, 4], [0, 2, 3], [0, 0, 0]], dtype)
    keys = negatives.keys(np.zeros(3, np.int64), users, before, labels)
    result = negatives.draw_histories(keys, np.minimum(before, 3), positive)
    assert result.dtype == dtype
    for i, row in enumerate(positive.tolist()):
        for step, item in zip((3, 2, 1), row, strict=True):
            place = (2**64 - 1, int(users[i]), int(before[i]), int(labels[i]), step)
            expected = item and (
                negative(place, item, 9)
                if distribution == UNIFORM
                else popular_negative(place, events.tolist())
            )
            assert result[i, 3 - step] == expected


def test_features_of_items(implementation, dtype=np.int64):
    table, items = np.array([0, 7, 8], dtype), np.array([[2, 1], [0, 2]], dtype)
    assert features_of_items(table, items).tolist() == [[8, 7], [0, 8]]


@pytest.mark.parametrize(
    ("content", "num_items", "message"),
    [
        (None, 9, "metadata: negatives is None"),
        ({"distribution": "zipf", "seed": 1}, 9, "'zipf'.*expected distribution: uniform or"),
        ({"distribution": UNIFORM, "seed": -1}, 9, r"seed: an integer in \[0, 2\^64\)"),
        ({"distribution": UNIFORM, "seed": 1}, 1, "one item"),
    ],
)
def test_invalid_metadata(content, num_items, message):
    spec = FeatureSpec({"a": {"dtype": "int32"}}, {}, {"user": ["a"]}, {"negatives": content})
    with pytest.raises(ValueError, match=message):
        Negatives.from_spec(spec, num_items, np.empty(0, np.int32))
