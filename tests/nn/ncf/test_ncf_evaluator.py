"""HR@k and NDCG@k: against a slow obvious count, and on several ranks."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from embedding_testing.fake_world import run_threads

from dataloading.pipeline.batch import Batch, InteractionInputs
from dataloading.pipeline.shuffle import share_of_rank
from nn.metrics.classification import NonFiniteScores
from nn.metrics.metric import Metric
from nn.ncf.candidate_evaluator import HitRateEvaluator
from nn.ncf.hit_rate import ranks_of_positives


def slow_rank(items, labels, scores):
    """The rank of one candidate list's positive, item by item."""
    place = list(labels).index(1)
    better = set()
    for item, score in zip(items, scores, strict=True):
        if item != items[place] and score >= scores[place]:
            better.add(item)
    return len(better)


def random_lists(num_lists, length, num_items, decimals, seed=0):
    """Items with many duplicates, one positive anywhere, scores of the items with many ties."""
    rng = np.random.default_rng(seed)
    items = rng.integers(0, num_items, (num_lists, length)).astype(np.int32)
    labels = np.eye(length, dtype=np.float32)[rng.integers(0, length, num_lists)]
    score_of = rng.normal(size=(num_lists, num_items)).round(decimals).astype(np.float32)
    return items, labels, np.take_along_axis(score_of, items, axis=1)


@pytest.mark.parametrize("length", [1, 2, 7, 30])
@pytest.mark.parametrize("num_items", [1, 5, 50])
@pytest.mark.parametrize("decimals", [0, 3], ids=["many_ties", "few_ties"])
def test_ranks_against_slow_count(length, num_items, decimals):
    items, labels, scores = random_lists(200, length, num_items, decimals)
    expected = [slow_rank(*row) for row in zip(items, labels, scores, strict=True)]
    assert ranks_of_positives(items, labels, scores).tolist() == expected


def batches(lists, of_batch, rank=0, world_size=1):
    """Returns a data set of a rank's share of the lists, padded with whole lists.

    The user's vector of a row is its score.
    """
    items, labels, scores = lists
    length = items.shape[1]
    created = []
    for first in range(0, len(items), of_batch):
        size = min(of_batch, len(items) - first)
        begin, end, padded = share_of_rank(size, rank, world_size)
        chosen = [*range(first + begin, first + end), *[first] * (padded - end + begin)]
        weights = np.zeros((padded, length))
        weights[: end - begin] = padded * world_size / size
        columns = (scores[chosen], items[chosen], labels[chosen], weights)
        user, item, label, weight = (column.reshape(-1, 1) for column in columns)
        inputs = InteractionInputs(user[:, 0].astype(np.float32), item[:, 0])
        created.append(Batch(inputs, label, weight.astype(np.float32)))
    vector, column = tf.TensorSpec([None]), tf.TensorSpec([None, 1])
    signature = Batch(InteractionInputs(vector, tf.TensorSpec([None], tf.int32)), column, column)
    return SimpleNamespace(
        list_length=length,
        dataset=lambda: tf.data.Dataset.from_generator(
            lambda: iter(created), output_signature=signature
        ),
    )


def score_is_user(inputs):
    """A model."""
    return inputs.user[:, None]


def expected_metrics(lists, k):
    ranks = [slow_rank(*row) for row in zip(*lists, strict=True)]
    gains = [math.log(2) / math.log(rank + 2) if rank < k else 0.0 for rank in ranks]
    logits = np.where(lists[1] > 0, lists[2], -lists[2]).astype(np.float64)
    return {
        f"hr@{k}": np.mean([rank < k for rank in ranks]),
        f"ndcg@{k}": np.mean(gains),
        "log_loss": np.logaddexp(0, -logits).mean(),
    }


@pytest.mark.parametrize("k", [1, 3, 10, 12, 13])
def test_metrics_against_slow_count(k):
    lists = random_lists(150, 12, 20, 1)
    evaluator = HitRateEvaluator(score_is_user, batches(lists, 40), k)
    actual = dict(evaluator.evaluate())
    expected = expected_metrics(lists, k)
    assert list(actual) == list(expected)
    assert actual == pytest.approx(expected, rel=1e-6)
    assert dict(evaluator.evaluate()) == actual
    note = f"a candidate list has 12 items, so hr@{k} is 1 for any model"
    assert list(evaluator.notes.values()) == ([note] if k >= 12 else [])


class ShareOfPositives(Metric):
    names, notes = ("share",), {"own": "a remark"}

    def sums(self, groups, labels, logits):
        return {"share": (labels.sum(), len(labels))}


@pytest.mark.parametrize("num_lists", [150, 81, 1])  # 81: the last batch is of one candidate list
@pytest.mark.parametrize("size", [2, 3])
def test_cluster_against_one_rank(size, num_lists):
    lists = random_lists(num_lists, 12, 20, 1)
    expected = dict(HitRateEvaluator(score_is_user, batches(lists, 40), 4).evaluate())

    def run(world):
        dataset = batches(lists, 40, world.rank, world.size)
        evaluator = HitRateEvaluator(score_is_user, dataset, 4, world)
        evaluator.add_metrics([ShareOfPositives()])
        results = evaluator.evaluate()
        actual = dict([next(results)])  # all communication is over by now
        calls = list(world.calls)
        actual |= dict(results)
        assert evaluator.picture(actual) is None and world.calls == calls
        assert evaluator.notes["own"] == "a remark" and actual["share"] == pytest.approx(1 / 12)
        return actual

    results = run_threads(size, run)
    for actual in results:
        assert actual["hr@4"] == expected["hr@4"] and actual["ndcg@4"] == expected["ndcg@4"]
        assert actual["log_loss"] == pytest.approx(expected["log_loss"], rel=1e-12)
    assert all(actual == results[0] for actual in results)


def test_stopped_evaluation():
    request = []

    def stopped():
        request.append(1)
        return len(request) == 3

    evaluator = HitRateEvaluator(score_is_user, batches(random_lists(9, 3, 5, 1), 2), 2)
    assert list(evaluator.evaluate(stopped)) == [] and len(request) == 3


@pytest.mark.parametrize("size", [1, 2])
def test_error_of_nan(size):
    lists = random_lists(9, 3, 5, 1)
    lists[2][8, 0] = math.nan

    def run(world):
        dataset = batches(lists, 4, world.rank, world.size)
        return list(HitRateEvaluator(score_is_user, dataset, 2, world).evaluate())

    for error in run_threads(size, run):
        assert isinstance(error, NonFiniteScores) and "logits of a batch are NaN" in str(error)
