"""Calibration: groups and bars of a few rows by hand, and over ranks."""

import numpy as np
import pytest
from embedding_testing.fake_world import run_threads

from nn.metrics.calibration import Calibration
from nn.metrics.classification import BinnedMetrics, ExactMetrics
from nn.metrics.evaluator import ClickEvaluator
from tests.nn.metrics.test_evaluator import first_numerical, generated


def added(positives, probabilities):
    calibration = Calibration()
    calibration.add(np.array(positives, bool), np.array(probabilities))
    return calibration


def test_groups_by_hand():
    """Four rows in two groups: predicted (0.1 + 0.2) / 2 and (0.6 + 1) / 2, observed 1/2 and 1."""
    actual = added([0, 1, 1, 1], [0.1, 0.2, 0.6, 1.0]).reliability(2)
    np.testing.assert_allclose(actual.predicted, [0.15, 0.8])
    np.testing.assert_allclose(actual.observed, [0.5, 1.0])
    np.testing.assert_array_equal(actual.mass, [2, 2])


@pytest.mark.parametrize(
    ("probabilities", "end", "bars"),
    [([0.1, 0.3, 0.3, 0.9], 1.0, (5, 15, 45)), ([0.004, 0.004, 0.0061, 0.009], 0.01, (20, 30, 45))],
)
def test_bars_by_hand(probabilities, end, bars):
    """The first and the last row are negatives."""
    actual, shares = added([0, 1, 1, 0], probabilities).histogram(50)
    assert actual == end
    expected = np.zeros([2, 50])
    first, middle, last = bars
    if end == 1.0:
        expected[0, [first, last]], expected[1, middle] = 0.5, 1.0
    else:
        expected[0, [first, last]], expected[1, [first, middle]] = 0.5, 0.5
    np.testing.assert_allclose(shares, expected)


def test_rows_beyond_range():
    actual, shares = added([0] * 4999 + [1], [0.05] * 4999 + [0.9]).histogram(10)
    assert actual == 0.1
    np.testing.assert_array_equal(shares[1], [0] * 9 + [1])


@pytest.mark.parametrize("make", [ExactMetrics, lambda: BinnedMetrics(7)])
def test_calibration_of_metrics(make):
    """Logits 0 and log 3 are the probabilities 0.5 and 0.75; the row of weight 0 is ignored."""
    metrics = make()
    metrics.calibration = Calibration()
    logits = np.float32([0.0, np.log(3), np.log(3), -np.log(3), 9.0])
    metrics.update([0, 1, 1, 0, 1], logits, [1, 1, 1, 1, 0])
    actual = metrics.calibration.reliability(20)
    np.testing.assert_allclose(actual.predicted, [0.25, 0.5, 0.75], rtol=1e-6)
    np.testing.assert_array_equal(actual.observed, [0, 0, 1])
    np.testing.assert_array_equal(actual.mass, [1, 1, 2])


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_against_one(size):
    def calibration_of(dataset, world=None):
        evaluator = ClickEvaluator(first_numerical, dataset, None, world)
        dict(evaluator.evaluate())
        return evaluator.calibration

    def run(world):
        return calibration_of(generated(333, 48, world.rank, world.size), world).sums

    expected = calibration_of(generated(333, 48)).sums
    assert expected[:2].sum() == 333
    for sums in run_threads(size, run):
        np.testing.assert_array_equal(sums[:2], expected[:2])
        np.testing.assert_allclose(sums[2], expected[2], rtol=1e-12)
