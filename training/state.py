"""State of a run: its parts, its position in the data, and its evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from distributed_embeddings.collectives import World

from config.config import Config
from dataloading.spec import data_checks
from dataloading.spec.feature_spec import FeatureSpec
from nn.metrics.plausibility import LEAK
from recipes.recipe import Goal, Recipe
from runtime.checkpoint.resume import Start
from runtime.hardware.device import Device
from runtime.logs.run_logger import RunLogger


@dataclass(frozen=True)
class RunContext:
    """A run that is set up: processes, device, data, model and log.

    Attributes:
        config: the flags, with those that a checkpoint or a preset sets.
        start: checkpoint that the run starts from, and the folder it saves to.
        position: position that the training starts from and advances.
        total_steps: steps of the whole training, those of earlier runs included; None in other
            modes.
        data: the data set; None for data generated from flags.
        catches_signals: whether SIGTERM and SIGINT request a checkpoint and the end of a training.
        trained_metrics: of the checkpoint that is evaluated, see `checkpoints.metrics_of_training`.
        noted: kinds of notes on evaluations that were logged.
        kept_picture: content of `plots.evaluation`, of the best evaluation of this run if its
            weights are kept.
        on_evaluation: called with the goal's metric after each evaluation of a training; an
            exception ends the training.
    """

    config: Config
    recipe: Recipe
    device: Device
    world: World
    log: RunLogger
    run_dir: Path
    start: Start
    position: Position
    total_steps: int | None
    data: FeatureSpec | None
    catches_signals: bool = True
    on_evaluation: Callable[[float], None] = lambda metric: None
    trained_metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    noted: set[str] = field(default_factory=set)
    kept_picture: dict[str, Any] = field(default_factory=dict)

    @property
    def keeps_best(self) -> bool:
        """True if a training with checkpoints keeps the weights of its best evaluation."""
        flag = self.config.checkpoint.keep_best
        return bool(self.config.evaluation.early_stopping) if flag is None else flag

    def log_notes(self, notes: Mapping[str, str]) -> None:
        """Logs notes on an evaluation by their kind, each kind once."""
        for kind, note in notes.items():
            if kind in self.noted:
                continue
            self.noted.add(kind)
            if kind.startswith(LEAK) and self.data is not None and self.world.is_chief:
                note += data_checks.names_of_warnings(self.data.base_directory)
            self.log.message(f"note: {note}")


@dataclass(frozen=True)
class Best:
    """Best evaluation of a training: the goal's metric, and when it was measured.

    Checkpoints of recipes that do not report them have no epoch and no seconds of training.
    """

    value: float
    step: int
    epoch: int | None = None
    elapsed_s: float | None = None


@dataclass
class Position:
    """Position of a training. Weights, optimizer state and position are all that a resume needs.

    Every random number of a training follows from the seed (a flag) and from the position.

    Attributes:
        step: number of steps done.
        first_step: steps done on the data sets from which the current one has grown.
        epoch: current epoch.
        row: next sample in the order of this epoch; the samples before it were trained on.
        evaluated_step: step of the last evaluation.
        elapsed_s: seconds of training so far, in all runs.
        trainer: `Trainer.state()`.
        metrics: metrics of the last evaluation.
        best: best evaluation so far; None before the first one.
        best_metrics: its metrics; those of checkpoints of earlier versions have none.
        goal_reached_s: `elapsed_s` when the goal's threshold was reached; None before.
        history: learning curve, (step, value) pairs by name.
    """

    step: int = 0
    first_step: int = 0
    epoch: int = 0
    row: int = 0
    evaluated_step: int = 0
    elapsed_s: float = 0.0
    trainer: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    best: Best | None = None
    best_metrics: dict[str, float] = field(default_factory=dict)
    goal_reached_s: float | None = None
    history: dict[str, list[tuple[int, float]]] = field(
        default_factory=lambda: {"train_loss": [], "validation_loss": []}
    )

    def add_evaluation(self, goal: Goal, metrics: dict[str, float], elapsed_s: float) -> None:
        """Records the metrics of the current step.

        An equal value does not replace the best one. NaN (an AUC of samples of one class) never
        replaces a number, and is replaced by any later value.
        """
        value = metrics[goal.metric]
        self.evaluated_step, self.metrics = self.step, metrics
        self.history["validation_loss"].append((self.step, metrics["log_loss"]))
        for name in {goal.metric: None, goal.threshold_metric: None}:
            if name in metrics:
                self.history.setdefault(f"validation_{name}", []).append((self.step, metrics[name]))
        best = math.nan if self.best is None else self.best.value
        if math.isnan(best) or goal.is_better(value, best):
            self.best = Best(value, self.step, self.epoch, elapsed_s)
            self.best_metrics = metrics
        if goal.threshold is not None and metrics[goal.threshold_metric] >= goal.threshold:
            self.goal_reached_s = elapsed_s

    def on_grown_data(self) -> Position:
        """Returns the position at the first sample of a data set that has grown from this one's.

        Metrics and learning curve start again: validation samples differ.
        """
        return Position(
            step=self.step,
            first_step=self.step,
            evaluated_step=-1,
            trainer=self.trainer,
        )

    def has_reached(self, goal: Goal) -> bool:
        """Returns whether an evaluation meets the goal's threshold."""
        if goal.threshold is None:
            return False
        highest = self.highest(goal.threshold_metric)
        return highest is not None and highest >= goal.threshold

    def highest(self, metric: str) -> float | None:
        """Returns the highest value of a metric (see `values_of`); None without one."""
        values = (value for _, value in self.values_of(metric) if not math.isnan(value))
        return max(values, default=None)

    def stale_evaluations(self, goal: Goal) -> int:
        """Returns the number of evaluations since the best one; NaN never improves."""
        best, stale = math.nan, 0
        for _, value in self.values_of(goal.metric):
            best, stale = (value, 0) if goal.is_better(value, best) else (best, stale + 1)
        return stale

    def values_of(self, metric: str) -> list[tuple[int, float]]:
        """Returns (step, value) of a metric that evaluations are compared by, or of a threshold."""
        return self.history.get(f"validation_{metric}", [])

    def best_values(self, goal: Goal) -> dict[str, Any]:
        """Returns the best evaluation under the names of checkpoints and summaries."""
        values: dict[str, Any] = {}
        if self.best is not None:
            values |= {goal.best_name: self.best.value, f"{goal.best_name}_step": self.best.step}
            if goal.reports_time_to_best and self.best.elapsed_s is not None:
                values |= {"best_epoch": self.best.epoch, "time_to_best_s": self.best.elapsed_s}
        if self.goal_reached_s is not None:
            values[goal.reached_name] = self.goal_reached_s
        return values

    def to_json(self, goal: Goal) -> dict[str, Any]:
        """Returns the position as checkpoints store it."""
        state = asdict(self)
        del state["goal_reached_s"]
        return {**state, "best": self.best_values(goal)}

    @classmethod
    def from_json(cls, state: Mapping[str, Any], goal: Goal) -> Position:
        """Reads what `to_json` wrote, with or without the mark of a training's end."""
        state = {name: value for name, value in state.items() if name != "finished"}
        values = state.get("best", {})
        best = None
        if goal.best_name in values:
            best = Best(
                values[goal.best_name],
                values[f"{goal.best_name}_step"],
                values.get("best_epoch"),
                values.get("time_to_best_s"),
            )
        state |= {"best": best, "goal_reached_s": values.get(goal.reached_name)}
        return cls(**state if best else {**state, "best_metrics": {}})
