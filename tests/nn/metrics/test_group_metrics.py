"""Metrics of groups against all orders of equal scores, on one rank and on several."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from distributed_embeddings.collectives import World
from embedding_testing.fake_world import run_threads
from sklearn.metrics import ndcg_score, roc_auc_score

from nn.metrics.group_metrics import Grouping, GroupMetrics

GROUPING = Grouping("user", None, cutoffs=(1, 3, 100))


def started(grouping, world=World()):
    metric = GroupMetrics(grouping)
    metric.start(world)
    return metric


def random_rows(num_rows, num_groups, num_scores):
    """Returns groups, labels, logits and weights; the groups are beyond int32."""
    rng = np.random.default_rng(0)
    groups = rng.integers(num_groups, size=num_rows) * 2**33
    labels = (rng.random(num_rows) < 0.3).astype(np.float32)
    logits = rng.integers(num_scores, size=num_rows).astype(np.float32) - 1
    weights = rng.choice([0, 1, 1], num_rows).astype(np.float32)
    return groups, labels, logits, weights


def metrics_in_order(labels, k):
    """Returns NDCG@k, MRR@k and HR@k of labels in the order of their scores."""
    gains = 1 / np.log2(np.arange(len(labels)) + 2)
    ideal = gains[: min(k, int(labels.sum()))].sum()
    places = np.flatnonzero(labels[:k])
    reciprocal = 1 / (places[0] + 1) if len(places) else 0
    return (labels * gains)[:k].sum() / ideal, reciprocal, len(places) > 0


def expected(groups, labels, logits, weights):
    """Returns the metrics by name: means over all permutations that keep the order of scores."""
    values, aucs, sizes = [], [], []
    for group in np.unique(groups):
        rows = (groups == group) & (weights > 0)
        own, scores = labels[rows], logits[rows]
        if not 0 < own.sum() < len(own):
            continue
        orders = [list(order) for order in itertools.permutations(range(len(own)))]
        orders = [order for order in orders if (np.diff(scores[order]) <= 0).all()]
        at_k = [[metrics_in_order(own[o], k) for o in orders] for k in GROUPING.cutoffs]
        values.append(np.mean(at_k, axis=1).ravel())
        aucs.append(roc_auc_score(own, scores))
        sizes.append(len(own))
    names = [f"{name}@{k}" for k in GROUPING.cutoffs for name in ("ndcg", "mrr", "hr")]
    means = dict(zip(names, np.mean(values, axis=0), strict=True))
    return {"gauc": np.average(aucs, weights=sizes), **means}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_against_all_orders(size):
    rows = random_rows(num_rows=150, num_groups=50, num_scores=3)
    shares = [np.arange(150) % min(size, 2) == rank for rank in range(size)]  # rank 2 has no rows

    def run(world):
        metric = started(GROUPING, world)
        metric.add(*(tf.constant(column[shares[world.rank], None]) for column in rows))
        return metric.result()

    results = run_threads(size, run)
    assert all(result == results[0] for result in results)
    assert results[0] == pytest.approx(expected(*rows), abs=1e-13)


def test_many_places_against_scikit_learn():
    grouping = Grouping("user", None, cutoffs=(20,))
    groups, labels, logits, _ = random_rows(num_rows=3000, num_groups=30, num_scores=40)
    metric = started(grouping)
    metric.add(groups, labels, logits, np.ones(3000))
    members = [groups == group for group in np.unique(groups)]
    ndcg = [ndcg_score(labels[m][None], logits[m][None], k=20) for m in members]
    assert metric.result()["ndcg@20"] == pytest.approx(np.mean(ndcg), abs=1e-13)


def test_infinite_scores_are_ties():
    metric = started(Grouping("user", None, cutoffs=(1,)))
    inf = np.float32(math.inf)
    logits = np.array([inf, inf, -inf, -inf])
    metric.add(np.zeros(4), np.array([1, 0, 1, 0]), logits, np.ones(4))
    assert metric.result() == {"gauc": 0.5, "ndcg@1": 0.5, "mrr@1": 0.5, "hr@1": 0.5}


def test_groups_of_one_class():
    metric = started(GROUPING)
    metric.add(np.arange(3), np.array([0, 1, 1]), np.zeros(3), np.ones(3))
    result = metric.result()
    assert list(result) == GROUPING.metrics
    assert all(math.isnan(value) for value in result.values())
    assert all(math.isnan(value) for value in started(GROUPING).result().values())


def test_unknown_ids_are_no_group():
    metric = started(Grouping("user", None, first_id=1, cutoffs=(1,)))
    metric.add(
        *(np.array([0, 0, 1, 1, 2]), np.array([1, 0, 1, 0, 1])),
        *(np.array([0, 1, 1, 0, 0]), np.array([1, 1, 1, 1, 1])),
    )
    assert metric.result()["gauc"] == 1
    assert metric.notes == {
        "groups": "gauc, ndcg@1, mrr@1, hr@1 are means over the 1 of 2 groups of equal 'user' that "
        "have a positive and a negative row; 2 rows of missing or unknown 'user' are in no group"
    }
