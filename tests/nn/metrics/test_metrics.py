import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score
from sklearn.metrics import roc_curve as sklearn_roc_curve

from nn.metrics.classification import BinnedMetrics, ExactMetrics
from nn.metrics.plausibility import ONE_CLASS

KINDS = pytest.mark.parametrize(
    "make", [ExactMetrics, lambda: BinnedMetrics(1000)], ids=["exact", "binned"]
)


def accumulate(metrics, labels, logits, weights=None, batch_size=7):
    for start in range(0, len(labels), batch_size):
        rows = slice(start, start + batch_size)
        metrics.update(labels[rows], logits[rows], None if weights is None else weights[rows])
    return metrics


def random_rows(num_rows, seed=0, positive_fraction=0.3, decimals=None):
    rng = np.random.default_rng(seed)
    labels = (rng.random(num_rows) < positive_fraction).astype(np.float32)
    logits = rng.normal(size=num_rows) + labels
    if decimals is not None:
        logits = logits.round(decimals)
    weights = rng.choice([0, 1, 1, 1], num_rows).astype(np.float32)
    return labels, logits.astype(np.float32), weights


def sigmoid(logits):
    return 1 / (1 + np.exp(-np.asarray(logits, np.float64)))


def test_hand_computed_binned_auc_and_its_bound():
    # Four bins of probability 1/4: positives in bins 3 and 1, negatives in bins 1 and 0.
    logits = np.log(np.array([0.9, 0.3, 0.4, 0.1]) / np.array([0.1, 0.7, 0.6, 0.9]))
    metrics = accumulate(BinnedMetrics(4), np.array([1, 1, 0, 0]), logits)
    # Exact: 3 of 4 pairs; the pair in bin 1 counts half instead of nothing.
    assert metrics.result().auc == 3.5 / 4
    assert metrics.result().auc_error_bound == 0.5 / 4


@pytest.mark.parametrize("decimals", [None, 1, 0], ids=["no_ties", "ties", "many_ties"])
@pytest.mark.parametrize("positive_fraction", [0.03, 0.5, 0.9])
def test_exact_metrics_against_scikit_learn(decimals, positive_fraction):
    labels, logits, weights = random_rows(5000, 1, positive_fraction, decimals)
    scores = accumulate(ExactMetrics(), labels, logits, batch_size=999).result()
    assert scores.auc == pytest.approx(roc_auc_score(labels, logits), abs=1e-13)
    assert scores.log_loss == pytest.approx(log_loss(labels, sigmoid(logits)), rel=1e-12)

    scores = accumulate(ExactMetrics(), labels, logits, weights, batch_size=999).result()
    expected = roc_auc_score(labels, logits, sample_weight=weights)
    assert scores.auc == pytest.approx(expected, abs=1e-12)
    expected = log_loss(labels, sigmoid(logits), sample_weight=weights)
    assert scores.log_loss == pytest.approx(expected, rel=1e-12)
    assert scores.num_rows == np.count_nonzero(weights)
    expected = average_precision_score(labels, logits, sample_weight=weights)
    assert scores.pr_auc == pytest.approx(expected, abs=1e-12)
    rate = np.average(labels.astype(np.float64), weights=weights)
    entropy = -rate * np.log(rate) - (1 - rate) * np.log(1 - rate)
    assert scores.normalized_entropy == pytest.approx(scores.log_loss / entropy, rel=1e-12)
    expected = weights @ sigmoid(logits) / (weights @ labels)
    assert scores.calibration == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("num_bins", [2, 10, 1000, 8000])
@pytest.mark.parametrize("decimals", [None, 0], ids=["no_ties", "many_ties"])
def test_binned_metrics_against_scikit_learn(num_bins, decimals):
    labels, logits, weights = random_rows(5000, 2, 0.1, decimals)
    scores = accumulate(BinnedMetrics(num_bins), labels, logits, weights, 999).result()
    expected = roc_auc_score(labels, logits, sample_weight=weights)
    assert abs(scores.auc - expected) <= scores.auc_error_bound + 1e-12
    if decimals is None:
        assert scores.auc_error_bound < 1.5 / num_bins
    bins = np.minimum((sigmoid(logits) * num_bins).astype(int), num_bins - 1)
    expected = average_precision_score(labels, bins, sample_weight=weights)
    assert scores.pr_auc == pytest.approx(expected, abs=1e-12)
    expected = log_loss(labels, sigmoid(logits), sample_weight=weights)
    assert scores.log_loss == pytest.approx(expected, rel=1e-12)


@settings(deadline=None, max_examples=150, derandomize=True, database=None)
@given(
    rows=st.lists(
        st.tuples(
            st.booleans(),
            st.one_of(st.integers(-3, 3), st.floats(-50, 50, width=32)),
            st.sampled_from([0, 1, 1, 1]),
        ),
        min_size=1,
        max_size=60,
    ),
    batch_size=st.integers(1, 61),
    num_bins=st.integers(2, 40),
)
def test_random_rows_against_scikit_learn(rows, batch_size, num_bins):
    labels, logits, weights = (np.array(column) for column in zip(*rows, strict=True))
    kept = weights > 0
    metrics = accumulate(ExactMetrics(), labels, logits, weights, batch_size)
    binned = accumulate(BinnedMetrics(num_bins), labels, logits, weights, batch_size)
    if not kept.any():
        with pytest.raises(ValueError, match="nothing to evaluate"):
            metrics.result()
        return
    exact, near = metrics.result(), binned.result()
    assert exact.num_rows == near.num_rows == kept.sum()
    assert exact.log_loss == near.log_loss
    if len(set(labels[kept])) == 1:
        assert math.isnan(exact.auc) and math.isnan(near.auc)
        return
    logits32 = logits.astype(np.float32)
    expected = roc_auc_score(labels, logits32, sample_weight=weights)
    assert exact.auc == pytest.approx(expected, abs=1e-12)
    assert abs(near.auc - expected) <= near.auc_error_bound + 1e-12


