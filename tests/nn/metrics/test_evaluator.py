"""Evaluation of a model over every row, on one rank and on several."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from embedding_testing.fake_world import run_threads

from dataloading.pipeline.batch import Batch, Inputs
from dataloading.synthetic.dataset import SyntheticDataset, synthetic_spec
from nn.metrics.classification import NonFiniteScores
from nn.metrics.evaluator import ClickEvaluator, HeldOutAndTrainEvaluator
from nn.metrics.plausibility import LEAK, ONE_CLASS

SPEC = synthetic_spec([10], num_numerical=2)


def first_numerical(inputs):
    """A model: the score is the first numerical."""
    return inputs.numerical[:, :1]


def generated(num_samples, batch_size, rank=0, world_size=1):
    return SyntheticDataset(
        SPEC, "test", batch_size, num_samples=num_samples, rank=rank, world_size=world_size
    )


def rows(*batches):
    """A data set of batches of (logits, labels, weights)."""

    def batch(logits, labels, weights):
        columns = [np.array(values, np.float32)[:, None] for values in (logits, labels, weights)]
        return Batch(Inputs(columns[0], ()), *columns[1:])

    created = [batch(*values) for values in batches]
    spec = tf.TensorSpec([None, 1], tf.float32)
    return SimpleNamespace(
        num_batches=len(created),
        split="test",
        dataset=lambda: tf.data.Dataset.from_generator(
            lambda: iter(created), output_signature=Batch(Inputs(spec, ()), spec, spec)
        ),
    )


def test_equal_weight_of_real_rows():
    dataset = rows(([0.0, 2.0], [0, 1], [1, 1]), ([0.0, 9.0], [1, 0], [1.5, 0.0]))
    scores = dict(ClickEvaluator(first_numerical, dataset).evaluate())
    assert list(scores) == ["auc", "log_loss", "normalized_entropy", "pr_auc", "calibration"]
    assert scores["auc"] == 1.5 / 2  # 2 > 0, 0 = 0
    expected = (2 * math.log(2) + math.log(1 + math.exp(-2))) / 3
    assert scores["log_loss"] == pytest.approx(expected, rel=1e-6)


def test_error_bound_of_bins():
    evaluator = ClickEvaluator(first_numerical, generated(500, 64), auc_thresholds=50)
    exact = dict(ClickEvaluator(first_numerical, generated(500, 64)).evaluate())
    scores = dict(evaluator.evaluate())
    assert 0 < scores["auc_error_bound"] < 0.05
    assert abs(scores["auc"] - exact["auc"]) <= scores["auc_error_bound"]


def test_note_with_first_score():
    evaluator = ClickEvaluator(first_numerical, rows(([0.0], [1], [1])))
    assert evaluator.notes == {}
    assert math.isnan(next(evaluator.evaluate())[1])
    assert "it needs both classes" in evaluator.notes[ONE_CLASS]


def test_notes_of_training_rows():
    """A high AUC of training rows is not a leak."""
    held_out, training = (ClickEvaluator(first_numerical, rows(([0.0], [1], [1]))) for _ in "ab")
    training.notes = {LEAK: "high", ONE_CLASS: "one"}
    both = HeldOutAndTrainEvaluator(held_out, training)
    assert both.notes == {f"{ONE_CLASS} of training rows": "training rows: one"}
    held_out.notes = {LEAK: "high"}
    assert both.notes[LEAK] == "high"


def test_picture_of_last_evaluation():
    evaluator = ClickEvaluator(first_numerical, rows(([0.0, 2.0], [0, 1], [1, 1])))
    assert evaluator.picture({}) is None
    picture = evaluator.picture(dict(evaluator.evaluate()))
    curves = picture["curves"]
    assert picture["split"] == "test" and curves["auc"] == 1
    assert (curves["fpr"].tolist(), curves["tpr"].tolist()) == ([0, 0, 1, 1], [0, 1, 1, 1])
    assert sum(picture["reliability"]["mass"]) > 0 and picture["histogram"]["shares"].sum() == 2


@pytest.mark.quick("2-*", "3-333-*")
@pytest.mark.parametrize("auc_thresholds", [None, 100], ids=["exact", "binned"])
@pytest.mark.parametrize("num_samples", [384, 333, 1])  # 333: the last batch is uneven
@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_against_one(size, num_samples, auc_thresholds):
    one = ClickEvaluator(first_numerical, generated(num_samples, 48), auc_thresholds)
    expected = dict(one.evaluate())

    def run(world):
        dataset = generated(num_samples, 48, world.rank, world.size)
        evaluator = ClickEvaluator(first_numerical, dataset, auc_thresholds, world)
        results = evaluator.evaluate()
        outcome = dict([next(results)])  # all communication is over by now
        if world.is_chief:
            calls = list(world.calls)
            outcome |= dict(results)
            assert evaluator.picture(outcome) is not None
            assert world.calls == calls
        else:
            outcome |= dict(results)
        return outcome, evaluator.notes

    results = run_threads(size, run)
    assert all(repr(result) == repr(results[0]) for result in results)
    outcome, notes = results[0]
    assert notes == one.notes
    assert outcome == pytest.approx(expected, rel=1e-12, nan_ok=True)
    if auc_thresholds is None and num_samples > 1:
        assert outcome["auc"] == expected["auc"]


@pytest.mark.parametrize("bad_batch", [0, 17, 39])
def test_nan_on_one_rank(bad_batch):
    """The model has a collective in every batch: a rank that left early would stop the others."""

    def run(world):
        good = ([0.0, 1.0], [0, 1], [1, 1])
        batches = [good] * 40
        if world.rank == 1:
            batches[bad_batch] = ([0.0, math.nan], [0, 1], [1, 1])

        evaluator = ClickEvaluator(first_numerical, rows(*batches), None, world)
        score_next = evaluator._scorer.score_next

        def score_together(iterator):
            world.all_gather([world.rank], "forward")
            return score_next(iterator)

        evaluator._scorer.score_next = score_together
        try:
            return list(evaluator.evaluate())
        finally:
            assert world.calls.count("forward") == 40

    for error in run_threads(3, run):
        assert isinstance(error, NonFiniteScores)
        assert str(error).startswith("rank 1: metrics: 1 of 2 logits of a batch are NaN")
