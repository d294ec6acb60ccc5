"""`Recipe`: what to train, as `build(config, spec, world, device)` of each recipe composes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import tensorflow as tf
    from distributed_embeddings.collectives import World

    from dataloading.interactions.candidates import CandidateDataset
    from dataloading.interactions.drawn_pairs import DrawnPairs
    from dataloading.interactions.sampled import SampledInteractions
    from dataloading.keys.kept_columns import KeptColumns
    from dataloading.pipeline.sample_dataset import SampleDataset
    from nn.embedding_model import EmbeddingModel
    from nn.metrics.evaluator import DatasetEvaluator, HeldOutAndTrainEvaluator
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
    *("auc", "best_auc", "best_reachable_auc", "log_loss"),
    *("normalized_entropy", "pr_auc", "calibration"),
)


@dataclass(frozen=True)
class Goal:
    """Metric by which evaluations are compared; higher is better.

    Attributes:
        metric: its name among those of the evaluator.
        threshold: value at which training stops; None: training never stops early for it.
        flag: name of the flag that sets the threshold.
        reports_time_to_best: whether the summary has the epoch and the time of the best evaluation.
    """

    metric: str = "auc"
    threshold: float | None = None
    flag: str = "auc_threshold"
    reports_time_to_best: bool = False

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
        model_flags: flags that a checkpoint stores so that this model can be built again.
        facts: sizes of model and data, for the log.
        notes: warnings about automatic choices; empty texts are skipped.
        goal: metric by which evaluations are compared.
        metrics: losses and metrics that are evaluated.
        loss_terms: terms of the loss to report, in addition to the loss itself.
        saves_epochs: whether a checkpoint is saved after every epoch.
        keeps_best: whether the best checkpoint is kept without `--keep_best`.
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
        recommendation: users and the search of their top items; None unless `--mode recommend`.
    """

    model: EmbeddingModel
    train: Dataset | None
    valid: Dataset | None
    loss: Loss
    optimizers: Sequence[Optimizer]
    evaluator: Evaluator | None
    model_flags: Mapping[str, Any]
    facts: Mapping[str, Any]
    notes: Sequence[str] = ()
    goal: Goal = Goal()
    metrics: Sequence[str] = METRICS
    loss_terms: Sequence[str] = ()
    saves_epochs: bool = False
    keeps_best: bool = False
    best_auc: Callable[[], float | None] = lambda: None
    make_batch: Callable[[Any], Any] | None = None
    num_parts: int = 1
    export: Callable[[Path], str] | None = None
    sweep: Sequence[DrawnPairs] = ()
    pretrained: Callable[[], str] | None = None
    kept: KeptColumns | None = None
    recommendation: Recommendation | None = None

    def make_trainer(self, loss_scale: float | str, world: World) -> Trainer:
        """Returns the training step, with step counts and losses at zero."""
        from nn.train.accumulation import AccumulatingTrainer
        from nn.train.trainer import Trainer

        arguments = (self.model, self.loss, self.optimizers, loss_scale, world, self.loss_terms)
        if self.num_parts == 1 and self.make_batch is None:
            return Trainer(*arguments)
        return AccumulatingTrainer(*arguments, num_parts=self.num_parts, make_batch=self.make_batch)

    def metric_splits(self) -> dict[str, str | None]:
        """Returns the split of each loss and metric in the log; None: training samples."""
        split = self.valid.split if self.valid else None
        splits = {name: None if name.startswith("train_") else split for name in self.metrics}
        return {**dict.fromkeys(("loss", *self.loss_terms)), **splits}
