"""GAUC against a loop over groups with scikit-learn, on one rank and on several."""

import math

import numpy as np
import pytest
import tensorflow as tf
from embedding_testing.fake_world import run_threads
from sklearn.metrics import roc_auc_score

from nn.metrics.group_auc import GroupAuc


def random_rows(num_rows=2000, num_groups=150, decimals=1):
    rng = np.random.default_rng(0)
    groups = rng.integers(-5, num_groups, num_rows) * 2**33  # beyond int32
    labels = (rng.random(num_rows) < 0.2).astype(np.float32)
    logits = (rng.normal(size=num_rows) + labels).round(decimals).astype(np.float32)
    weights = rng.choice([0, 1, 1], num_rows).astype(np.float32)
    return groups, labels, logits, weights


def expected_gauc(groups, labels, logits, weights):
    total = num_samples = 0
    for group in np.unique(groups):
        rows = (groups == group) & (weights > 0)
        if 0 < labels[rows].sum() < rows.sum():
            total += rows.sum() * roc_auc_score(labels[rows], logits[rows])
            num_samples += rows.sum()
    return total / num_samples


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_against_loop(size):
    rows = random_rows()

    def run(world):
        metric = GroupAuc(world)
        own = slice(None) if size == 1 else slice(world.rank, None, size)
        if world.rank < 2:  # the third rank has no samples
            metric.add(*(tf.constant(column[own, None]) for column in rows))
        return metric.result()

    if size == 3:
        kept = np.arange(len(rows[0])) % 3 < 2
        expected = expected_gauc(*(column[kept] for column in rows))
    else:
        expected = expected_gauc(*rows)
    results = run_threads(size, run)
    assert len(set(results)) == 1
    assert results[0] == pytest.approx(expected, abs=1e-13)


def test_infinite_scores_are_ties():
    metric = GroupAuc()
    inf = np.float32(math.inf)
    ones = np.ones(4)
    metric.add(np.zeros(4, int), np.array([1, 0, 1, 0]), np.array([inf, inf, -inf, -inf]), ones)
    assert metric.result() == 0.5


def test_groups_of_one_class():
    metric = GroupAuc()
    metric.add(np.arange(3), np.array([0, 1, 1]), np.zeros(3), np.ones(3))
    assert math.isnan(metric.result())
    assert math.isnan(GroupAuc().result())
