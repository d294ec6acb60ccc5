"""Notes on metrics that are possible but rarely right."""

import math

import numpy as np
import pytest
from embedding_testing.fake_world import run_threads

from nn.metrics.classification import BinnedMetrics, ExactMetrics
from nn.metrics.plausibility import (
    HALF,
    LEAK,
    ONE_CLASS,
    ONE_VALUE,
    EqualScores,
    click_notes,
    ranking_notes,
)

FEW = EqualScores(0.0, 3)


@pytest.mark.parametrize(
    ("auc", "positives", "equal", "kinds"),
    [
        (0.8, 500, FEW, []),
        (0.991, 500, FEW, [LEAK]),
        (0.991, 500, None, [LEAK]),
        (1.0, 49, FEW, []),  # too few rows
        (0.5, 500, FEW, [HALF]),
        (0.5, 500, None, [HALF]),
        (0.5, 500, EqualScores(0.0, 1000), [ONE_VALUE]),
        (0.52, 500, EqualScores(0.0, 991), [ONE_VALUE]),
        (0.52, 500, EqualScores(0.0, 990), []),
        (0.995, 60, EqualScores(-9.0, 992), [LEAK, ONE_VALUE]),
        (math.nan, 0, EqualScores(0.0, 1000), [ONE_CLASS]),
    ],
)
def test_kinds_of_clicks(auc, positives, equal, kinds):
    assert list(click_notes(auc, 1000 - positives, positives, equal)) == kinds


def test_texts_of_clicks():
    (note,) = click_notes(0.5, 500, 500, EqualScores(math.log(3), 1000)).values()
    assert note.startswith("all of the predictions are 0.75: ")
    (note,) = click_notes(0.5, 500, 500, EqualScores(-math.inf, 995)).values()
    assert note.startswith("99.50% of the predictions are ")
    (note,) = click_notes(0.5, 500, 500, None).values()
    assert "one bin of --auc_thresholds" in note


@pytest.mark.parametrize(
    ("rate", "lists", "k", "kinds"),
    [
        (0.6, 100, 10, []),
        (0.0, 100, 10, [ONE_VALUE]),
        (0.995, 100, 10, [LEAK]),
        (0.995, 100, 60, []),  # of 100
        (1.0, 49, 10, []),
        (1.0, 100, 100, [ONE_CLASS]),
    ],
)
def test_kinds_of_rankings(rate, lists, k, kinds):
    assert list(ranking_notes(f"hr@{k}", rate, lists, k, 100)) == kinds


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("share", [0.51, 0.9, 0.995, 1])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_equal_scores_over_ranks(size, share, is_sorted):
    """The count is exact, however the rows are spread: sorted, some ranks have no equal ones."""
    rng = np.random.default_rng(1)
    logits = rng.normal(size=1001).astype(np.float32)
    equal = round(1001 * share)
    logits[:equal] = -2.5
    labels = rng.integers(0, 2, 1001)
    order = np.argsort(logits) if is_sorted else rng.permutation(1001)

    def run(world):
        metrics = ExactMetrics(world)
        own = order[world.rank * 1001 // size : (world.rank + 1) * 1001 // size]
        metrics.update(labels[own], logits[own])
        return metrics._most_frequent(), metrics.result().notes

    for counted, notes in run_threads(size, run):
        assert counted == EqualScores(-2.5, equal)
        assert (ONE_VALUE in notes) == (share > 0.99)


def test_rank_without_rows():
    def run(world):
        metrics = ExactMetrics(world)
        if world.rank:
            metrics.update(np.arange(200) % 2, np.zeros(200))
        return metrics.result().notes

    assert [list(notes) for notes in run_threads(3, run)] == [[ONE_VALUE]] * 3


def test_one_bin():
    metrics = BinnedMetrics(10)
    metrics.update(np.arange(200) % 2, np.linspace(-0.1, -0.001, 200))
    assert list(metrics.result().notes) == [HALF]
