"""`Recipe`: what to train, as `build(config, spec, world, device)` of each recipe composes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import tensorflow as tf
    from distributed_embeddings.collectives import World

    from config.config import Config
    from dataloading.interactions.candidates import CandidateDataset
    from dataloading.interactions.drawn_pairs import DrawnPairs
    from dataloading.interactions.sampled import SampledInteractions
    from dataloading.keys.kept_columns import KeptColumns
    from dataloading.pipeline.sample_dataset import SampleDataset
    from dataloading.spec.feature_spec import FeatureSpec
    from nn.embedding_model import EmbeddingModel
    from nn.metrics.evaluator import DatasetEvaluator, HeldOutAndTrainEvaluator
    from nn.metrics.held_out_ranking import HeldOutRanking
    from nn.optim.optimizers import Optimizer
    from nn.train.trainer import Trainer
    from recipes.recommendation import Recommendation

    # `loss(model, batch)` -> (loss, its terms by name): float32 scalars.
    Loss = Callable[[Any, Any], tuple[tf.Tensor, Mapping[str, tf.Tensor]]]


# Batches of one split, shared by the ranks.
Dataset: TypeAlias = "SampleDataset | SampledInteractions | CandidateDataset"
Evaluator: TypeAlias = "DatasetEvaluator | HeldOutAndTrainEvaluator"

# Losses and metrics of a model that predicts clicks.
METRICS = (
    *("auc", "best_reachable_auc", "log_loss"),
    *("normalized_entropy", "pr_auc", "calibration"),
)

# Metrics of which lower values are better.
_LOWER_IS_BETTER = ("log_loss", "normalized_entropy")


@dataclass(frozen=True)
class Goal:
    """Metric by which evaluations are compared, and the threshold of one at which training stops.

    Attributes:
        metric: its name among those of the evaluator.
        threshold: value of `threshold_metric` at which training stops; None: no threshold.
        flag: name of the flag that sets the threshold.
        threshold_metric: metric of the threshold, whatever `metric` is; higher is better.
        reports_time_to_best: whether the summary has the epoch and the time of the best evaluation.
    """

    metric: str = "auc"
    threshold: float | None = None
    flag: str = "auc_threshold"
    threshold_metric: str = "auc"
    reports_time_to_best: bool = False

    def with_flags(self, config: Config, evaluator: Evaluator | None) -> Goal:
        """Returns the goal of a training, whose metric `--metric` replaces.

        Raises:
            ValueError: the evaluator does not compute this metric.
        """
        metric = config.evaluation.metric
        if metric is None or config.run.mode != "train":
            return self
        if evaluator is not None and metric not in evaluator.metrics:
            is_of_groups = "auc" in evaluator.metrics and (metric == "gauc" or "@" in metric)
            needs = "; metrics of groups need --group_column" if is_of_groups else ""
            raise ValueError(
                f"--metric: expected a metric of this training's evaluations, one of "
                f"{', '.join(evaluator.metrics)}, got {metric!r}{needs}"
            )
        return replace(self, metric=metric)

    @property
    def lower_is_better(self) -> bool:
        """True if a lower value of the metric is better."""
        return self.metric in _LOWER_IS_BETTER

    def is_better(self, value: float, best: float) -> bool:
        """Returns whether a value is better than the best so far; NaN is worse than any number."""
        if math.isnan(value) or math.isnan(best):
            return math.isnan(best) and not math.isnan(value)
        return value < best if self.lower_is_better else value > best

    @property
    def best_name(self) -> str:
        """Name of the best value in summaries and checkpoints."""
        return f"best_{self.metric}"

    @property
    def reached_name(self) -> str:
        """Name of the time at which the threshold was reached."""
        return f"time_to_{self.flag}_s"


@dataclass(kw_only=True)
class Recipe:
    """Model, data, loss, optimizers and evaluator of a run.

    Attributes:
        model: the model, whose weights all exist.
        train: training samples; None unless `--mode train`.
        valid: samples to evaluate; None with `--evals_per_epoch 0`.
        loss: function `loss(model, batch)` that returns the loss and its terms by name.
        optimizers: those of the dense variables and of the tables.
        evaluator: metrics over `valid`, "log_loss" and the goal's metric among them; None without
            `valid`, and for predictions.
        model_flags: flags of the model whose values the data decides, for its checkpoints.
        facts: sizes of model and data, for the log.
        notes: warnings about automatic choices; empty texts are skipped.
        goal: metric by which evaluations are compared, without `--metric`.
        metrics: losses and metrics that are evaluated.
        loss_terms: terms of the loss to report, in addition to the loss itself.
        saves_epochs: whether a checkpoint is saved after every epoch.
        best_auc: returns the best AUC that any model can reach on `valid`; None if unknown.
        make_batch: makes a batch of an element of `train`, in the graph; None: the element is it.
        num_parts: parts of a batch whose gradients are accumulated.
        export: writes the best or newest checkpoint of the folder in another format when a training
            ends, on rank 0, and returns a description; None without any.
        sweep: data sets of one batch each, of different sizes, that `--mode inference` measures in
            place of `valid`.
        pretrained: sets the weights of a new training from other models, as a collective, and
            returns a description of them; None without any.
        kept: columns of `valid` that predictions keep, on rank 0; None without any.
        rankings: rankings of held-out items, which `--mode eval` also measures.
        recommendation: users and the search of their top items; None unless `--mode recommend`.
    """

    model: EmbeddingModel
    train: Dataset | None
    valid: Dataset | None
    loss: Loss
    optimizers: Sequence[Optimizer]
    evaluator: Evaluator | None
    facts: Mapping[str, Any]
    model_flags: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    goal: Goal = Goal()
    metrics: Sequence[str] = METRICS
    loss_terms: Sequence[str] = ()
    saves_epochs: bool = False
    best_auc: Callable[[], float | None] = lambda: None
    make_batch: Callable[[Any], Any] | None = None
    num_parts: int = 1
    export: Callable[[Path], str] | None = None
    sweep: Sequence[DrawnPairs] = ()
    pretrained: Callable[[], str] | None = None
    kept: KeptColumns | None = None
    rankings: Sequence[HeldOutRanking] = ()
    recommendation: Recommendation | None = None

    def add_metrics(self, config: Config, spec: FeatureSpec | None) -> None:
        """Adds the metrics of the definition to the evaluator."""
        if self.evaluator is None or not config.definition.metrics:
            return
        spec = config.family.spec_of_data(config, spec)
        metrics = [make(spec) for make in config.definition.metrics]
        self.evaluator.add_metrics(metrics)
        self.metrics = (*self.metrics, *(name for metric in metrics for name in metric.names))

    def make_trainer(self, loss_scale: float | str, world: World) -> Trainer:
        """Returns the training step, with step counts and losses at zero."""
        from nn.train.trainer import Trainer

        return Trainer(
            *(self.model, self.loss, self.optimizers, loss_scale, world, self.loss_terms),
            num_parts=self.num_parts,
            make_batch=self.make_batch,
        )

    def metric_splits(self) -> dict[str, str | None]:
        """Returns the split of each loss and metric in the log; None: training samples."""
        split = self.valid.split if self.valid else None
        names = (*self.metrics, self.goal.best_name)
        splits = {name: None if name.startswith("train_") else split for name in names}
        return {**dict.fromkeys(("loss", *self.loss_terms)), **splits}
