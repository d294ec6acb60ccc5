"""Simple models of clicks, and the ones that need no package: constant and popularity."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn.metrics.classification import Scores, make_metrics
from recipes.baseline.sample_arrays import ClickRows

Logits = Callable[[ClickRows], NDArray[np.float64]]

# Rows of the mean label that are added to those of each id.
SMOOTHING = (1, 10, 100)


class SimpleModel(NamedTuple):
    """A fitted model.

    Attributes:
        name: of the model.
        settings: those that were chosen, in words.
        logits: returns the log odds of rows, float64 [rows].
    """

    name: str
    settings: str
    logits: Logits


def scores_of(logits: NDArray[Any], labels: NDArray[np.bool_]) -> Scores:
    """Returns the metrics of log odds [rows]."""
    return scores_over([(logits, labels)])


def scores_over(blocks: Iterable[tuple[NDArray[Any], NDArray[np.bool_]]]) -> Scores:
    """Returns the metrics of blocks of log odds and labels."""
    metrics: Any = make_metrics()
    for logits, labels in blocks:
        metrics.update(labels, logits)
    scores: Scores = metrics.result()
    return scores


def constant(train: ClickRows) -> SimpleModel:
    """Returns the share of positives as the prediction of every row."""
    logit = _log_odds(np.mean(train.labels))
    name = f"predicts {np.mean(train.labels):.4f}"
    return SimpleModel("constant", name, lambda rows: np.full(len(rows.labels), logit))


def popularity(train: ClickRows, choosing: ClickRows) -> SimpleModel | None:
    """Returns the smoothed mean label of each id of one feature; None without a feature.

    The mean label of an id is (positives + m p) / (rows + m), where p is the mean label of all
    rows. Feature and m are those of the least log loss of `choosing`.
    """
    trials = []
    for feature in train.ids:
        for smoothing in SMOOTHING:
            model = _mean_label(train, feature, smoothing)
            loss = scores_of(model.logits(choosing), choosing.labels).log_loss
            trials.append((loss, model))
    return min(trials, key=lambda trial: trial[0])[1] if trials else None


def _mean_label(train: ClickRows, feature: str, smoothing: float) -> SimpleModel:
    ids, cardinality = train.ids[feature], train.cardinalities[feature]
    counts = np.bincount(ids, minlength=cardinality)
    positives = np.bincount(ids, train.labels, minlength=cardinality)
    means = (positives + smoothing * np.mean(train.labels)) / (counts + smoothing)
    logits = _log_odds(means)
    settings = f"mean label by {feature}, {smoothing} rows added"
    return SimpleModel("popularity", settings, lambda rows: logits[rows.ids[feature]])


def _log_odds(shares: Any) -> Any:
    return np.log(shares) - np.log1p(-np.asarray(shares))
