"""Log lines at the end of an epoch, for the recipes whose logs have them."""

from runtime.logs.run_logger import RunLogger
from runtime.logs.timer import Speeds, StepTimer


class EpochReport:
    """Report of a recipe whose log has no lines of epochs.

    Attributes:
        has_lines: whether the end of an epoch has a line of its own.
    """

    has_lines = False

    def add_evaluation(self, num_samples: int, elapsed_s: float) -> None:
        """Records an evaluation."""

    def end_epoch(self, evaluated: bool, loss: float | None) -> dict[str, float]:
        """Returns the measurements of the epoch that ends.

        Args:
            evaluated: whether the end of the epoch was evaluated.
            loss: last reported loss; None before the first report.
        """
        return {}

    def summary(self) -> dict[str, float]:
        """Returns measurements over all epochs."""
        return {}


class LatencyReport(EpochReport):
    """Reports the duration, throughput and step latencies of each epoch."""

    has_lines = True

    def __init__(self, timer: StepTimer):
        self._timer = timer

    def end_epoch(self, evaluated: bool, loss: float | None) -> dict[str, float]:
        return self._timer.end_epoch()


class SpeedReport(EpochReport):
    """Reports the throughput of training and evaluation, per epoch and over the run."""

    has_lines = True

    def __init__(self, timer: StepTimer):
        self._timer, self._speeds = timer, Speeds()

    def add_evaluation(self, num_samples: int, elapsed_s: float) -> None:
        self._speeds.evaluated(num_samples, elapsed_s)

    def end_epoch(self, evaluated: bool, loss: float | None) -> dict[str, float]:
        num_samples, times = self._timer.epoch_samples, self._timer.end_epoch()
        values = self._speeds.of_epoch(num_samples, times["epoch_s"], evaluated)
        return values if loss is None else {**values, "loss": loss}

    def summary(self) -> dict[str, float]:
        return self._speeds.summary()


def create(log: RunLogger, timer: StepTimer) -> EpochReport:
    """Returns the report that the recipe's log has."""
    if log.speeds:
        return SpeedReport(timer)
    return LatencyReport(timer) if log.epoch_lines else EpochReport()
