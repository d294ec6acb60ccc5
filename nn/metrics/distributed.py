"""Log loss and AUC of rows that are spread over ranks, without bringing the scores together.

    metrics = over_ranks(make_metrics(), world)
    for batch in batches:                    # as many on every rank
        metrics.update(batch.labels, logits, batch.weights)
    metrics.result()                         # collective: the same Scores on every rank

Exact AUC: the scores are cut into one range per rank, and every row goes to the rank of its range.
Each rank counts the pairs within its range; for the others only the number of rows of each range
matters. Equal scores are always in one range, so that a tie counts half. What is counted are rows
in integers: where all weights are 1, the AUC is that of one rank to the last bit.
"""

from typing import NamedTuple

import numpy as np

from nn.metrics.classification import (
    BinnedMetrics,
    ExactMetrics,
    NonFiniteScores,
    Scores,
    check_points,
    summarize,
)
from nn.metrics.sorted_scores import SortedScores, auc_of, doubled_wins, mass_below, rates, total
from runtime.cluster.distributed import World

# Quantiles that each rank sends of each of its streams, to cut the scores into even ranges. Those
# of different ranks lie between each other: 256 from each of 1,000 ranks are 256,000 in all.
_QUANTILES = 256
# More equal scores of a rank are sent as one (score, mass): 12 bytes instead of 4 each.
_FEW = 3


def over_ranks(metrics: ExactMetrics | BinnedMetrics, world: World):
    """The accumulator itself in a world of one, else one whose results are those of all ranks."""
    return metrics if world.size == 1 else MetricsOverRanks(metrics, world)


