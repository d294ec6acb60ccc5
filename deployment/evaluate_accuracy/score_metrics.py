"""Metrics of scores: exact AUC and log loss, or HR@k and NDCG@k for candidate lists."""

import numpy as np

from nn.metrics.classification import ExactMetrics
from nn.ncf.hit_rate import hit_rate, ndcg, ranks_of_positives

# A score of 1 in float32 stands for anything above 1 - 2^-25, whose log loss is finite.
_SMALLEST = 2.0**-25


class ScoreMetrics:
    """Metrics of probabilities, the answers of a served model.

    Training and evaluation compute them from logits. The sigmoid rounds some of these to the same
    score, which changes the AUC by less than 1e-6.

    Args:
        series_length: rows per candidate list; None for independent samples.
        k: k of HR@k and NDCG@k, for candidate lists.
    """

    def __init__(self, series_length: int | None = None, k: int = 10):
        self._length, self._k = series_length, k
        self._order = ExactMetrics()  # used for the AUC, which depends on the order alone
        self._losses, self._rows = 0.0, 0
        self._ranks = np.zeros(series_length or 0, np.int64)

    def update(self, labels: np.ndarray, scores: np.ndarray, items: np.ndarray | None) -> None:
        """Adds rows.

        Args:
            labels: 0 or 1, [rows].
            scores: float32 [rows], in [0, 1].
            items: integers [rows] of whole candidate lists; None for independent samples.
        """
        self._order.update(labels, scores)
        right = np.where(labels > 0, scores, 1 - scores.astype(np.float64))
        self._losses -= float(np.log(np.maximum(right, _SMALLEST)).sum())
        self._rows += len(labels)
        if self._length is not None:
            series = (column.reshape(-1, self._length) for column in (items, labels, scores))
            self._ranks += np.bincount(ranks_of_positives(*series), minlength=self._length)

    def result(self) -> dict[str, float]:
        """Returns "auc", NaN for rows of one class, and "log_loss" in nats; for candidate lists
        "hr@k", "ndcg@k" and "log_loss"."""
        order = self._order.result()
        log_loss = {"log_loss": self._losses / self._rows}
        if self._length is None:
            return {"auc": order.auc} | log_loss
        hits = {
            f"{n}@{self._k}": f(self._ranks, self._k) for n, f in (("hr", hit_rate), ("ndcg", ndcg))
        }
        return hits | log_loss
