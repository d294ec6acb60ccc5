"""When a training saves, and what it does about a save that failed."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from config import CheckpointConfig
from runtime.checkpoint.folder import Folder
from runtime.checkpoint.saver import Outcome, Saver
from runtime.checkpoint.weight import NonFiniteWeight, Weight
from runtime.cluster.distributed import CollectiveError, World
from runtime.cluster.elastic import Membership
from runtime.cluster.heartbeat import Heartbeat
from runtime.cluster.signals import StopSignal

HOSTS_CHANGED = "horovodrun: hosts came or went"


class Keeper:
    """Saves every so many steps or minutes, at the end, and when a signal or a change of hosts asks
    to stop.

    All ranks make the same calls; what it decides is the same on all of them. Without a folder it
    decides nothing and saves nothing.

    Args:
      options: the flags.
      folder: where to, taken by rank 0; None without --save_checkpoint_path.
      world: the ranks.
      log: has `message`.
      signals: SIGTERM and SIGINT of this process.
      members: whether hosts came or went.
      saved_step: the step that the newest checkpoint there is of.

    Attributes:
      stopping: name of the signal that some rank got, or a change of hosts; None as long as there
        was none.
    """

    def __init__(
        self,
        options: CheckpointConfig,
        folder: Folder | None,
        world: World,
        log,
        signals: StopSignal,
        members: Membership,
        saved_step: int | None = None,
    ):
        self._options, self._world, self._log, self._signals = options, world, log, signals
        self._members = members
        self._saver = None
        if folder is not None:
            memory_bytes = options.checkpoint_memory_mb * 2**20
            self._saver = Saver(folder, world, options.keep_checkpoints, memory_bytes)
        self._heartbeat = Heartbeat(world)
        self._minutes_due = False
        self._last_time = time.monotonic()
        self._begun_step = saved_step
        self._failed: Outcome | None = None
        self._last: Outcome | None = None
        self.stopping: str | None = None

    @property
    def last_saved(self) -> str:
        """Which checkpoint there is, for a sentence."""
        if self._last is None:
            return "no checkpoint was saved in this run"
        return f"the last checkpoint is {self._last.path}"

    def tick(self) -> bool:
        """To be called after every step, and every batch of an evaluation.

        Returns:
          Whether to stop.

        Raises:
          NonFiniteWeight: a weight that should be saved is not finite.
          CollectiveError: a save failed, with --on_checkpoint_error stop.
        """
        if self._saver is None:
            return False
        beat = self._heartbeat(self._facts)
        if beat is not None:
            sigterm, sigint, hosts, minutes, busy = beat
            if sigterm or sigint or hosts:
                self.stopping = "SIGTERM" if sigterm else "SIGINT" if sigint else HOSTS_CHANGED
            self._minutes_due = minutes
            if self._saver.under_way and not busy:
                self._saver.advance()
                self._look(self._options.on_checkpoint_error == "stop")
        return self.stopping is not None

    def _facts(self) -> list[bool]:
        every = self._options.checkpoint_every_minutes
        passed = time.monotonic() - self._last_time
        return [
            self._signals.name == "SIGTERM",
            self._signals.name == "SIGINT",
            self._members.changed,
            self._world.is_chief and every is not None and passed >= 60 * every,
            self._saver.busy,
        ]

    def change_of_pace(self) -> None:
        """To be called by all ranks where an evaluation begins and ends."""
        self._heartbeat.restart()

    def due(self, step: int, last: bool) -> bool:
        """Whether to save after this step."""
        if self._saver is None or self._begun_step == step:
            return False
        every = self._options.checkpoint_every
        regularly = every is not None and step % every == 0
        return bool(regularly or self._minutes_due or self.stopping or last)

    def save(
        self,
        step: int,
        weights: Sequence[Weight],
        description: Mapping[str, Any],
        state: Mapping[str, Any],
        best: bool = False,
    ) -> None:
        """Begins a checkpoint, perhaps the best so far; raises what `tick` raises."""
        self._saver.wait()
        self._look(self._options.on_checkpoint_error == "stop")
        self._last_time = time.monotonic()
        self._minutes_due = False
        self._begun_step = step
        self._saver.save(step, weights, description, state, best)
        self._look(self._options.on_checkpoint_error == "stop")

    def settle(self) -> None:
        """Waits for what is under way and notes what became of it: the training has failed."""
        if self._saver is not None:
            self._saver.wait()
            with contextlib.suppress(NonFiniteWeight):
                self._look(stop=False, failed=True)

    def finish(self) -> None:
        """Waits for what is under way.

        Raises:
          NonFiniteWeight, CollectiveError: the last save failed, with any --on_checkpoint_error.
        """
        if self._saver is not None:
            self._saver.wait()
            self._look(stop=True)
            if self._failed is not None:  # said before; nothing was saved since
                raise CollectiveError(self._sentence(self._failed))

    def _look(self, stop: bool, failed: bool = False) -> None:
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
            if outcome.step == self._begun_step:
                self._begun_step = None
            text = self._sentence(outcome)
            if stop:
                raise CollectiveError(text)
            why = "" if failed else ". Training goes on (--on_checkpoint_error continue)"
            self._log.message(f"warning: {text}{why}")

    def _sentence(self, outcome: Outcome) -> str:
        text = outcome.fault[1]
        return f"the checkpoint of step {outcome.step} failed: {text}; {self.last_saved}"
