"""Metrics of rows that are spread over ranks: those of one accumulator that has them all."""

import math

import numpy as np
import pytest
import tensorflow as tf
from embedding_testing.fake_world import run_threads
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_curve as sklearn_roc_curve

from nn.metrics.classification import BinnedMetrics, ExactMetrics, NonFiniteScores
from tests.nn.metrics import test_metrics

SIZES = pytest.mark.parametrize("size", [1, 2, 3, 4])
KINDS = pytest.mark.parametrize(
    "make",
    [ExactMetrics, lambda *world: BinnedMetrics(1000, *world)],
    ids=["exact", "binned"],
)


def scores_of_ranks(size, make, rows_of_rank, batch_size=7):
    """Returns each rank's scores or its error; rows are (labels, logits, weights or None)."""

    def run(world):
        metrics = make(world)
        labels, logits, weights = rows_of_rank[world.rank]
        for start in range(0, len(labels), batch_size):
            rows = slice(start, start + batch_size)
            metrics.update(labels[rows], logits[rows], None if weights is None else weights[rows])
        return metrics.result()

    return run_threads(size, run)


def one_accumulator(make, rows_of_rank):
    metrics = make()
    for labels, logits, weights in rows_of_rank:
        metrics.update(labels, logits, weights)
    return metrics


def assert_same_everywhere(results):
    assert all(repr(result) == repr(results[0]) for result in results), results


def random_rows(*size_and_seed, weighted=False, **options):
    labels, logits, weights = test_metrics.random_rows(*size_and_seed, **options)
    return labels, logits, weights if weighted else None


def spread(rows, size, seed=0, uneven=False):
    """The rows in random order on `size` ranks; uneven: the last rank has none."""
    order = np.random.default_rng(seed).permutation(len(rows[0]))
    parts = [p for p in np.array_split(order, size - 1 if uneven and size > 1 else size)]
    parts += [order[:0]] * (size - len(parts))
    return [tuple(None if c is None else c[part] for c in rows) for part in parts]


@SIZES
@pytest.mark.parametrize("decimals", [None, 2, 1, 0], ids=["no_ties", "few", "many", "heavy"])
@pytest.mark.parametrize("positive_fraction", [0.03, 0.5, 0.9])
@pytest.mark.parametrize("uneven", [False, True], ids=["even", "uneven"])
def test_bitwise_exact_auc(size, decimals, positive_fraction, uneven):
    rows = random_rows(5000, 1, decimals=decimals, positive_fraction=positive_fraction)
    ranks = spread(rows, size, uneven=uneven)
    expected = one_accumulator(ExactMetrics, [rows]).result()
    results = scores_of_ranks(size, ExactMetrics, ranks, batch_size=999)
    assert_same_everywhere(results)
    assert results[0].auc == expected.auc
    assert results[0].pr_auc == expected.pr_auc
    assert list(results[0][1:5]) == pytest.approx(list(expected[1:5]), rel=1e-12)
    assert results[0][5:] == expected[5:]


@SIZES
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_binned_scores(size, weighted):
    rows = random_rows(3000, 3, weighted=weighted)

    def make(*world):
        return BinnedMetrics(50, *world)

    expected = one_accumulator(make, [rows]).result()
    results = scores_of_ranks(size, make, spread(rows, size, uneven=True))
    assert_same_everywhere(results)
    assert results[0].auc == pytest.approx(expected.auc, abs=1e-14)
    assert results[0].auc_error_bound == pytest.approx(expected.auc_error_bound, rel=1e-12)
    assert list(results[0][1:5]) == pytest.approx(list(expected[1:5]), rel=1e-12)
    assert results[0].num_rows == expected.num_rows


@settings(deadline=None, max_examples=100, derandomize=True, database=None)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.booleans(),
            st.one_of(
                st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf]),
                st.floats(-50, 50, width=32),
            ),
            st.sampled_from([0, 1]),
        ),
        min_size=1,
        max_size=60,
    ),
    copies=st.integers(1, 5),
    size=st.integers(2, 4),
)
def test_random_rows_against_one_accumulator(rows, copies, size):
    columns = [np.array(column) for column in zip(*rows * copies, strict=True)]
    owner, columns = columns[0] % size, columns[1:]
    ranks = [tuple(column[owner == rank] for column in columns) for rank in range(size)]
    results = scores_of_ranks(size, ExactMetrics, ranks)
    if not columns[2].any():
        assert all("nothing to evaluate" in str(error) for error in results)
        return
    expected = one_accumulator(ExactMetrics, ranks).result()
    assert_same_everywhere(results)
    assert repr(results[0].auc) == repr(expected.auc)
    assert repr(results[0].pr_auc) == repr(expected.pr_auc)
    np.testing.assert_allclose(results[0][1:5], expected[1:5], rtol=1e-12)
    assert results[0][5:] == expected[5:]


