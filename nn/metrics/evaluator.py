"""Metrics of a model over every sample of a data set."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf
from distributed_embeddings.collectives import World

from nn.metrics.calibration import Calibration
from nn.metrics.classification import make_metrics
from nn.metrics.group_metrics import Grouping, GroupMetrics
from nn.metrics.metric import Metric
from nn.metrics.plausibility import LEAK

AnyEvaluator = TypeVar("AnyEvaluator", bound="DatasetEvaluator")


class Scorer:
    """Forward pass of `model(inputs) -> logits [batch, 1]` as compiled functions.

    Args:
        model: See above.
        metrics: Metrics, whose groups of samples are read, too.
    """

    def __init__(self, model: Any, metrics: Sequence[Metric] = ()):
        self.model = model
        self._metrics = metrics

    @tf.function(reduce_retracing=True, autograph=False)
    def score(self, inputs) -> tf.Tensor:
        """Returns logits [batch, 1] float32 of one batch."""
        return self.model(inputs)

    @tf.function(reduce_retracing=True, autograph=False)
    def score_next(self, iterator) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, list[Any]]:
        """Returns (labels, logits, weights, groups) of the next batch: [batch, 1] float32, groups
        for each metric, see `Metric.group_of`.

        Samples weigh 1, padding 0: a batch's own weights are made for means over ranks.
        """
        batch = iterator.get_next()
        weights = tf.cast(batch.weights > 0, tf.float32)
        groups = [metric.group_of(batch.inputs) for metric in self._metrics]
        return batch.labels, self.model(batch.inputs), weights, groups


class DatasetEvaluator:
    """Base class of evaluators: metrics of a model over a data set.

    Args:
        model: `model(inputs) -> logits [batch, 1]`.
        dataset: `split`, `num_batches`, equal on all ranks, and `dataset() -> tf.data.Dataset` of
            batches.
        world: The ranks that share the samples; None: one process.
        metrics: Metrics that are computed, too.

    Attributes:
        notes: Remarks on the metrics of the last evaluation by their kind, see `plausibility`.
    """

    def __init__(
        self,
        model,
        dataset,
        world: World | None = None,
        metrics: Sequence[Metric] = (),
    ):
        self.dataset, self._model = dataset, model
        self._world = world or World()
        self._added: list[Metric] = []
        self.add_metrics(metrics)
        self.notes: Mapping[str, str] = {}

    def add_metrics(self, metrics: Sequence[Metric]) -> None:
        """Adds metrics that are computed, too."""
        self._added += metrics
        self._scorer = Scorer(self._model, self._added)

    def _start_added(self) -> None:
        for metric in self._added:
            metric.start(self._world)

    def _add(self, groups: Sequence[Any], labels: Any, logits: Any, weights: Any) -> None:
        """Adds a batch to the added metrics; groups: for each, see `Metric.group_of`."""
        for metric, own in zip(self._added, groups, strict=True):
            metric.add(own, labels, logits, weights)

    def _added_values(self) -> dict[str, float]:
        """Returns the values of the added metrics; collective."""
        return {name: v for metric in self._added for name, v in metric.result().items()}

    def _set_notes(self, notes: Mapping[str, str]) -> None:
        """Sets these notes and those of the added metrics."""
        parts = (notes, *(metric.notes for metric in self._added))
        self.notes = {kind: note for part in parts for kind, note in part.items()}

    @property
    def added_names(self) -> tuple[str, ...]:
        """Names of the values of added metrics."""
        return tuple(name for metric in self._added for name in metric.names)

    @property
    def num_batches(self) -> int:
        return self.dataset.num_batches

    @property
    def split(self) -> str:
        return self.dataset.split

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics by which evaluations can be compared: one value is better."""
        raise NotImplementedError

    def with_dataset(self: AnyEvaluator, dataset) -> AnyEvaluator:
        """Returns the evaluator of other samples of the same form; it shares the compiled model."""
        evaluator = copy.copy(self)
        evaluator.dataset = dataset
        return evaluator

    def evaluate(self, stopped: Callable[[], bool] = lambda: False) -> Iterator[tuple[str, float]]:
        """Evaluates the data set once; collective.

        Every rank gets the same metrics, or the same error. When the first metric is yielded, all
        communication is complete.

        Args:
            stopped: Called before every batch; once it returns True, on all ranks, nothing is
                yielded.

        Yields:
            (name, value) of each metric.
        """
        raise NotImplementedError

    def picture(self, metrics: Mapping[str, float]) -> dict[str, Any] | None:
        """Returns curves of the last evaluation, None without any; any rank may call it alone."""
        return None


