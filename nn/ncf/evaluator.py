"""How often a positive is among the first of its series: HR@k and NDCG@k of every series."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from nn.metrics.classification import BinnedMetrics
from nn.metrics.distributed import over_ranks
from nn.metrics.evaluator import Scorer
from nn.ncf.hit_rate import hit_rate, ndcg, ranks_of_positives
from runtime.cluster.distributed import World
from runtime.cluster.failure import stack_sample


class RankingEvaluator:
    """Hit rate and normalised discounted cumulative gain (He et al., 2017), and the log loss.

    Each series counts once, on whichever rank it is. What ranks tell each other are numbers of
    series, so that any number of ranks gives the same HR and NDCG to the last bit.

    Args:
      model: `model(inputs) -> logits [batch, 1]`, the `inputs` with an `item`, integers [batch].
      dataset: `series_length`, and `dataset() -> tf.data.Dataset` of batches of whole series of as
        many neighbouring rows, one of which has label 1; as many batches on all ranks. Padding of
        weight 0 is whole series, too.
      k: how many of the first items count as found.
      world: the ranks that share the series; None is one process.

    Raises:
      ValueError: k is below 1.
    """

    def __init__(self, model, dataset, k: int, world: World | None = None):
        if k < 1:
            raise ValueError(f"k of HR@k and NDCG@k is {k}; allowed: 1 or more")
        self.dataset = dataset
        self._scorer = Scorer(model)
        self._k = k
        self._world = world or World()
        self.note = ""

    @property
    def num_batches(self) -> int:
        """Batches of an evaluation."""
        return self.dataset.num_batches

    @property
    def split(self) -> str:
        """Name of the split that is evaluated."""
        return self.dataset.split

    def evaluate(self, stopped: Callable[[], bool] = lambda: False) -> Iterator[tuple[str, float]]:
        """Runs over the data set once; yields "hr@k", "ndcg@k" (with the number) and "log_loss".

        Yields nothing once `stopped()`, asked before every batch, says so, on every rank the same.

        Every rank must call it and gets the same numbers, or the same error. When the first number
        is there, all communication is over: what follows is up to each rank.

        `note` says afterwards what the reader of the numbers must know.

        Raises:
          NonFiniteScores: a logit is NaN, on any rank.
        """
        length = self.dataset.series_length
        # Of these only the log loss is asked for: as few bins as there may be.
        losses = over_ranks(BinnedMetrics(2), self._world)
        counts = np.zeros(length, np.int64)
        waiting = None
        for batch in self.dataset.dataset():
            if stopped():
                return
            logits = self._scorer.score(batch.inputs)
            stack_sample.record_progress()
            # The batch before is counted while a GPU computes this one.
            counts += _counts(waiting, length)
            waiting = batch, logits
            losses.update(batch.labels, logits, np.float32(batch.weights.numpy() > 0))
        counts += _counts(waiting, length)
        log_loss = losses.result().log_loss
        if self._world.size > 1:
            (counts,) = self._world.all_reduce([counts], "sum", "ranking.counts")
            counts = np.asarray(counts)
        if self._k >= length:
            self.note = f"a series has {length} items, so hr@{self._k} is 1 for any model"
        yield f"hr@{self._k}", hit_rate(counts, self._k)
        yield f"ndcg@{self._k}", ndcg(counts, self._k)
        yield "log_loss", log_loss

    def draw(self, folder: Path, metrics: dict[str, float]) -> list[Path]:
        """Draws nothing: a ranking has no ROC curve."""
        return []


def _counts(scored, length: int) -> np.ndarray:
    """Real series of a batch whose positive is at each rank, int64 [length].

    Args:
      scored: (batch, logits), or None.
    """
    if scored is None:
        return np.zeros(length, np.int64)
    batch, logits = scored
    items, labels, scores, weights = (
        np.asarray(column).reshape(-1, length)
        for column in (batch.inputs.item, batch.labels, logits, batch.weights)
    )
    real = weights[:, 0] > 0
    ranks = ranks_of_positives(items[real], labels[real], scores[real])
    return np.bincount(ranks, minlength=length)