def bad_updates(world, make, bad_batches, as_tensors):
    """Updates each rank with its bad batches between good ones; only `result()` may raise."""
    metrics = make(world)
    for batch in [([1, 0], [0.0, 1.0]), *bad_batches[world.rank], ([1, 0], [0.0, 1.0])]:
        metrics.update(*([tf.constant(part) for part in batch] if as_tensors else batch))
    return metrics.result()


@KINDS
@pytest.mark.parametrize("as_tensors", [False, True], ids=["arrays", "tensors"])
def test_nan_on_one_rank(make, as_tensors):
    bad = [[], [([1.0, 0.0], [math.nan, 1.0])], []]
    errors = run_threads(3, bad_updates, make, bad, as_tensors)
    for error in errors:
        assert isinstance(error, NonFiniteScores)
        assert str(error).startswith("rank 1: metrics: 1 of 2 logits of a batch are NaN")
        assert "ranks have an error" not in str(error)


@KINDS
def test_errors_of_several_ranks(make):
    nan, wrong = ([1.0], [math.nan]), ([7.0], [0.0])
    for error in run_threads(3, bad_updates, make, [[], [nan], [nan, wrong]], False):
        assert isinstance(error, NonFiniteScores)
        assert str(error).startswith("rank 1: ")
        assert str(error).endswith("(2 of 3 ranks have an error)")
    # Wrong labels are not a model that has diverged.
    for error in run_threads(2, bad_updates, make, [[wrong], [nan]], False):
        assert not isinstance(error, NonFiniteScores)
        assert str(error).startswith("rank 0: metrics: labels must be 0 or 1, received 7")


def test_rows_after_result():
    rows = random_rows(600, decimals=1)

    def run(world):
        metrics = ExactMetrics(world)
        own = [column[world.rank :: world.size] for column in rows[:2]]
        metrics.update(*(column[:50] for column in own))
        first = metrics.result(), metrics.roc_curve()
        assert first[0] == metrics.result()
        metrics.update(*(column[50:] for column in own))
        metrics.roc_curve()
        return metrics.result()

    results = run_threads(3, run)
    assert_same_everywhere(results)
    assert results[0].auc == one_accumulator(ExactMetrics, [rows]).result().auc


def curves_of_ranks(size, make, rows_of_rank, max_points):
    def run(world):
        metrics = make(world)
        metrics.update(*rows_of_rank[world.rank])
        return metrics.roc_curve(max_points)

    return run_threads(size, run)


@pytest.mark.quick("*-2", "20-weighted-3")
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("max_points", [20, 1000])
def test_points_of_roc_curve(size, weighted, max_points):
    rows = random_rows(8000, decimals=3, weighted=weighted)
    curves = curves_of_ranks(size, ExactMetrics, spread(rows, size, uneven=True), max_points)
    assert_same_everywhere([curve.tolist() for curve in np.array(curves)])
    fpr, tpr = curves[0]
    assert 0.8 * max_points < len(fpr) == len(tpr) <= max_points
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)
    assert (np.diff(fpr) >= 0).all() and (np.diff(tpr) >= 0).all()
    labels, logits, weights = rows
    expected = sklearn_roc_curve(labels, logits, sample_weight=weights, drop_intermediate=False)
    on_curve = np.stack(expected[:2], axis=1)
    for point in np.stack([fpr, tpr], axis=1)[1:-1:20]:
        assert np.abs(on_curve - point).sum(axis=1).min() < 1e-6
    gaps = np.maximum(np.diff(fpr), np.diff(tpr))
    assert gaps.max() < 4 * 2 / max_points  # evenly along it


@KINDS
@pytest.mark.parametrize("label", [0, 1])
def test_rate_of_empty_class(make, label):
    for fpr, tpr in curves_of_ranks(2, make, [([label], [0.0]), ([], [])], 100):
        assert np.isnan(tpr if label == 0 else fpr).all()
        assert np.isfinite(fpr if label == 0 else tpr).all()


def test_binned_roc_curve():
    rows = random_rows(3000)

    def make(*world):
        return BinnedMetrics(200, *world)

    expected = one_accumulator(make, [rows]).roc_curve(100)
    for curve in curves_of_ranks(3, make, spread(rows, 3), 100):
        np.testing.assert_allclose(curve, expected, atol=1e-14)


@KINDS
def test_roc_curve_errors(make):
    for error in curves_of_ranks(2, make, [([1], [math.nan]), ([0], [1.0])], 100):
        assert isinstance(error, NonFiniteScores) and "rank 0: " in str(error)
    for error in curves_of_ranks(2, make, [([], []), ([], [])], 100):
        assert "nothing to evaluate" in str(error)