@KINDS
@pytest.mark.parametrize("label", [0, 1])
def test_single_class(make, label):
    metrics = make()
    metrics.update([label] * 3, [0.0, 0.0, 0.0])
    scores = metrics.result()
    assert math.isnan(scores.auc)
    note = f"AUC is undefined, it needs both classes: all 3 labels are {label}"
    assert scores.notes == {ONE_CLASS: note}
    assert scores.log_loss == pytest.approx(math.log(2), rel=1e-15)
    fpr, tpr = metrics.roc_curve()
    assert np.isnan(tpr if label == 0 else fpr).all()
    assert np.isfinite(fpr if label == 0 else tpr).all()


@KINDS
def test_padding_rows(make):
    labels, logits, _ = random_rows(50)
    plain = make()
    plain.update(labels, logits)
    padded = make()
    padded.update(
        np.append(labels, [7, np.nan]), np.append(logits, [np.nan, np.inf]), [1] * 50 + [0] * 2
    )
    padded.update([3.0], [np.nan], [0.0])
    assert padded.result() == plain.result()


@KINDS
def test_huge_and_infinite_logits(make):
    metrics = make()
    metrics.update([1, 0], [3e38, -3e38])
    assert metrics.result()[:2] == (1.0, 0.0)
    metrics.update([1, 0], [np.inf, -np.inf])
    assert metrics.result()[:2] == (1.0, 0.0)
    metrics.update([0], [1e30])
    assert metrics.result().log_loss == pytest.approx(1e30 / 5, rel=1e-6)
    metrics.update([1], [-np.inf])
    assert metrics.result().log_loss == math.inf


@KINDS
def test_perfect_reversed_and_constant_scores(make):
    for logits, auc in (([1.0, -1], 1), ([-1.0, 1], 0), ([0.0, 0], 0.5), ([-0.0, 0.0], 0.5)):
        metrics = make()
        metrics.update([1, 0], logits)
        assert metrics.result().auc == auc


@KINDS
@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16], ids=lambda t: t.name)
def test_tensors_of_every_float_type_in_columns(make, dtype):
    labels, logits, _ = random_rows(200, decimals=1)
    logits = tf.cast(logits, dtype)
    expected = make()
    expected.update(labels, logits.numpy().astype(np.float32))
    metrics = make()
    for start in range(0, 200, 10):  # more updates than are held back
        rows = slice(start, start + 10)
        column = tf.constant(labels[rows, None])
        metrics.update(column, logits[rows, None], tf.ones_like(column))
    assert metrics.result().auc == expected.result().auc
    assert metrics.result().log_loss == pytest.approx(expected.result().log_loss, rel=1e-14)


@KINDS
def test_rows_after_result(make):
    labels, logits, weights = random_rows(300)
    metrics = accumulate(make(), labels[:100], logits[:100], weights[:100])
    metrics.result()
    metrics.roc_curve()
    accumulate(metrics, labels[100:], logits[100:], weights[100:])
    whole = accumulate(make(), labels, logits, weights).result()
    assert metrics.result().auc == pytest.approx(whole.auc, abs=1e-14)
    assert metrics.result().log_loss == pytest.approx(whole.log_loss, rel=1e-14)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_exact_roc_curve_against_scikit_learn(weighted):
    labels, logits, weights = random_rows(20_000, 3, 0.2)
    weights = weights if weighted else None
    fpr, tpr = accumulate(ExactMetrics(), labels, logits, weights, 5000).roc_curve()
    assert 900 < len(fpr) == len(tpr) <= 1000
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)
    assert (np.diff(fpr) >= 0).all() and (np.diff(tpr) >= 0).all()
    expected = sklearn_roc_curve(labels, logits, sample_weight=weights, drop_intermediate=False)
    on_curve = np.stack(expected[:2], axis=1)
    for point in np.stack([fpr, tpr], axis=1)[::50]:
        assert np.abs(on_curve - point).sum(axis=1).min() < 1e-12
    area = ((fpr[1:] - fpr[:-1]) * (tpr[1:] + tpr[:-1])).sum() / 2
    assert area == pytest.approx(roc_auc_score(labels, logits, sample_weight=weights), abs=1e-4)


@pytest.mark.parametrize("max_points", [4, 20, 1000])
def test_binned_roc_curve(max_points):
    labels, logits, _ = random_rows(5000)
    fpr, tpr = accumulate(BinnedMetrics(8000), labels, logits, batch_size=999).roc_curve(max_points)
    assert 3 <= len(fpr) == len(tpr) <= max_points
    assert (fpr[0], tpr[0]) == (0, 0)
    assert (fpr[-1], tpr[-1]) == pytest.approx((1, 1), abs=1e-12)
    assert (np.diff(fpr) >= 0).all() and (np.diff(tpr) >= 0).all()


@KINDS
@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (([1, 2], [0.0, 1.0]), "labels must be 0 or 1, received 2"),
        (([1, np.nan], [0.0, 1.0]), "labels must be 0 or 1, received nan"),
        (([1, 0], [np.nan, 1.0]), "1 of 2 logits of a batch are NaN"),
    ],
    ids=["label", "nan_label", "nan"],
)
def test_bad_batches(make, batch, message):
    with pytest.raises(ValueError, match=message):
        make().update(*batch)
