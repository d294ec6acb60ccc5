"""Metrics of clicks over a whole evaluation: exact by sorting, or binned in constant memory.

metrics = make_metrics(auc_thresholds=None, world=world)
for batch in batches:
    metrics.update(batch.labels, logits, batch.weights > 0)
metrics.result()        # collective: Scores(auc, log_loss, ...) of the samples of all ranks
metrics.roc_curve()     # collective: (fpr, tpr), at most 1,000 points
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from distributed_embeddings.collectives import World

from nn.metrics.calibration import Calibration
from nn.metrics.plausibility import EqualScores, click_notes

# Batches are kept this long before their values are fetched, so that an accelerator is waited for
# once in 16 batches (16 x 65,536 samples x 12 bytes = 12 MiB are pending).
_MAX_PENDING_UPDATES = 16
# Scores that are looked up at once: bounds the temporary memory (8 bytes each).
_LOOKUP_SCORES = 1 << 20


class Scores(NamedTuple):
    """Metrics of an evaluation.

    auc: area under the ROC curve; NaN if all labels are equal.
    log_loss: mean binary cross entropy in nats.
    normalized_entropy: log loss divided by the entropy of the share of positives, the log loss of
        the best constant prediction (He et al., "Practical Lessons from Predicting Clicks on Ads at
        Facebook", 2014); NaN if all labels are equal.
    pr_auc: area under the precision-recall curve as a sum of steps, which is the average precision:
        mean over positives of the precision at their score; NaN without positives.
    calibration: sum of the predicted probabilities over the number of positives; NaN without
        positives.
    auc_error_bound: |auc - exact auc| is at most this; 0 for the exact accumulator.
    num_rows: number of samples without padding.
    notes: remarks on the metrics by their kind, see `plausibility`.
    """

    auc: float
    log_loss: float
    normalized_entropy: float
    pr_auc: float
    calibration: float
    auc_error_bound: float
    num_rows: int
    notes: Mapping[str, str]


class NonFiniteScores(ValueError):
    """The model returned NaN, or infinity where a score must be finite."""


class _Metrics:
    """Checks and sums; a subclass keeps in `_store` what its areas under curves need.

    `update` is local. `result` and `roc_curve` are called by all ranks and return the same on all
    of them. A rank may have no samples.

    Attributes:
        calibration: receives all samples of this rank if it is set before the first one.
    """

    def __init__(self, world: World = World()):
        self._world = world
        self._loss_sum = 0.0
        self._probability_sum = 0.0
        self._counts = np.zeros(2, np.int64)  # negatives, positives
        self._pending: list[tuple] = []
        self._error: ValueError | None = None
        self.calibration: Calibration | None = None

    def update(self, labels, logits, weights=None):
        """Adds a batch of this rank.

        Args:
            labels: 0 or 1, [batch] or [batch, 1], any dtype, array or eager tensor.
            logits: as many; kept in float32 precision. Infinite ones are allowed, NaN is not.
            weights: as many: 1, or 0 for padding, whose label and logit are ignored; None: no
                padding.

        Raises:
            ValueError: sizes that differ, labels or weights other than 0 and 1, or a NaN logit.
                Batches with tensors are checked up to 16 updates later. Of several ranks, `result`
                raises the error on all: a rank that left a collective evaluation here would leave
                the others waiting.
        """
        batch = (labels, logits, weights)
        self._pending.append(batch)
        has_tensors = any(hasattr(part, "numpy") for part in batch)
        if not has_tensors or len(self._pending) >= _MAX_PENDING_UPDATES:
            self._fetch()

    def result(self) -> Scores:
        """Returns the metrics of everything added so far; collective. More may be added afterwards.

        Raises:
            ValueError: no samples, or a bad batch on any rank (NonFiniteScores if NaN is all that
                is bad).
        """
        loss_sum, probability_sum, counts = self._sums()
        negatives, positives = counts
        num_rows, log_loss = sum(counts), loss_sum / sum(counts)
        auc, bound, entropy = math.nan, 0.0, math.nan
        if negatives and positives:
            auc, bound = self._auc(counts)
            entropy = -sum(n / num_rows * math.log(n / num_rows) for n in counts)
        return Scores(
            auc=auc,
            log_loss=log_loss,
            normalized_entropy=log_loss / entropy,
            pr_auc=self._average_precision() if positives else math.nan,
            calibration=probability_sum / positives if positives else math.nan,
            auc_error_bound=bound,
            num_rows=num_rows,
            notes=click_notes(auc, negatives, positives, self._most_frequent()),
        )

    def roc_curve(self, max_points: int = 1000) -> tuple[np.ndarray, np.ndarray]:
        """Returns points evenly along the curve, from (0, 0) to (1, 1); collective.

        Returns:
            (fpr, tpr), float64 [max_points] or fewer. The rate of a class without samples is NaN.

        Raises:
            ValueError: as in `result`.
        """
        *_, counts = self._sums()
        curve = self._rates(max_points, np.maximum(counts, 1))
        fpr, tpr = (
            rate if count else np.full_like(rate, np.nan)
            for rate, count in zip(curve, counts, strict=True)
        )
        return fpr, tpr

    def _most_frequent(self) -> EqualScores | None:
        """Returns the most frequent score of all ranks, None if it is not known; collective."""
        return None

    def _fetch(self) -> None:
        """Waits for the pending batches and adds them."""
        pending, self._pending = self._pending, []
        try:
            for batch in pending:
                self._add(*batch)
        except ValueError as error:
            if self._world.size == 1:
                raise
            self._error = self._error or error

    def _sums(self) -> tuple[float, float, list[int]]:
        """Returns sums of losses and probabilities, and (negatives, positives), of all ranks;
        collective.
        """
        self._fetch()
        own = {
            "error": self._error and str(self._error),
            "non_finite": isinstance(self._error, NonFiniteScores),
            "loss": self._loss_sum,
            "probability": self._probability_sum,
            "counts": self._counts.tolist(),
        }
        ranks = self._world.gather_objects(own, "metrics.sums")
        _raise_joint_error(ranks)
        counts = [sum(rank["counts"][label] for rank in ranks) for label in (0, 1)]
        if not any(counts):
            raise ValueError(
                "metrics: there is nothing to evaluate: no sample of non-zero weight was added. "
                "Check that the evaluated split has samples."
            )
        losses, probabilities = (
            sum(rank[name] for rank in ranks) for name in ("loss", "probability")
        )
        return losses, probabilities, counts

    def _over_ranks(self, values: np.ndarray, name: str) -> np.ndarray:
        """Returns the sum over ranks; TensorFlow is not needed in a world of one."""
        if self._world.size == 1:
            return values
        return np.asarray(self._world.all_reduce([values], "sum", name)[0])

    def _add(self, labels, logits, weights) -> None:
        columns = [
            np.asarray(part).reshape(-1) for part in (labels, logits, weights) if part is not None
        ]
        labels, logits = columns[:2]
        if weights is not None and not (columns[2] == 1).all():
            is_sample = columns[2] == 1
            labels, logits = labels[is_sample], logits[is_sample]
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
        self._loss_sum += float(losses.sum())
        self._counts += np.bincount(positives, minlength=2)
        probabilities = _sigmoid(z, exp_neg_abs)
        self._probability_sum += float(probabilities.sum())
        if self.calibration is not None:
            self.calibration.add(positives, probabilities)
        self._store(positives, logits, exp_neg_abs)


def _raise_joint_error(ranks: list[dict]) -> None:
    """Raises the first rank's error if any rank has one."""
    failed = [rank for rank, own in enumerate(ranks) if own["error"] is not None]
    if not failed:
        return
    text = f"rank {failed[0]}: {ranks[failed[0]]['error']}"
    if len(failed) > 1:
        text += f" ({len(failed)} of {len(ranks)} ranks have an error)"
    diverged = all(ranks[rank]["non_finite"] for rank in failed)
    raise NonFiniteScores(text) if diverged else ValueError(text)


def _sigmoid(z, exp_neg_abs):
    """Returns 1 / (1 + exp(-z)), for a negative z exp(z) / (1 + exp(z))."""
    return np.where(z >= 0, 1.0, exp_neg_abs) / (1 + exp_neg_abs)


class ExactMetrics(_Metrics):
    """AUC = P(score of a positive > score of a negative) + P(equal) / 2, over all pairs
    (Mann-Whitney U).

    Every rank sorts its scores and gets those of the rarer class of all ranks, which are looked up
    in its own scores of the other class. Pairs are counted in integers: the result is exact to the
    last rounding and depends neither on the order of the samples nor on the number of ranks.
    The precision is counted at the scores of the positives of all ranks.

    Memory: 4 bytes per sample of this rank, 8 while they are joined, 8 per sample of the rarer
    class of all ranks, and 40 per distinct score of their positives.
    """

    def __init__(self, world: World = World()):
        super().__init__(world)
        self._chunks = [[np.empty(0, np.float32)], [np.empty(0, np.float32)]]  # by label

    def _store(self, positives, logits, exp_neg_abs):
        for chunks, rows in zip(self._chunks, (~positives, positives), strict=True):
            chunks.append(logits[rows])

    def _sorted(self, label: int) -> np.ndarray:
        """Returns this rank's scores of a class, ascending; they become its only chunk."""
        chunks = self._chunks[label]
        if len(chunks) > 1:
            chunks[:] = [np.concatenate(chunks)]
            chunks[0].sort()
        return chunks[0]

    def _gather(self, scores: np.ndarray, name: str) -> np.ndarray:
        """Returns ascending scores of all ranks."""
        if self._world.size == 1:
            return scores
        return np.sort(np.asarray(self._world.all_gather(scores, name)))

    def _auc(self, counts):
        rarer = int(counts[1] <= counts[0])
        others = self._sorted(1 - rarer)
        scores = self._gather(self._sorted(rarer), "metrics.scores")
        lower = 0  # 2 x the pairs in which the rarer class has the higher score + ties
        for start in range(0, len(scores), _LOOKUP_SCORES):
            part = scores[start : start + _LOOKUP_SCORES]
            for side in ("left", "right"):
                lower += np.searchsorted(others, part, side).sum().item()
        lower = sum(self._world.gather_objects(lower, "metrics.pairs"))
        num_pairs = counts[0] * counts[1]
        wins = lower if rarer else 2 * num_pairs - lower
        return wins / (2 * num_pairs), 0.0

    def _most_frequent(self) -> EqualScores:
        # A score of more than half of all rows is so in a class of a rank, whose median it is.
        classes = [self._sorted(label) for label in (0, 1)]
        medians = [float(scores[len(scores) // 2]) for scores in classes if len(scores)]
        gathered = self._world.gather_objects(medians, "metrics.medians")
        candidates = np.float32(sorted({median for own in gathered for median in own}))
        rows = sum(np.searchsorted(s, candidates, "right") for s in classes)
        rows = rows - sum(np.searchsorted(s, candidates) for s in classes)
        rows = np.sum(self._world.gather_objects(rows.tolist(), "metrics.equal"), axis=0)
        largest = int(np.argmax(rows))
        return EqualScores(float(candidates[largest]), int(rows[largest]))

    def _average_precision(self):
        gathered = self._gather(self._sorted(1), "metrics.positives")
        thresholds, ties = np.unique(gathered, return_counts=True)
        negatives = self._sorted(0)
        above = len(negatives) - np.searchsorted(negatives, thresholds)
        false_positives = self._over_ranks(above, "metrics.false_positives")
        return _average_precision(ties[::-1], false_positives[::-1])

    def _rates(self, max_points, counts):
        half = (max_points - 2) // 2
        picked = []
        for label in (0, 1):
            own = _evenly_spaced(self._sorted(label), half)
            picked.append(_evenly_spaced(self._gather(own, f"metrics.curve.{label}"), half))
        thresholds = np.unique(np.concatenate(picked))[::-1]
        below = np.stack([np.searchsorted(self._sorted(label), thresholds) for label in (0, 1)])
        rates = 1 - self._over_ranks(below, "metrics.below") / counts[:, np.newaxis]
        return np.pad(rates, ((0, 0), (1, 1)), constant_values=((0, 0), (0, 1)))


def _evenly_spaced(values: np.ndarray, count: int) -> np.ndarray:
    """Returns at most `count` of the values, evenly spaced from the first to the last."""
    return values[np.linspace(0, len(values) - 1, min(count, len(values))).astype(np.int64)]


def _average_precision(positives: np.ndarray, false_positives: np.ndarray) -> float:
    """Returns the mean precision over positives.

    Args:
        positives: Their number at each threshold, from the highest one; int64 or float64 [n].
        false_positives: Negatives at or above each threshold, as many.
    """
    true_positives = np.cumsum(positives)
    precision = true_positives / np.maximum(true_positives + false_positives, 1)
    return float(positives @ precision / true_positives[-1])


class BinnedMetrics(_Metrics):
    """AUC from a histogram of sigmoid(logit) with equal bins, in constant memory (16 bytes a bin).

    The area is that of trapezoids between the ROC points at the bins' edges: a positive and a
    negative in one bin count half. So |auc - exact| <= 1/2 sum_b P_b N_b / (P N), which is returned
    as auc_error_bound; it falls as 1 / num_bins, and slower where the probabilities crowd into few
    bins. Scores of one bin are equal in the average precision, too; all other metrics are exact.
    """

    def __init__(self, num_bins: int, world: World = World()):
        super().__init__(world)
        self._histogram = np.zeros((2, num_bins), np.float64)

    def _store(self, positives, logits, exp_neg_abs):
        num_bins = self._histogram.shape[1]
        probabilities = _sigmoid(logits, exp_neg_abs)
        bins = np.minimum((probabilities * num_bins).astype(np.int64), num_bins - 1)
        bins += num_bins * positives
        self._histogram += np.bincount(bins, minlength=2 * num_bins).reshape(2, num_bins)

    def _auc(self, counts):
        negatives, positives = self._over_ranks(self._histogram, "metrics.bins")
        pairs = positives.sum() * negatives.sum()
        ties = float(positives @ negatives / pairs)
        negatives_below = np.cumsum(negatives) - negatives
        return float(positives @ negatives_below / pairs) + ties / 2, ties / 2

    def _average_precision(self):
        falling = self._over_ranks(self._histogram, "metrics.bins")[:, ::-1]
        return _average_precision(falling[1], np.cumsum(falling[0]))

    def _rates(self, max_points, counts):
        falling = self._over_ranks(self._histogram, "metrics.bins")[:, ::-1]
        rates = np.cumsum(falling, axis=1) / counts[:, np.newaxis]
        fpr, tpr = np.pad(rates, ((0, 0), (1, 0)))
        along = fpr + tpr
        picked = np.unique(np.searchsorted(along, np.linspace(0, along[-1], max_points)))
        return fpr[picked], tpr[picked]


def make_metrics(
    auc_thresholds: int | None = None, world: World = World()
) -> ExactMetrics | BinnedMetrics:
    """Returns the accumulator for `--auc_thresholds`: None is exact, N >= 2 is N bins."""
    if auc_thresholds is None:
        return ExactMetrics(world)
    return BinnedMetrics(auc_thresholds, world)
