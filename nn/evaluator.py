"""Metrics of a model over every row of a data set."""

from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from nn.metrics import make_metrics
from runtime import plots


class Scorer:
    """Forward pass as one compiled function, apart from the loop that feeds it.

    Args:
      model: `model(inputs) -> logits [batch, 1]`.
    """

    def __init__(self, model):
        self.model = model

    @tf.function(reduce_retracing=True, autograph=False)
    def score(self, inputs) -> tf.Tensor:
        """Logits [batch, 1] float32 of one batch."""
        return self.model(inputs)

    @tf.function(reduce_retracing=True, autograph=False)
    def score_next(self, iterator) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """(labels, logits, weights) of the iterator's next batch, each [batch, 1] float32."""
        batch = iterator.get_next()
        return batch.labels, self.model(batch.inputs), batch.weights


class ClickEvaluator:
    """Log loss and ROC AUC of a click model; every row counts once.

    Args:
      model: the model.
      dataset: `num_batches` and `dataset() -> tf.data.Dataset` of batches.
      auc_thresholds: None for the exact AUC, else the number of bins.
    """

    def __init__(self, model, dataset, auc_thresholds: int | None = None):
        self.dataset = dataset
        self._scorer = Scorer(model)
        self._auc_thresholds = auc_thresholds
        self._metrics = None
        self.note = ""

    def evaluate(self) -> Iterator[tuple[str, float]]:
        """Runs over the data set once; yields "auc", "log_loss" and, with bins, its error bound.

        `note` says afterwards what the reader of the numbers must know, such as why an AUC is NaN.
        """
        self._metrics = make_metrics(self._auc_thresholds)
        iterator = iter(self.dataset.dataset())
        for _ in range(self.dataset.num_batches):
            self._metrics.update(*self._scorer.score_next(iterator))
        scores = self._metrics.result()
        yield "auc", scores.auc
        yield "log_loss", scores.log_loss
        if self._auc_thresholds is not None:
            yield "auc_error_bound", scores.auc_error_bound
        self.note = scores.note

    def draw(self, folder: Path, metrics: dict[str, float]) -> None:
        """Draws the ROC curve of the last evaluation into `folder`."""
        if self._metrics is not None:
            fpr, tpr = self._metrics.roc_curve()
            plots.roc_curve(folder / "roc.png", fpr, tpr, metrics["auc"])
