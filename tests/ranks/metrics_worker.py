"""Metrics over real processes, part of checks_worker.py.

Every rank makes all rows, updates with its own, and compares with one accumulator of all rows.
"""

import math

import numpy as np
import tensorflow as tf
from distributed_embeddings.collectives import World

from dataloading.synthetic.dataset import SyntheticDataset, synthetic_spec
from nn.metrics.classification import BinnedMetrics, ExactMetrics, NonFiniteScores
from nn.metrics.evaluator import ClickEvaluator
from nn.metrics.group_metrics import Grouping

NUM_ROWS = 20_000


def rows_of(kind: str) -> tuple:
    """(labels, logits, weights or None) of all ranks."""
    rng = np.random.default_rng(1)
    labels = (rng.random(NUM_ROWS) < 0.2).astype(np.float32)
    logits = (rng.normal(size=NUM_ROWS) + labels).astype(np.float32)
    weights = None
    if kind == "ties":
        logits = logits.round(1)
    elif kind == "constant":
        logits = np.zeros_like(logits)
    elif kind == "weighted":
        weights = rng.choice([0, 1, 1, 1], NUM_ROWS).astype(np.float32)
    elif kind == "one_class":
        labels = np.ones_like(labels)
    return labels, logits, weights


def check_scores(world: World, kind: str, make, first_rank_has_all: bool) -> None:
    """Compares with one accumulator; `first_rank_has_all`: the others have no rows."""
    rows = rows_of(kind)
    one = make()
    one.update(*rows)
    metrics = make(world)
    if not first_rank_has_all:
        own = slice(world.rank, None, world.size)
    else:
        own = slice(None) if world.is_chief else slice(0)
    metrics.update(*(None if column is None else tf.constant(column[own]) for column in rows))
    expected, actual = one.result(), metrics.result()
    if kind == "weighted" or make is not ExactMetrics:
        np.testing.assert_allclose(actual[:6], expected[:6], rtol=1e-12)
    else:
        assert repr(actual.auc) == repr(expected.auc), (kind, actual, expected)
        np.testing.assert_allclose(actual[1:6], expected[1:6], rtol=1e-12)
    assert actual[6:] == expected[6:]
    assert len(set(world.gather_objects(repr(actual)))) == 1
    fpr, tpr = metrics.roc_curve(100)
    assert len(fpr) == len(tpr) <= 100
    assert len(set(world.gather_objects(repr((fpr.tolist(), tpr.tolist()))))) == 1
    if kind in ("plain", "weighted"):
        area = ((fpr[1:] - fpr[:-1]) * (tpr[1:] + tpr[:-1])).sum() / 2
        np.testing.assert_allclose(area, expected.auc, atol=1e-3)


def check_errors(world: World, make) -> None:
    metrics = make(world)
    try:
        metrics.result()
        raise AssertionError("no rank has rows")
    except ValueError as error:
        assert "nothing to evaluate" in str(error)
    metrics.update([1, 0], [0.0, math.nan if world.rank == world.size - 1 else 1.0])
    for collective in (metrics.result, metrics.roc_curve):
        try:
            collective()
            raise AssertionError("a rank has NaN")
        except NonFiniteScores as error:
            assert f"rank {world.size - 1}: metrics: 1 of 2 logits" in str(error)


class ExchangingModel:
    """Scores rows with a collective in the forward pass, as tables on other ranks need it."""

    def __init__(self, world: World, bad_call: int | None = None):
        self.world, self.bad_call = world, bad_call
        self.calls = tf.Variable(0)

    def __call__(self, inputs):
        scores = inputs.numerical[:, :1]
        rows = tf.shape(scores)[0] * tf.ones([self.world.size], tf.int32)
        copies = tf.tile(scores, [self.world.size, 1])
        received, _ = self.world.all_to_all(copies, rows, "forward")
        if self.bad_call is not None:
            call = self.calls.assign_add(1)
            bad = (call == self.bad_call) & (self.world.rank == self.world.size - 1)
            scores = tf.where(bad, math.nan, scores)
        with tf.control_dependencies([received]):
            return tf.identity(scores)


def check_evaluator(world: World) -> None:
    grouping = Grouping("cat_0", lambda inputs: inputs.categorical[0], first_id=1, cutoffs=(3,))
    spec = synthetic_spec([10], num_numerical=2)
    for num_samples, batch_size in ((NUM_ROWS, 1200), (1201, 600), (1, 600)):
        for auc_thresholds in (None, 100):
            own = SyntheticDataset(
                *(spec, "test", batch_size),
                num_samples=num_samples,
                rank=world.rank,
                world_size=world.size,
            )
            whole = SyntheticDataset(spec, "test", batch_size, num_samples=num_samples)
            models = (ExchangingModel(world), lambda inputs: inputs.numerical[:, :1])
            many = ClickEvaluator(models[0], own, auc_thresholds, world, grouping)
            one = ClickEvaluator(models[1], whole, auc_thresholds, None, grouping)
            actual, expected = (dict(evaluator.evaluate()) for evaluator in (many, one))
            assert many.notes == one.notes and "ndcg@3" in actual
            np.testing.assert_allclose(list(actual.values()), list(expected.values()), rtol=1e-12)
            if auc_thresholds is None:
                assert repr(actual["auc"]) == repr(expected["auc"])
    batches = SyntheticDataset(
        *(spec, "test", 60), num_samples=2400, rank=world.rank, world_size=world.size
    )
    try:
        dict(ClickEvaluator(ExchangingModel(world, 3), batches, None, world).evaluate())
        raise AssertionError("a rank has NaN")
    except NonFiniteScores as error:
        assert f"rank {world.size - 1}: " in str(error)


def check(world: World) -> str:
    """Every check; "agree" if none raised."""
    for kind in ("plain", "ties", "constant", "weighted", "one_class"):
        for make in (ExactMetrics, lambda *world: BinnedMetrics(500, *world)):
            for first_rank_has_all in (False, True):
                check_scores(world, kind, make, first_rank_has_all)
    for make in (ExactMetrics, lambda *world: BinnedMetrics(500, *world)):
        check_errors(world, make)
    check_evaluator(world)
    return "agree"