class MetricsOverRanks:
    """The interface of `nn.metrics.classification` for rows that are spread over
    the ranks of a world.

    `update` is local; `result` and `roc_curve` must be called by all ranks and give all of them the
    same. A rank may have no rows.

    With `ExactMetrics` a rank keeps its own rows (4 bytes each) and, while they are counted, holds
    those of its range: some 30 bytes per row at the peak (2 ranks, 5 million rows each), for any
    number of ranks. The ranges are even to about 1 in 256. Heavy ties do not change that: more than
    three equal scores of a rank travel as one score and their number, so that the rank of a range
    receives any score at most three times from each rank.

    Args:
        metrics: what this rank adds up its own rows in; 2^31 rows at most.
        world: with more than one rank.
    """

    def __init__(self, metrics: ExactMetrics | BinnedMetrics, world: World):
        self._metrics = metrics
        self._world = world
        self._error: ValueError | None = None

    def update(self, labels, logits, weights=None):
        """Adds a batch of this rank's rows, see `nn.metrics.classification`.

        A bad batch is an error of `result`, on all ranks: scoring is collective, and a rank that
        left it here would leave the others waiting.
        """
        if self._error is None:
            try:
                self._metrics.update(labels, logits, weights)
            except ValueError as error:
                self._error = error

    def result(self) -> Scores:
        """Everything that any rank added so far.

        Raises:
            ValueError: on all ranks: a batch of one of them was bad (NonFiniteScores where that is
                all), or no rank has a row of non-zero weight.
        """
        sums = self._sums()
        if isinstance(self._metrics, BinnedMetrics):
            return self._merged_bins().result()
        negative, positive = sums.classes
        return summarize(
            sums.totals,
            positive,
            negative,
            lambda: (auc_of(self._doubled_wins(sums.weighted), positive, negative), 0.0),
        )

    def roc_curve(self, max_points: int = 1000) -> tuple[np.ndarray, np.ndarray]:
        """(fpr, tpr) of all rows as in `nn.metrics.classification`, at thresholds from "
        "quantiles of all ranks.

        The scores stay where they are: each rank counts its rows at some 1,000 thresholds.

        Raises:
            ValueError: max_points below 4, or as in result(), on all ranks.
        """
        check_points(max_points)
        sums = self._sums()
        if isinstance(self._metrics, BinnedMetrics):
            return self._merged_bins().roc_curve(max_points)
        summarize(sums.totals, *reversed(sums.classes), lambda: (0.0, 0.0))
        classes = [self._metrics.sorted_scores(label) for label in (0, 1)]
        half = (max_points - 2) // 2
        sample = self._sample([rows.scores for rows in classes], half, "metrics.curve")
        picked = []
        for label in range(2):
            points = sample[sample[:, 0] == label]
            num = min(half, len(points))
            picked.append(_quantiles(points, (np.arange(num) + 0.5) / max(num, 1)))
        thresholds = np.unique(np.concatenate(picked))[::-1]
        below = np.stack([mass_below([rows], thresholds) for rows in classes])
        if sums.weighted:
            below = below.astype(np.float64)
        (below,) = self._world.all_reduce([below], "sum", "metrics.below")
        return tuple(
            rates(mass, all_rows) if all_rows else np.full(len(thresholds) + 2, np.nan)
            for mass, all_rows in zip(np.asarray(below), sums.classes, strict=True)
        )

    def _sums(self) -> "_Sums":
        """Sums over all ranks; an error of one of them is raised on all."""
        if self._error is None:
            try:
                self._metrics.fetch()
            except ValueError as error:
                self._error = error
        if self._error is None:
            own = {"sums": self._metrics.sums(), "weighted": self._is_weighted()}
        else:
            non_finite = isinstance(self._error, NonFiniteScores)
            own = {"error": str(self._error), "non_finite": non_finite}
        states = self._world.gather_objects(own, "metrics.sums")
        if any("error" in rank for rank in states):
            raise _joint_error(states)
        totals, classes = zip(*(rank["sums"] for rank in states), strict=True)
        return _Sums(
            totals=[sum(values) for values in zip(*totals, strict=True)],
            classes=[sum(values) for values in zip(*classes, strict=True)],
            weighted=any(rank["weighted"] for rank in states),
        )

    def _is_weighted(self) -> bool:
        if isinstance(self._metrics, BinnedMetrics):
            return False
        return any(self._metrics.sorted_scores(label).cumulative is not None for label in (0, 1))

    def _merged_bins(self) -> BinnedMetrics:
        own = self._metrics.state()
        summed = self._world.all_reduce(list(own.values()), "sum", "metrics.bins")
        merged = BinnedMetrics(own["histogram"].shape[1])
        merged.merge(dict(zip(own, map(np.asarray, summed), strict=True)))
        return merged

    def _doubled_wins(self, weighted: bool):
        """`doubled_wins` of the rows of all ranks; each class has rows on some rank."""
        # Per class: single scores, and scores with a mass.
        parts = [group_equal(self._metrics.sorted_scores(label), weighted) for label in (0, 1)]
        streams = [scores for singles, (grouped, _) in parts for scores in (singles, grouped)]
        sample = self._sample(streams, _QUANTILES, "metrics.quantiles")
        ranks = np.arange(1, self._world.size)
        splitters = _quantiles(sample, ranks / self._world.size)
        used = set(sample[:, 0].astype(int).tolist())  # the same on all ranks
        classes: list[list[SortedScores]] = [[], []]
        for label, (singles, (grouped, masses)) in enumerate(parts):
            if 2 * label in used:
                received = self._send(singles, singles, splitters, f"metrics.scores.{label}")
                classes[label].append(SortedScores(np.sort(received)))
            if 2 * label + 1 in used:
                received = self._send(grouped, grouped, splitters, f"metrics.grouped.{label}")
                masses = self._send(grouped, masses, splitters, f"metrics.masses.{label}")
                order = np.argsort(received, kind="stable")
                cumulative = np.concatenate(([0], np.cumsum(masses[order]))).astype(masses.dtype)
                classes[label].append(SortedScores(received[order], cumulative))
        negatives, positives = classes
        own = [doubled_wins(positives, negatives), total(positives), total(negatives)]
        wins = lower_negatives = 0
        for wins_within, num_positives, num_negatives in self._world.gather_objects(
            own, "metrics.ranges"
        ):
            wins += wins_within + 2 * num_positives * lower_negatives
            lower_negatives += num_negatives
        return wins

    def _send(self, scores, values, splitters, name: str) -> np.ndarray:
        """Sends the value of each of the ascending scores to the rank of the score's range."""
        ends = np.searchsorted(scores, splitters, "left")
        splits = np.diff(np.concatenate(([0], ends, [len(scores)]))).astype(np.int32)
        return np.asarray(self._world.all_to_all(values, splits, name)[0])

    def _sample(self, streams, num_each: int, name: str) -> np.ndarray:
        """Evenly spaced scores of all ranks: float64 [k, 3] of (stream, score, rows it is for).

        The ranks look at different places between the quantiles of their streams: together they
        see all ranks' rows as finely as if they were sorted in one place.
        """
        sampled = []
        for stream, scores in enumerate(streams):
            num = min(num_each, len(scores))
            rows_each = len(scores) / max(num, 1)
            offset = (self._world.rank + 0.5) / self._world.size
            at = ((np.arange(num) + offset) * rows_each).astype(np.int64)
            columns = np.full(num, stream), scores[at], np.full(num, rows_each)
            sampled.append(np.stack(columns, axis=1).astype(np.float64))
        return np.asarray(self._world.all_gather(np.concatenate(sampled), name))