class ClickEvaluator(DatasetEvaluator):
    """Metrics of a click model; every sample of all ranks counts once.

    Args:
        model, dataset, world: See `DatasetEvaluator`.
        auc_thresholds: None for the exact areas under curves, otherwise the number of bins.
        grouping: Groups of samples, whose metrics (`GroupMetrics`) are computed, too.

    Attributes:
        calibration: Calibration of the last evaluation, over all ranks.
    """

    def __init__(
        self,
        model,
        dataset,
        auc_thresholds: int | None = None,
        world: World | None = None,
        grouping: Grouping | None = None,
    ):
        super().__init__(model, dataset, world, [GroupMetrics(grouping)] if grouping else ())
        self._auc_thresholds = auc_thresholds
        self._curve = None
        self.calibration = Calibration()

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("auc", "log_loss", "normalized_entropy", "pr_auc", *self.added_names)

    def evaluate(self, stopped: Callable[[], bool] = lambda: False) -> Iterator[tuple[str, float]]:
        """Yields the metrics of `Scores`, of them "auc_error_bound" only with bins, and added ones;
        see the base class.
        """
        self._curve = None
        metrics = make_metrics(self._auc_thresholds, self._world)
        metrics.calibration = Calibration()
        self._start_added()
        iterator = iter(self.dataset.dataset())
        for _ in range(self.num_batches):
            if stopped():
                return
            labels, logits, weights, groups = self._scorer.score_next(iterator)
            metrics.update(labels, logits, weights)
            self._add(groups, labels, logits, weights)
        scores, added = metrics.result(), self._added_values()
        self.calibration = metrics.calibration.over(self._world)
        self._curve = metrics.roc_curve()  # now: it is collective, and the chief draws alone
        self._set_notes(scores.notes)
        for name in ("auc", "log_loss", "normalized_entropy", "pr_auc", "calibration"):
            yield name, getattr(scores, name)
        yield from added.items()
        if self._auc_thresholds is not None:
            yield "auc_error_bound", scores.auc_error_bound

    def picture(self, metrics: Mapping[str, float]) -> dict[str, Any] | None:
        """Returns ROC and precision-recall curve, calibration and scores of the last evaluation.

        Returns:
            Arguments of `runtime.logs.plots.evaluation`; None before an evaluation.
        """
        if self._curve is None:
            return None
        fpr, tpr = self._curve
        largest, shares = self.calibration.histogram()
        return {
            "split": self.split,
            "curves": {"fpr": fpr, "tpr": tpr, "auc": metrics["auc"], "pr_auc": metrics["pr_auc"]},
            "reliability": self.calibration.reliability()._asdict(),
            "histogram": {"largest": largest, "shares": shares},
        }


class HeldOutAndTrainEvaluator:
    """Metrics of held-out samples, and "train_auc" and "train_loss" of training samples."""

    def __init__(self, held_out: ClickEvaluator, training: ClickEvaluator):
        self._held_out, self._training = held_out, training
        self.picture, self.add_metrics = held_out.picture, held_out.add_metrics

    @property
    def num_batches(self) -> int:
        return self._held_out.num_batches + self._training.num_batches

    @property
    def split(self) -> str:
        return self._held_out.split

    @property
    def metrics(self) -> tuple[str, ...]:
        return self._held_out.metrics

    @property
    def notes(self) -> dict[str, str]:
        of_training = {
            f"{kind} of training rows": f"training rows: {note}"
            for kind, note in self._training.notes.items()
            if kind != LEAK  # a model may learn its training rows by heart
        }
        return {**self._held_out.notes, **of_training}

    def evaluate(self, stopped: Callable[[], bool] = lambda: False) -> Iterator[tuple[str, float]]:
        """Evaluates held-out samples first; see the base class."""
        metrics = dict(self._held_out.evaluate(stopped))
        training = dict(self._training.evaluate(stopped)) if metrics else {}
        if training:
            metrics |= {"train_auc": training["auc"], "train_loss": training["log_loss"]}
            if "auc_error_bound" in training:
                metrics["train_auc_error_bound"] = training["auc_error_bound"]
            yield from metrics.items()
