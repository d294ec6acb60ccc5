"""Log lines of evaluations and of epochs: hook of the training loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from runtime.logs.dlll import unit_of
from training.state import RunContext

if TYPE_CHECKING:
    from runtime.logs.timer import StepTimer


def result_columns(run: RunContext, summary: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns metrics, values without a unit, by the title of their column.

    Of a training, those of its last and of its best evaluation; otherwise those of the checkpoint
    in its training, unless they are equal, and those of this run.
    """
    position, valid = run.position, run.recipe.valid
    if run.config.run.mode != "train":
        fractions = {name: value for name, value in summary.items() if isinstance(value, float)}
        metrics = {name: value for name, value in fractions.items() if unit_of(name) is None}
        title = "value" if valid is None else valid.split
        trained = {t: own for t, own in run.trained_metrics.items() if _differ(own, metrics)}
        return {**trained, title: metrics} if metrics else {}
    if not position.metrics or valid is None:
        return {}
    columns: dict[str, Mapping[str, Any]]
    columns = {f"last ({valid.split})": {"step": position.evaluated_step, **position.metrics}}
    if len(position.history["validation_loss"]) > 1 and (best := position.best) is not None:
        values = {run.recipe.goal.metric: best.value, **position.best_metrics}
        columns[f"best ({valid.split})"] = {"step": best.step, **values}
    return columns


def _differ(trained: Mapping[str, float], metrics: Mapping[str, float]) -> bool:
    """Returns whether metrics of two evaluations differ in the table."""
    pairs = [(trained[name], metrics[name]) for name in trained if name in metrics]
    return not all(math.isclose(a, b, abs_tol=5e-6) for a, b in pairs)


def result_notes(run: RunContext, summary: Mapping[str, Any]) -> Iterator[str]:
    """Yields notes if the model that is kept ranks or predicts worse than a constant one does."""
    entropy = "normalized_entropy"
    metrics = {**summary, **(run.position.best_metrics if run.keeps_best else {})}
    value = metrics.get(entropy, 0.0)
    compared = {name: f"{name}_popularity" for name in metrics if f"{name}_popularity" in metrics}
    if worse := [name for name in compared if metrics[name] < metrics[compared[name]]]:
        yield (
            f"note: {', '.join(worse)}: below a ranking of the items by popularity, which is the "
            "same for all users"
        )
    if value > 1 and run.config.optimizer.training_loss == "log_loss":
        yield (
            f"note: {entropy} {value:.5f} is above 1: the probabilities are worse than predicting "
            "the share of label 1 for every row"
        )


class EpochLog:
    """A line per evaluation, or per epoch where the recipe's `LogNames` has such a line."""

    def __init__(self, run: RunContext):
        from runtime.logs.timer import Speeds

        self._log, self._names, self._speeds = run.log, run.log.names, Speeds()
        self._position, self._recipe, self._config = run.position, run.recipe, run.config

    @property
    def times_epochs(self) -> bool:
        """True if the timer keeps the time of each step."""
        return bool(self._names.epoch_line)

    def log_evaluation(
        self, metrics: Mapping[str, float], elapsed_s: float, seconds: float, ends_epoch: bool
    ) -> None:
        """Logs an evaluation, unless it belongs to the line of its epoch.

        Args:
            metrics: its metrics.
            elapsed_s: seconds of training so far, in all runs.
            seconds: those of the evaluation.
            ends_epoch: whether the evaluation was made at the end of an epoch.
        """
        if self._recipe.valid is not None:
            self._speeds.evaluated(self._recipe.valid.num_samples, seconds)
        if not (self._names.epoch_line and ends_epoch):
            values = {**metrics, "elapsed_s": elapsed_s}
            self._log.log(self._position.step, values, epoch=self._position.epoch)

    def log_epoch(self, timer: StepTimer, report: Callable[[], None]) -> None:
        """Logs the end of an epoch, not of a benchmark; `report` logs the running loss first."""
        if not self._names.epoch_line or self._config.evaluation.benchmark:
            return
        report()
        position, num_samples = self._position, timer.epoch_samples
        metrics = position.metrics if position.evaluated_step == position.step else {}
        measured = timer.end_epoch()
        measured |= self._speeds.of_epoch(num_samples, measured["epoch_s"], bool(metrics))
        values = self._names.of_epoch({**measured, **self._losses()})
        self._log.end_epoch(position.epoch, position.step, {**values, **metrics})

    def complete_summary(self, values: dict[str, Any], elapsed_s: float) -> dict[str, Any]:
        """Returns the training's summary with further values that the recipe's log has."""
        measured = {**self._losses(), **self._speeds.summary()}
        # These logs have the time to the threshold without a threshold, too.
        measured[self._recipe.goal.reached_name] = elapsed_s
        if throughput := values.get("throughput"):
            measured["step_time_ms"] = 1e3 * self._config.run.batch_size / throughput
        return {**values, **self._names.of_summary(measured | values)}

    def _losses(self) -> dict[str, float]:
        """Returns the last training loss and the lowest loss of an evaluation."""
        training, evaluations = (
            [loss for _, loss in self._position.history[f"{name}_loss"]]
            for name in ("train", "validation")
        )
        losses = {"loss": training[-1]} if training else {}
        return losses | ({"lowest_log_loss": min(evaluations)} if evaluations else {})
