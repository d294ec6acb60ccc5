"""HR@k and NDCG@k of candidate lists: the share of positives among the first k items."""

from collections.abc import Callable, Iterator

import numpy as np
from distributed_embeddings.collectives import World

from nn.metrics.classification import BinnedMetrics
from nn.metrics.evaluator import DatasetEvaluator
from nn.metrics.plausibility import ranking_notes
from nn.ncf.hit_rate import hit_rate, ndcg, ranks_of_positives


class HitRateEvaluator(DatasetEvaluator):
    """Hit rate, normalized discounted cumulative gain (He et al., 2017), and log loss.

    Each candidate list counts once. Any number of ranks gives the same HR and NDCG to the last bit.

    Args:
        model: See `DatasetEvaluator`; the inputs have an `item`, integers [batch].
        dataset: See `DatasetEvaluator`, with `list_length`: batches, and padding in them, are
            whole candidate lists of this number of consecutive samples, one of which has label 1.
        k: Number of first items that count as a hit, at least 1.
        popularity: Popularity of each item, [items], by which the lists are ranked, too; None: they
            are not.
    """

    def __init__(
        self,
        model,
        dataset,
        k: int,
        world: World | None = None,
        popularity: np.ndarray | None = None,
    ):
        super().__init__(model, dataset, world)
        self._k, self._popularity = k, popularity

    @property
    def metrics(self) -> tuple[str, ...]:
        return (f"hr@{self._k}", f"ndcg@{self._k}", "log_loss", *self.added_names)

    def evaluate(self, stopped: Callable[[], bool] = lambda: False) -> Iterator[tuple[str, float]]:
        """Yields "hr@k", "ndcg@k" (with the number), each with that by popularity
        ("hr@k_popularity"), "log_loss" and added metrics; see the base class.

        Raises:
            NonFiniteScores: A logit is NaN, on any rank.
        """
        length = self.dataset.list_length
        # Only the log loss is used: the least number of bins.
        losses = BinnedMetrics(2, self._world)
        counts = np.zeros([2, length], np.int64)  # of the model, and by popularity
        waiting = None
        self._start_added()
        for batch in self.dataset.dataset():
            if stopped():
                return
            logits = self._scorer.score(batch.inputs)
            # The batch before is counted while a GPU computes this one.
            counts += self._counts(waiting, length)
            waiting = batch, logits
            weights = np.float32(batch.weights.numpy() > 0)
            losses.update(batch.labels, logits, weights)
            groups = [metric.group_of(batch.inputs) for metric in self._added]
            self._add(groups, batch.labels, logits, weights)
        counts += self._counts(waiting, length)
        log_loss, added = losses.result().log_loss, self._added_values()
        if self._world.size > 1:
            (counts,) = self._world.all_reduce([counts], "sum", "ranking.counts")
            counts = np.asarray(counts)
        name, value = f"hr@{self._k}", hit_rate(counts[0], self._k)
        self._set_notes(ranking_notes(name, value, int(counts[0].sum()), self._k, length))
        for name, metric in (("hr", hit_rate), ("ndcg", ndcg)):
            yield f"{name}@{self._k}", metric(counts[0], self._k)
            if self._popularity is not None:
                yield f"{name}@{self._k}_popularity", metric(counts[1], self._k)
        yield "log_loss", log_loss
        yield from added.items()

    def _counts(self, scored, length: int) -> np.ndarray:
        """Counts the candidate lists of (batch, logits) by the position of their positive, [2,
        length]: by logits, and by popularity."""
        counts = np.zeros([2, length], np.int64)
        if scored is None:
            return counts
        batch, logits = scored
        items, labels, scores, weights = (
            np.asarray(column).reshape(-1, length)
            for column in (batch.inputs.item, batch.labels, logits, batch.weights)
        )
        real = weights[:, 0] > 0
        items, labels, scores = items[real], labels[real], scores[real]
        orders = [scores] if self._popularity is None else [scores, self._popularity[items]]
        for row, order in enumerate(orders):
            ranks = ranks_of_positives(items, labels, order)
            counts[row] = np.bincount(ranks, minlength=length)
        return counts
