"""Policy of a training's checkpoints: the steps that are saved, and saves that failed."""

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


class CheckpointPolicy:
    """Saves every N steps or minutes, at the end, and when a signal requests a stop.

    All ranks make the same calls, and all decisions are equal on all ranks.

    Args:
        saver: writes the checkpoints; None: nothing is saved and no stop is requested.
        every_steps, every_minutes: time between checkpoints; None: not by this measure.
        stops_on_error: whether a failed save ends the training.

    Attributes:
        stopping: name of the signal that some rank received; None if no stop is requested.
        interrupted: whether the training ended because of it, before all work was done.
    """

    def __init__(
        self,
        saver: Saver | None,
        world: World,
        log: RunLogger,
        stop_signal: StopSignal,
        every_steps: int | None = None,
        every_minutes: float | None = None,
        stops_on_error: bool = False,
    ):
        self._saver, self._world, self._log = saver, world, log
        self._stop_signal, self._stops_on_error = stop_signal, stops_on_error
        self._every_steps, self._every_minutes = every_steps, every_minutes
        self._heartbeat = Heartbeat(world)
        self._minutes_due = False
        self._last_time = time.monotonic()
        self._saved_step: int | None = None
        self._failed: Outcome | None = None
        self._last: Outcome | None = None
        self.stopping: str | None = None
        self.interrupted = False

    @property
    def last_saved(self) -> str:
        """Description of the last checkpoint of this run, as part of a sentence."""
        if self._last is None:
            return "no checkpoint was saved in this run"
        return f"the last checkpoint is {self._last.path}"

    def resume(self, step: int) -> None:
        """Records that the newest checkpoint is of this step, which need not be saved again."""
        self._saved_step = step

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
            self._minutes_due = minutes
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

    def due(self, step: int, last: bool) -> bool:
        """Returns whether to save after `step` steps; `last` requires it in any case."""
        if self._saver is None or self._saved_step == step:
            return False
        regularly = self._every_steps is not None and step % self._every_steps == 0
        return bool(regularly or self._minutes_due or self.stopping or last)

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
        self._minutes_due = False
        self._saved_step = step
        self._saver.save(step, weights, description, state, best)
        self._check_outcomes()

    def drain(self) -> None:
        """Waits for the save in progress and logs its outcome, after the training has failed."""
        if self._saver is not None:
            self._saver.wait()
            with contextlib.suppress(NonFiniteWeight):
                self._log_outcomes(stop=False, continues=False)

    def finish(self, is_complete: bool = True) -> None:
        """Waits for the save in progress, at the end of the training, whether complete or not.

        Raises:
            NonFiniteWeight, CollectiveError: the last save failed (any `--on_checkpoint_error`).
        """
        if self._saver is not None:
            self._saver.wait()
            self._log_outcomes(stop=True)
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
                self._last, self._failed = outcome, None
                self._log.message(
                    f"saved {outcome.path}: {outcome.size_bytes / 2**20:,.1f} MiB, the training "
                    f"waited {outcome.wait_s:.2f} s, on the disk after {outcome.total_s:.2f} s"
                )
                if outcome.note:
                    self._log.message(f"warning: {outcome.note}")
                continue
            kind, name = outcome.fault
            if kind == "weight":
                raise NonFiniteWeight(name)
            self._failed = outcome
            if outcome.step == self._saved_step:
                self._saved_step = None
            if stop:
                raise CollectiveError(self._failure_text(outcome))
            note = ". Training continues (--on_checkpoint_error continue)" if continues else ""
            self._log.message(f"warning: {self._failure_text(outcome)}{note}")

    def _failure_text(self, outcome: Outcome) -> str:
        assert outcome.fault is not None
        error = outcome.fault[1]
        return f"the checkpoint of step {outcome.step} failed: {error}; {self.last_saved}"
