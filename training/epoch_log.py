"""Log lines of evaluations and of epochs: hook of the training loop.

A recipe's `LogNames` selects the form: a line per evaluation, or those of NVIDIA's SIM and NCF.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from training.state import RunContext

if TYPE_CHECKING:
    from runtime.logs.timer import StepTimer


class EpochLog:
    """A line per evaluation; the end of an epoch has none."""

    times_epochs = False  # whether the timer keeps the time of each step

    def __init__(self, run: RunContext):
        self.log, self.position, self.recipe = run.log, run.position, run.recipe

    def log_evaluation(
        self, metrics: Mapping[str, float], elapsed_s: float, seconds: float, ends_epoch: bool
    ) -> None:
        """Logs an evaluation.

        Args:
            metrics: its metrics.
            elapsed_s: seconds of training so far, in all runs.
            seconds: those of the evaluation.
            ends_epoch: whether the evaluation was made at the end of an epoch.
        """
        values = {**metrics, "elapsed_s": elapsed_s}
        self.log.log(self.position.step, values, epoch=self.position.epoch)

    def log_epoch(self, timer: StepTimer, report: Callable[[], None]) -> None:
        """Logs the end of an epoch; `report` logs the running loss first."""

    def summary(self, elapsed_s: float) -> dict[str, float]:
        """Returns further values of the training's summary."""
        return {}


class EpochLines(EpochLog):
    """A line per epoch, with the metrics of the evaluation at its end; none with --benchmark."""

    times_epochs = True

    def __init__(self, run: RunContext):
        super().__init__(run)
        self._is_benchmark = run.config.evaluation.benchmark

    def log_evaluation(
        self, metrics: Mapping[str, float], elapsed_s: float, seconds: float, ends_epoch: bool
    ) -> None:
        if not ends_epoch:
            super().log_evaluation(metrics, elapsed_s, seconds, ends_epoch)

    def log_epoch(self, timer: StepTimer, report: Callable[[], None]) -> None:
        if self._is_benchmark:
            return
        report()
        position = self.position
        metrics = position.metrics if position.evaluated_step == position.step else {}
        values = {**self._epoch_values(timer, bool(metrics)), **metrics}
        self.log.end_epoch(position.epoch, position.step, values)

    def _epoch_values(self, timer: StepTimer, is_evaluated: bool) -> dict[str, Any]:
        return timer.end_epoch()


class EpochSpeeds(EpochLines):
    """A line per epoch with loss and throughputs, and their best and mean in the summary."""

    def __init__(self, run: RunContext):
        from runtime.logs.timer import Speeds

        super().__init__(run)
        self._speeds = Speeds()

    def log_evaluation(
        self, metrics: Mapping[str, float], elapsed_s: float, seconds: float, ends_epoch: bool
    ) -> None:
        super().log_evaluation(metrics, elapsed_s, seconds, ends_epoch)
        if self.recipe.valid is not None:
            self._speeds.evaluated(self.recipe.valid.num_samples, seconds)

    def _epoch_values(self, timer: StepTimer, is_evaluated: bool) -> dict[str, Any]:
        num_samples, epoch_s = timer.epoch_samples, timer.end_epoch()["epoch_s"]
        values = self._speeds.of_epoch(num_samples, epoch_s, is_evaluated)
        return {**values, **self._last_loss()}

    def summary(self, elapsed_s: float) -> dict[str, float]:
        # These logs have the time to the threshold without a threshold, too.
        reached = {self.recipe.goal.reached_name: elapsed_s}
        return {**self._last_loss(), **reached, **self._speeds.summary()}

    def _last_loss(self) -> dict[str, float]:
        losses = self.position.history["train_loss"]
        return {"loss": losses[-1][1]} if losses else {}


def make_epoch_log(run: RunContext) -> EpochLog:
    """Returns the hook that the names of the recipe's log select."""
    if run.log.names.speeds:
        return EpochSpeeds(run)
    return EpochLines(run) if run.log.names.epoch_lines else EpochLog(run)
