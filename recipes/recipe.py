"""`Recipe`: what to train, as `build(config, spec, world, device)` of each recipe composes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from runtime.logs.run_logger import LogNames

if TYPE_CHECKING:
    import tensorflow as tf

    from nn.optim.optimizers import OptimizerGroup
    from nn.train.trainer import Trainer
    from runtime.checkpoint import Weight
    from runtime.cluster.distributed import World

    # `loss(model, batch)` -> (loss, its terms by name): float32 scalars.
    Loss = Callable[[Any, Any], tuple[tf.Tensor, Mapping[str, tf.Tensor]]]


class Dataset(Protocol):
    """Batches of one split, shared by the ranks.

    Attributes:
        split: name of the split.
        batch_size: global batch size.
        num_rows: number of samples of the split.
        failure: why the last read failed; None if none did.
    """

    split: str
    batch_size: int
    num_rows: int

    @property
    def failure(self) -> str | None: ...

    @property
    def num_batches(self) -> int:
        """Batches per epoch, equal on all ranks."""

    def dataset(self, epoch: int = 0, start_row: int = 0) -> tf.data.Dataset:
        """Returns this rank's batches of an epoch, from a sample of its order on."""


class Splits(NamedTuple):
    """Data of a run.

    Attributes:
        train: training samples; None unless `--mode train`.
        valid: samples to evaluate; None with `--evals_per_epoch 0`.
    """

    train: Dataset | None
    valid: Dataset | None


class Evaluator(Protocol):
    """Metrics of a model over a split."""

    @property
    def note(self) -> str:
        """Warning about the last metrics; empty without one."""

    @property
    def split(self) -> str: ...

    @property
    def num_batches(self) -> int: ...

    def evaluate(self, stopped: Callable[[], bool]) -> Iterator[tuple[str, float]]:
        """Yields (name, value), "log_loss" and the goal's metric among them.

        A collective. It yields nothing once `stopped()`, called before every batch, returns True.
        """

    def draw(self, folder: Path, metrics: dict[str, float]) -> list[Path]:
        """Draws the last evaluation; returns the files."""


class Model(Protocol):
    """Model with distributed embedding tables; all of its weights exist."""

    @property
    def num_parameters(self) -> int: ...

    def __call__(self, inputs: Any) -> tf.Tensor:
        """Returns logits, [batch, 1]."""

    def weights_to_save(self) -> list[Weight]:
        """Returns every weight of the model."""

    def optimizer_weights(self, groups: Sequence[OptimizerGroup]) -> list[Weight]:
        """Returns the state of the optimizers."""

    def state_not_saved(self, groups: Sequence[OptimizerGroup]) -> str | None:
        """Returns why the state of the optimizers cannot be saved; None if it can."""


# Losses and metrics of a model that predicts clicks.
METRICS = ("auc", "best_auc", "best_reachable_auc", "log_loss")


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
        model: the model.
        train: training samples; None unless `--mode train`.
        valid: samples to evaluate; None with `--evals_per_epoch 0`.
        loss: function `loss(model, batch)` that returns the loss and its terms by name.
        groups: optimizers with their learning rates.
        evaluator: metrics over `valid`; None without it, and for predictions.
        model_flags: flags that a checkpoint stores so that this model can be built again.
        facts: sizes of model and data, for the log.
        notes: warnings about automatic choices; empty texts are skipped.
        goal: metric by which evaluations are compared.
        log_names: names of values in the log.
        metrics: losses and metrics that are evaluated.
        loss_terms: terms of the loss to report, in addition to the loss itself.
        keeps_best: whether the best checkpoint is kept without `--keep_best`.
        best_auc: returns the best AUC that any model can reach on `valid`; None if unknown.
    """

    model: Model
    train: Dataset | None
    valid: Dataset | None
    loss: Loss
    groups: Sequence[OptimizerGroup]
    evaluator: Evaluator | None
    model_flags: Mapping[str, Any]
    facts: Mapping[str, Any]
    notes: Sequence[str] = ()
    goal: Goal = Goal()
    log_names: LogNames = LogNames()
    metrics: Sequence[str] = METRICS
    loss_terms: Sequence[str] = ()
    keeps_best: bool = False
    best_auc: Callable[[], float | None] = lambda: None

    def make_trainer(self, loss_scale: float | str, world: World) -> Trainer:
        """Returns the training step, with step counts and losses at zero."""
        from nn.train.trainer import Trainer

        return Trainer(self.model, self.loss, self.groups, loss_scale, world, self.loss_terms)

    def initialize(self, resumes: bool) -> str:
        """Sets weights of a new training from other models; a collective.

        Args:
            resumes: whether the weights are those of a checkpoint and stay.

        Returns:
            A description of the other models for the log; an empty text without any.
        """
        return ""

    def metric_splits(self) -> dict[str, str | None]:
        """Returns the split of each loss and metric in the log; None: training samples."""
        split = self.valid.split if self.valid else None
        splits = {name: None if name.startswith("train_") else split for name in self.metrics}
        return {**dict.fromkeys(("loss", *self.loss_terms)), **splits}
