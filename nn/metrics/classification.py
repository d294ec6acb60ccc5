"""Log loss and ROC AUC over a whole evaluation: exact by sorting, or binned in constant memory.

Both accumulators have one interface:

    metrics = make_metrics(auc_thresholds=None)
    for batch in batches:
        metrics.update(batch.labels, logits, batch.weights)
    metrics.result()        # Scores(auc, log_loss, ...)
    metrics.roc_curve()     # (fpr, tpr), at most 1,000 points

Rows of weight 0 are padding: whatever their label and logit are, they change nothing. Where each of
several ranks has some of the rows, `nn/metrics/distributed.py` gives all of them the result of all.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nn.metrics.calibration import Calibration
from nn.metrics.sorted_scores import SortedScores, auc_of, doubled_wins, mass_below, rates

# Updates with tensors are kept this long before their values are fetched, so that an accelerator is
# waited for once in 16 batches (16 x 65,536 rows x 12 bytes = 12 MiB are pending).
_MAX_PENDING_UPDATES = 16


class Scores(NamedTuple):
    """Metrics of an evaluation.

    auc: area under the ROC curve; NaN where it is undefined (labels of one class only); `note`
        states the reason.
    log_loss: weighted mean of the binary cross entropy, in nats.
    auc_error_bound: |auc - exact auc| is at most this; 0 for the exact accumulator.
    num_rows: rows of non-zero weight.
    note: remarks on the metrics, or empty.
    """

    auc: float
    log_loss: float
    auc_error_bound: float
    num_rows: int
    note: str


class NonFiniteScores(ValueError):
    """The model returned NaN, or infinity where a score must be finite."""


def summarize(totals, positive, negative, auc: Callable[[], tuple[float, float]]) -> Scores:
    """Computes metrics from sums.

    Args:
        totals: sums of weight * loss, of weights and of rows.
        positive, negative: rows of each class, or their weight.
        auc: gives (auc, error bound); called where there are both classes.

    Raises:
        ValueError: the number of rows is 0.
    """
    loss_sum, weight_sum, num_rows = totals
    if num_rows == 0:
        raise ValueError(
            "metrics: there is nothing to evaluate: no row of non-zero weight was added. "
            "Check that the evaluated mapping has rows."
        )
    value, bound, note = float("nan"), 0.0, ""
    if positive > 0 and negative > 0:
        value, bound = auc()
    else:
        label = 1 if positive > 0 else 0
        note = f"AUC is undefined, it needs both classes: all {int(num_rows)} labels are {label}"
    return Scores(value, float(loss_sum / weight_sum), bound, int(num_rows), note)


class _Metrics:
    """Checks and log loss; a subclass keeps what its AUC needs in `_store`.

    Attributes:
        calibration: receives all rows, too, where it is set before the first one.
    """

    def __init__(self):
        # Sum of weight * loss, sum of weights, number of rows: adding two of these merges them.
        self._totals = np.zeros(3, np.float64)
        self._pending = []
        self.calibration: Calibration | None = None

    def update(self, labels, logits, weights=None):
        """Adds a batch.

        Args:
            labels: 0 or 1, [batch] or [batch, 1], any dtype, array or eager tensor.
            logits: as many; kept in float32 precision. Infinite ones are allowed, NaN is not.
            weights: as many, >= 0, or None for 1.0 everywhere.

        Tensors are fetched every 16 updates and when a result is requested, arrays at once: the
        error for a bad batch of tensors may come some updates later.

        Raises:
            ValueError: sizes that differ, labels other than 0 and 1, a NaN logit, a negative or
                non-finite weight.
        """
        batch = (labels, logits, weights)
        if not any(hasattr(part, "numpy") for part in batch):
            self._add(*batch)
            return
        self._pending.append(batch)
        if len(self._pending) >= _MAX_PENDING_UPDATES:
            self.fetch()

    def result(self) -> Scores:
        """Everything added so far. More may be added afterwards.

        Raises:
            ValueError: no row of non-zero weight was added, or a pending batch is bad (see update).
        """
        self.fetch()
        return summarize(self._totals, *self._class_weights(), self._auc)

    def roc_curve(self, max_points: int = 1000) -> tuple[np.ndarray, np.ndarray]:
        """(fpr, tpr), float64, from (0, 0) to (1, 1): at most max_points points of the curve,
        evenly along it.

        The rate of a class that has no rows is NaN at every point.

        Raises:
            ValueError: max_points below 4, or as in result().
        """
        check_points(max_points)
        self.result()
        fpr, tpr = self._rates(max_points)
        positive, negative = self._class_weights()
        return (
            fpr if negative > 0 else np.full_like(fpr, np.nan),
            tpr if positive > 0 else np.full_like(tpr, np.nan),
        )

    def fetch(self):
        """Waits for the pending batches and adds them.

        Raises:
            ValueError: one of them is bad (see update).
        """
        pending, self._pending = self._pending, []
        for batch in pending:
            self._add(*batch)

    def sums(self) -> tuple[list[float], list[int | float]]:
        """([sums of weight * loss, of weights, of rows], [negatives, positives]) fetched so far."""
        positive, negative = self._class_weights()
        return self._totals.tolist(), [negative, positive]

    def state(self) -> dict[str, np.ndarray]:
        """Arrays from which `merge` of another accumulator of the same kind continues.

        Every kind has "totals": float64 [3], the sums of weight * loss, of weights and of rows.
        Exact: "positive_scores" and "negative_scores", float32 [rows of the class], in any order,
            and "positive_weights", "negative_weights", float32 of the same length, or [0] where
            every weight is 1.
        Binned: "histogram", float64 [2, num_bins], the weights of negatives and positives; the
            states of many ranks may be summed element by element and merged once.
        """
        self.fetch()
        return {"totals": self._totals.copy(), **self._kept()}

    def merge(self, state: dict[str, np.ndarray]):
        """Adds everything that a state() holds.

        Raises:
            ValueError: the state of another kind of accumulator, or with another number of bins.
        """
        self.fetch()
        own = self._shapes(self._kept())
        received = self._shapes({name: array for name, array in state.items() if name != "totals"})
        if own != received:
            raise ValueError(
                f"metrics: a state of {received} cannot be merged into one of {own}: "
                "use the same --auc_thresholds everywhere"
            )
        self._merge(state)
        self._totals += state["totals"]

    def _add(self, labels, logits, weights):
        labels, logits = np.asarray(labels).reshape(-1), np.asarray(logits).reshape(-1)
        weights = None if weights is None else np.asarray(weights, np.float32).reshape(-1)
        sizes = [labels.size, logits.size] + ([] if weights is None else [weights.size])
        if len(set(sizes)) > 1:
            raise ValueError(
                "metrics: labels, logits and weights must have the same number of rows, "
                f"received {sizes}"
            )
        if weights is not None and not (weights == 1).all():
            if not ((weights >= 0) & (weights < np.inf)).all():
                raise ValueError("metrics: weights must be finite and not negative")
            rows = weights > 0
            labels, logits, weights = labels[rows], logits[rows], weights[rows]
        if weights is not None and (weights == 1).all():
            weights = None
        positives = labels == 1
        if not (positives | (labels == 0)).all():
            wrong = labels[~(positives | (labels == 0))][0]
            raise ValueError(f"metrics: labels must be 0 or 1, received {wrong}")
        logits = logits.astype(np.float32, copy=False)
        num_nan = np.count_nonzero(np.isnan(logits))
        if num_nan:
            raise NonFiniteScores(
                f"metrics: {num_nan} of {logits.size} logits of a batch are NaN, so neither log "
                "loss nor AUC exists. The model has diverged: lower the learning rate or restore "
                "an earlier checkpoint."
            )
        # -log sigmoid(+-z) = max(t, 0) + log(1 + exp(-|t|)) with t = -z for a positive: never
        # overflows.
        z = logits.astype(np.float64)
        exp_neg_abs = np.exp(-np.abs(z))
        losses = np.maximum(np.where(positives, -z, z), 0) + np.log1p(exp_neg_abs)
        if weights is None:
            sums = losses.sum(), losses.size, losses.size
        else:
            sums = losses @ weights.astype(np.float64), weights.sum(dtype=np.float64), losses.size
        self._totals += sums
        if self.calibration is not None:
            self.calibration.add(positives, _sigmoid(z, exp_neg_abs), weights)
        self._store(positives, logits, weights, exp_neg_abs)

    @staticmethod
    def _shapes(kept):
        """Returns what must be equal in two states: names and, where the size is fixed, shapes."""
        return {
            name: array.shape if array.ndim > 1 else "any length" for name, array in kept.items()
        }


def _sigmoid(z, exp_neg_abs):
    """1 / (1 + exp(-z)), for a negative z exp(z) / (1 + exp(z))."""
    return np.where(z >= 0, 1.0, exp_neg_abs) / (1 + exp_neg_abs)


class ExactMetrics(_Metrics):
    """AUC = P(score of a positive > score of a negative) + P(equal) / 2, over all pairs
    (Mann-Whitney U).

    Keeps 4 bytes per row (8 with weights other than 0 and 1, 16 after a result); result() takes as
    much again while it joins a class and keeps the scores sorted. The classes are sorted apart
    (np.sort on float32, in place) and the smaller is looked up in the larger; the pairs are counted
    in integers, so the
    result is exact to the last rounding and does not depend on the order of the rows. On one core
    with AVX512, 10 million rows: result() takes 0.1 s (3 % positives) to 0.4 s (50 %), with real
    weights 0.8 s; an argsort of them alone 0.5 s, scikit-learn 3.7 s.
    """

    def __init__(self):
        super().__init__()
        # Per class (negative, positive): chunks (scores float32 [n], weights float32 [n] or None
        # for ones).
        self._chunks = [[], []]
        self._sorted: list[SortedScores | None] = [None, None]

    def _store(self, positives, logits, weights, exp_neg_abs):
        for label, rows in enumerate((~positives, positives)):
            self._append(label, logits[rows], None if weights is None else weights[rows])

    def _append(self, label, scores, weights):
        if scores.size:
            self._chunks[label].append((scores, weights))
            self._sorted[label] = None

    def _joined(self, label):
        """(scores, weights or None) of a class, which becomes its only chunk."""
        chunks = self._chunks[label]
        if not chunks:
            return np.empty(0, np.float32), None
        if len(chunks) > 1:
            weights = None
            if any(w is not None for _, w in chunks):
                weights = np.concatenate([np.ones_like(s) if w is None else w for s, w in chunks])
            chunks[:] = [(np.concatenate([s for s, _ in chunks]), weights)]
        return chunks[0]

    def sorted_scores(self, label: int) -> SortedScores:
        """The rows of class 0 or 1 that were fetched so far."""
        if self._sorted[label] is None:
            scores, weights = self._joined(label)
            if weights is None:
                scores.sort()
                self._sorted[label] = SortedScores(scores)
            else:
                order = np.argsort(scores)
                scores, weights = scores[order], weights[order]
                self._chunks[label] = [(scores, weights)]
                cumulative = np.concatenate(([0.0], np.cumsum(weights, dtype=np.float64)))
                self._sorted[label] = SortedScores(scores, cumulative)
        return self._sorted[label]

    def _class_weights(self):
        return [
            sum(
                s.size if w is None else float(w.sum(dtype=np.float64))
                for s, w in self._chunks[label]
            )
            for label in (1, 0)
        ]

    def _auc(self):
        positive, negative = self._class_weights()
        wins = doubled_wins([self.sorted_scores(1)], [self.sorted_scores(0)])
        return auc_of(wins, positive, negative), 0.0

    def _rates(self, max_points):
        classes = [self.sorted_scores(label) for label in (0, 1)]
        half = (max_points - 2) // 2
        picked = [
            scores[np.linspace(0, len(scores) - 1, min(half, len(scores))).astype(np.int64)]
            for scores, _ in classes
        ]
        thresholds = np.unique(np.concatenate(picked))[::-1]
        fpr, tpr = (rates(mass_below([rows], thresholds), rows.total) for rows in classes)
        return fpr, tpr

    def _kept(self):
        kept = {}
        for name, label in (("positive", 1), ("negative", 0)):
            scores, weights = self._joined(label)
            kept[f"{name}_scores"] = scores.copy()
            kept[f"{name}_weights"] = np.empty(0, np.float32) if weights is None else weights.copy()
        return kept

    def _merge(self, state):
        for name, label in (("positive", 1), ("negative", 0)):
            scores, weights = state[f"{name}_scores"], state[f"{name}_weights"]
            self._append(label, scores.copy(), weights.copy() if weights.size else None)


class BinnedMetrics(_Metrics):
    """AUC from a histogram of sigmoid(logit) with num_bins equal bins, in constant memory (16 bytes
    a bin).

    The area is that of trapezoids between the ROC points at the bins' edges: a positive and a
    negative in one bin count half. So |auc - exact| <= 1/2 sum_b P_b N_b / (P N), which result()
    returns as auc_error_bound; it falls as 1 / num_bins, and slower where the probabilities crowd
    into few bins. The log loss is exact.
    """

    def __init__(self, num_bins: int):
        if num_bins < 2:
            raise ValueError(
                "--auc_thresholds must be at least 2, or None for the exact AUC, "
                f"received {num_bins}"
            )
        super().__init__()
        self._histogram = np.zeros((2, num_bins), np.float64)

    def _store(self, positives, logits, weights, exp_neg_abs):
        num_bins = self._histogram.shape[1]
        probabilities = _sigmoid(logits, exp_neg_abs)
        bins = np.minimum((probabilities * num_bins).astype(np.int64), num_bins - 1)
        bins += num_bins * positives
        self._histogram += np.bincount(bins, weights, 2 * num_bins).reshape(2, num_bins)

    def _class_weights(self):
        negative, positive = self._histogram.sum(axis=1).tolist()
        return positive, negative

    def _auc(self):
        negatives, positives = self._histogram
        pairs = positives.sum() * negatives.sum()
        ties = float(positives @ negatives / pairs)
        negatives_below = np.cumsum(negatives) - negatives
        return float(positives @ negatives_below / pairs) + ties / 2, ties / 2

    def _rates(self, max_points):
        falling = self._histogram[:, ::-1]
        total = np.maximum(falling.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        fpr, tpr = np.concatenate((np.zeros((2, 1)), np.cumsum(falling, axis=1) / total), axis=1)
        along = fpr + tpr
        picked = np.unique(np.searchsorted(along, np.linspace(0, along[-1], max_points)))
        return fpr[picked], tpr[picked]

    def _kept(self):
        return {"histogram": self._histogram.copy()}

    def _merge(self, state):
        self._histogram += state["histogram"]


def make_metrics(auc_thresholds: int | None = None) -> ExactMetrics | BinnedMetrics:
    """The accumulator that `--auc_thresholds` asks for: None is exact, N >= 2 is N bins."""
    return ExactMetrics() if auc_thresholds is None else BinnedMetrics(auc_thresholds)


def check_points(max_points: int) -> None:
    """Refuses too few points for a ROC curve."""
    if max_points < 4:
        raise ValueError(f"roc_curve: max_points must be at least 4, received {max_points}")
