"""Metrics of a model over every sample of a data set."""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import tensorflow as tf
from distributed_embeddings.collectives import World

from nn.metrics.calibration import Calibration
from nn.metrics.classification import make_metrics
from nn.metrics.group_metrics import Grouping, GroupMetrics
from nn.metrics.plausibility import LEAK

AnyEvaluator = TypeVar("AnyEvaluator", bound="DatasetEvaluator")


class Scorer:
    """Forward pass of `model(inputs) -> logits [batch, 1]` as compiled functions.

    Args:
        model: See above.
        group_of: Returns the integer column of the inputs, [batch] or [batch, 1], by which samples
            are grouped; None: samples have no groups.
    """

    def __init__(self, model: Any, group_of: Callable[[Any], tf.Tensor] | None = None):
        self.model = model
        self._group_of = group_of

    @tf.function(reduce_retracing=True, autograph=False)
    def score(self, inputs) -> tf.Tensor:
        """Returns logits [batch, 1] float32 of one batch."""
        return self.model(inputs)

    @tf.function(reduce_retracing=True, autograph=False)
    def score_next(self, iterator) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Returns (labels, logits, weights, groups) of the next batch: [batch, 1] float32, groups
        as in the inputs, or None.

        Samples weigh 1, padding 0: a batch's own weights are made for means over ranks.
        """
        batch = iterator.get_next()
        weights = tf.cast(batch.weights > 0, tf.float32)
        groups = self._group_of(batch.inputs) if self._group_of else None
        return batch.labels, self.model(batch.inputs), weights, groups


class DatasetEvaluator:
    """Base class of evaluators: metrics of a model over a data set.

    Args:
        model: `model(inputs) -> logits [batch, 1]`.
        dataset: `split`, `num_batches`, equal on all ranks, and `dataset() -> tf.data.Dataset` of
            batches.
        world: The ranks that share the samples; None: one process.
        group_of: See `Scorer`.

    Attributes:
        notes: Remarks on the metrics of the last evaluation by their kind, see `plausibility`.
    """

    def __init__(
        self,
        model,
        dataset,
        world: World | None = None,
        group_of: Callable[[Any], tf.Tensor] | None = None,
    ):
        self.dataset = dataset
        self._scorer = Scorer(model, group_of)
        self._world = world or World()
        self.notes: Mapping[str, str] = {}

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
        super().__init__(model, dataset, world, grouping and grouping.column_of)
        self._auc_thresholds = auc_thresholds
        self._grouping = grouping
        self._curve = None
        self.calibration = Calibration()

    @property
    def metrics(self) -> tuple[str, ...]:
        groups = self._grouping.metrics if self._grouping else ()
        return ("auc", "log_loss", "normalized_entropy", "pr_auc", *groups)

    def evaluate(self, stopped: Callable[[], bool] = lambda: False) -> Iterator[tuple[str, float]]:
        """Yields the metrics of `Scores`, of them "auc_error_bound" only with bins, and those of
        groups; see the base class.
        """
        self._curve = None
        metrics = make_metrics(self._auc_thresholds, self._world)
        metrics.calibration = Calibration()
        of_groups = GroupMetrics(self._grouping, self._world) if self._grouping else None
        iterator = iter(self.dataset.dataset())
        for _ in range(self.num_batches):
            if stopped():
                return
            labels, logits, weights, groups = self._scorer.score_next(iterator)
            metrics.update(labels, logits, weights)
            if of_groups is not None:
                of_groups.add(groups, labels, logits, weights)
        scores = metrics.result()
        group_values = of_groups.result() if of_groups else {}
        self.calibration = metrics.calibration.over(self._world)
        self._curve = metrics.roc_curve()  # now: it is collective, and the chief draws alone
        self.notes = {**scores.notes, **(of_groups.notes if of_groups else {})}
        for name in ("auc", "log_loss", "normalized_entropy", "pr_auc", "calibration"):
            yield name, getattr(scores, name)
        yield from group_values.items()
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
        self.picture = held_out.picture

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
