"""Policy of a training's checkpoints: requests to stop or save, and saves that failed."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from distributed_embeddings.collectives import CollectiveError, World

from runtime.checkpoint.saver import Outcome, Saver
from runtime.checkpoint.weight import NonFiniteWeight, Weight
from runtime.cluster.heartbeat import Heartbeat
from runtime.cluster.signals import StopSignal
from runtime.logs.run_logger import RunLogger

_LONG_WAIT_S = 1.0


class CheckpointPolicy:
    """Saves in the background, and learns of signals that request a stop.

    All ranks make the same calls, and all decisions are equal on all ranks.

    Args:
        saver: writes the checkpoints; None: nothing is saved and no stop is requested.
        every_minutes: time between checkpoints; None: whenever the training saves.
        stops_on_error: whether a failed save ends the training.

    Attributes:
        saves: whether there are checkpoints.
        is_due: whether a checkpoint is due by the time since the last one.
        saved_step: step of the last checkpoint, which need not be saved again.
        stopping: name of the signal that some rank received; None if no stop is requested.
        interrupted: whether the training ended because of it, before all work was done.
    """

    def __init__(
        self,
        saver: Saver | None,
        world: World,
        log: RunLogger,
        stop_signal: StopSignal,
        every_minutes: float | None = None,
        stops_on_error: bool = False,
    ):
        self._saver, self._world, self._log = saver, world, log
        self._stop_signal, self._stops_on_error = stop_signal, stops_on_error
        self._every_minutes = every_minutes
        self._heartbeat = Heartbeat(world)
        self._last_time = time.monotonic()
        self._failed: Outcome | None = None
        self._last: Outcome | None = None
        self._unprinted: str | None = None  # line of a checkpoint that only the file has
        self.saves, self.is_due = saver is not None, False
        self.saved_step: int | None = None
        self.stopping: str | None = None
        self.interrupted = False

    @property
    def last_saved(self) -> str:
        """Description of the last checkpoint of this run, as part of a sentence."""
        if self._last is None:
            return "no checkpoint was saved in this run"
        return f"the last checkpoint is {self._last.path}"

    def tick(self) -> bool:
        """Exchanges stop requests between ranks, after every step and evaluated batch.

        Returns whether to stop.

        Raises:
            NonFiniteWeight: a weight that should be saved is not finite.
            CollectiveError: a save failed, with `--on_checkpoint_error stop`.
        """
        if self._saver is None:
            return False
        beat = self._heartbeat(self._status)
        if beat is not None:
            sigterm, sigint, minutes, busy = beat
            if sigterm or sigint:
                self.stopping = "SIGTERM" if sigterm else "SIGINT"
            self.is_due = minutes
            if self._saver.under_way and not busy:
                self._saver.advance()
                self._check_outcomes()
        return self.stopping is not None

    def _status(self) -> list[bool]:
        minutes = self._every_minutes
        passed_s = time.monotonic() - self._last_time
        return [
            self._stop_signal.name == "SIGTERM",
            self._stop_signal.name == "SIGINT",
            self._world.is_chief and minutes is not None and passed_s >= 60 * minutes,
            self._saver is not None and self._saver.busy,
        ]

    def reset_pace(self) -> None:
        """Adapts to a new pace of `tick` calls; all ranks call it around an evaluation."""
        self._heartbeat.restart()

    def save(
        self,
        step: int,
        weights: Sequence[Weight],
        description: Mapping[str, Any],
        state: Mapping[str, Any],
        best: bool = False,
    ) -> None:
        """Starts `Saver.save`; the checkpoint is written while training continues."""
        assert self._saver is not None
        self._saver.wait()
        self._check_outcomes()
        self._last_time = time.monotonic()
        self.is_due, self.saved_step = False, step
        self._saver.save(step, weights, description, state, best)
        self._check_outcomes()

    def drain(self) -> None:
        """Waits for the save in progress and logs its outcome, after the training has failed."""
        if self._saver is not None:
            self._saver.wait()
            with contextlib.suppress(NonFiniteWeight):
                self._log_outcomes(stop=False, continues=False)
            self._print_last()

    def finish(self, is_complete: bool = True) -> None:
        """Waits for the save in progress, at the end of the training, whether complete or not.

        Raises:
            NonFiniteWeight, CollectiveError: the last save failed (any `--on_checkpoint_error`).
        """
        if self._saver is not None:
            self._saver.wait()
            self._log_outcomes(stop=True)
            self._print_last()
            if self._failed is not None:  # no later save replaced it
                raise CollectiveError(self._failure_text(self._failed))
        self.interrupted = self.stopping is not None and not is_complete

    def _check_outcomes(self) -> None:
        self._log_outcomes(stop=self._stops_on_error)

    def _log_outcomes(self, stop: bool, continues: bool = True) -> None:
        """Logs the saves that have ended; a failed one ends the training if `stop`."""
        assert self._saver is not None
        for outcome in self._saver.outcomes():
            if outcome.fault is None:
                self._log_saved(outcome)
                if outcome.note:
                    self._log.message(f"warning: {outcome.note}")
                continue
            kind, name = outcome.fault
            if kind == "weight":
                raise NonFiniteWeight(name)
            self._failed = outcome
            if outcome.step == self.saved_step:
                self.saved_step = None
            if stop:
                raise CollectiveError(self._failure_text(outcome))
            note = ". Training continues (--on_checkpoint_error continue)" if continues else ""
            self._log.message(f"warning: {self._failure_text(outcome)}{note}")

    def _log_saved(self, outcome: Outcome) -> None:
        """Logs a checkpoint; the terminal shows the first one and those that the training waits
        for at once, and of the others the last one (`_print_last`)."""
        self._unprinted = (
            f"saved {outcome.path}: {outcome.size_bytes / 2**20:,.1f} MiB, the training "
            f"waited {outcome.wait_s:.2f} s, on the disk after {outcome.total_s:.2f} s"
        )
        self._log.record(self._unprinted)
        if self._last is None or outcome.wait_s >= _LONG_WAIT_S:
            self._print_last()
        self._last, self._failed = outcome, None

    def _print_last(self) -> None:
        if self._unprinted:
            self._log.print(self._unprinted)
        self._unprinted = None

    def _failure_text(self, outcome: Outcome) -> str:
        assert outcome.fault is not None
        error = outcome.fault[1]
        return f"the checkpoint of step {outcome.step} failed: {error}; {self.last_saved}"