class _Sums(NamedTuple):
    """Sums over all ranks, see `nn.metrics.classification`.

    totals: of weight * loss, of weights and of rows.
    classes: rows, or their weight, of negatives and positives.
    weighted: whether a rank has weights other than 1.
    """

    totals: list
    classes: list
    weighted: bool


def group_equal(
    rows: SortedScores, weighted: bool
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Splits rows of a class into those that travel alone and those that travel together.

    Returns:
        (singles, (scores, masses)): float32 scores that stand for one row each; float32 scores, all
        different, and how many rows (int64) each stands for, or which weight (float64) if
        `weighted`. All are ascending.
    """
    scores, cumulative = rows
    nothing = np.empty(0, np.float32)
    if not weighted and not (scores[_FEW:] == scores[:-_FEW]).any():
        return scores, (nothing, np.empty(0, np.int64))
    is_first = np.concatenate(([len(scores) > 0], scores[1:] != scores[:-1]))
    edges = np.append(np.flatnonzero(is_first), len(scores))
    if weighted:
        if cumulative is None:
            cumulative = np.arange(len(scores) + 1, dtype=np.float64)
        return nothing, (scores[edges[:-1]], np.diff(cumulative[edges]))
    counts = np.diff(edges)
    many = counts > _FEW
    return scores[np.repeat(~many, counts)], (scores[edges[:-1][many]], counts[many])


def _quantiles(sample: np.ndarray, fractions: np.ndarray) -> np.ndarray:
    """Scores, float32, below which about these fractions of all sampled rows lie."""
    order = np.argsort(sample[:, 1], kind="stable")
    rows = np.cumsum(sample[order, 2])
    at = np.searchsorted(rows, fractions * rows[-1]) if len(rows) else np.empty(0, np.int64)
    return sample[order[np.minimum(at, len(rows) - 1)], 1].astype(np.float32)


def _joint_error(states: list[dict]) -> ValueError:
    """Returns one error for all ranks, that of the first rank with an error."""
    ranks = [rank for rank, theirs in enumerate(states) if "error" in theirs]
    text = f"rank {ranks[0]}: {states[ranks[0]]['error']}"
    if len(ranks) > 1:
        text += f" ({len(ranks)} of {len(states)} ranks have an error)"
    diverged = all(states[rank]["non_finite"] for rank in ranks)
    return NonFiniteScores(text) if diverged else ValueError(text)
