"""Metrics of a model over every row of a data set."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from nn.metrics.calibration import Calibration
from nn.metrics.classification import make_metrics
from nn.metrics.distributed import over_ranks
from runtime.cluster.distributed import World
from runtime.cluster.failure import stack_sample
from runtime.logs import plots


class Scorer:
    """Forward pass as one compiled function, apart from the loop that feeds it.

    Args:
      model: `model(inputs) -> logits [batch, 1]`.
    """

    def __init__(self, model: Any):
        self.model = model

    @tf.function(reduce_retracing=True, autograph=False)
    def score(self, inputs) -> tf.Tensor:
        """Logits [batch, 1] float32 of one batch."""
        return self.model(inputs)

    @tf.function(reduce_retracing=True, autograph=False)
    def score_next(self, iterator) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """(labels, logits, weights) of the iterator's next batch, each [batch, 1] float32.

        Every real row weighs 1, padding 0: a batch's own weights are made for means over ranks.
        """
        batch = iterator.get_next()
        weights = tf.cast(batch.weights > 0, tf.float32)
        return batch.labels, self.model(batch.inputs), weights


class ClickEvaluator:
    """Log loss and ROC AUC of a click model; every row of all ranks counts once.

    Args:
      model: the model.
      dataset: `num_batches`, the same on all ranks, and `dataset() -> tf.data.Dataset` of batches.
      auc_thresholds: None for the exact AUC, else the number of bins.
      world: the ranks that share the rows; None is one process.

    Attributes:
      calibration: of the last evaluation, over all ranks.
      note: what the reader of the last numbers must know.
    """

    def __init__(
        self, model, dataset, auc_thresholds: int | None = None, world: World | None = None
    ):
        self.dataset = dataset
        self._scorer = Scorer(model)
        self._auc_thresholds = auc_thresholds
        self._world = world or World()
        self._curve = None
        self.calibration = Calibration()
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
        """Runs over the data set once; yields "auc", "log_loss" and, with bins, its error bound.

        Yields nothing once `stopped()`, asked before every batch, says so, on every rank the same.

        Every rank must call it and gets the same numbers, or the same error. When the first number
        is there, all communication is over: what follows is up to each rank.

        `note` says afterwards what the reader of the numbers must know, such as why an AUC is NaN.
        """
        self._curve = None
        own = make_metrics(self._auc_thresholds)
        own.calibration = Calibration()
        metrics = over_ranks(own, self._world)
        iterator = iter(self.dataset.dataset())
        for _ in range(self.dataset.num_batches):
            if stopped():
                return
            metrics.update(*self._scorer.score_next(iterator))
            stack_sample.record_progress()
        scores = metrics.result()
        self.calibration = own.calibration.over(self._world)
        if self._world.size == 1:
            self._curve = metrics.roc_curve
        else:  # now, because the chief draws alone: three small messages, no score is sent
            curve = metrics.roc_curve()
            self._curve = lambda: curve
        self.note = scores.note
        yield "auc", scores.auc
        yield "log_loss", scores.log_loss
        if self._auc_thresholds is not None:
            yield "auc_error_bound", scores.auc_error_bound

    def draw(self, folder: Path, metrics: dict[str, float]) -> list[Path]:
        """Draws ROC curve, calibration and scores of the last evaluation; any rank may call it
        alone. Returns the pictures."""
        if self._curve is None:
            return []
        fpr, tpr = self._curve()
        reliability, (largest, bars) = self.calibration.reliability(), self.calibration.histogram()
        path = folder / "roc.png"
        plots.draw(
            "evaluation",
            path,
            split=self.split,
            roc={"fpr": fpr, "tpr": tpr, "auc": metrics["auc"]},
            reliability=reliability._asdict(),
            histogram={"largest": largest, "shares": bars},
        )
        return [path]


class TrainingRowsToo:
    """Metrics over held-out rows, and as "train_auc" and "train_loss" those over training rows.

    Args:
      held_out, training: `ClickEvaluator` of either.
    """

    def __init__(self, held_out: ClickEvaluator, training: ClickEvaluator):
        self._held_out, self._training = held_out, training
        self.draw = held_out.draw

    @property
    def num_batches(self) -> int:
        """Batches of an evaluation."""
        return self._held_out.num_batches + self._training.num_batches

    @property
    def split(self) -> str:
        """Name of the held-out split."""
        return self._held_out.split

    @property
    def note(self) -> str:
        """What the reader must know of the metrics."""
        training = self._training.note and f"training rows: {self._training.note}"
        return "; ".join(note for note in (self._held_out.note, training) if note)

    def evaluate(self, stopped: Callable[[], bool] = lambda: False) -> Iterator[tuple[str, float]]:
        """As `ClickEvaluator.evaluate`, which comes first."""
        found = dict(self._held_out.evaluate(stopped))
        again = dict(self._training.evaluate(stopped)) if found else {}
        if again:
            found |= {"train_auc": again["auc"], "train_loss": again["log_loss"]}
            if "auc_error_bound" in again:
                found["train_auc_error_bound"] = again["auc_error_bound"]
            yield from found.items()
