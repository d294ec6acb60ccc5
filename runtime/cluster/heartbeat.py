"""Periodic all-reduce of per-rank status flags, without a message in every step."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from runtime.cluster.distributed import World

INTERVAL_S = 2.0

# Between beats: steps may become slower.
MAX_CALLS = 256


class Heartbeat:
    """A small collective about every `interval_s`; on a single process at every call.

    Ranks count calls, not seconds, so that they come to the same beat: each beat also agrees on
    how many calls there are until the next one, from the pace of the last.

    Args:
        world: the ranks; all make the same calls.
        interval_s: seconds between beats, about.
        clock: returns seconds.
    """

    def __init__(
        self,
        world: World,
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._world, self._interval_s, self._clock = world, interval_s, clock
        self.restart()

    def restart(self) -> None:
        """Resets the pace before slower or faster calls; on all ranks together."""
        self._calls = self._until_next = 1
        self._last = self._clock()

    def __call__(self, facts: Callable[[], Sequence[bool]]) -> list[bool] | None:
        """Returns for each fact whether it holds on any rank; None between beats.

        Args:
            facts: returns this rank's facts; only called at a beat.
        """
        self._until_next -= 1
        if self._until_next > 0:
            return None
        known = [bool(fact) for fact in facts()]
        if self._world.size == 1:
            self._until_next = 1
            return known
        now = self._clock()
        pace = self._calls / max(now - self._last, 1e-6)  # calls per second
        calls = min(max(1, int(pace * self._interval_s)), 4 * self._calls, MAX_CALLS)
        sent = np.array([calls, *known], np.int64)
        agreed = np.asarray(self._world.all_reduce([sent], "max", "heartbeat")[0])
        self._calls = self._until_next = int(agreed[0])
        self._last = self._clock()
        return [bool(value) for value in agreed[1:]]


class StragglerBarrier:
    """Barrier for ranks that do unequal work for longer than --rank_timeout_s.

    Ranks that still work take part in a small collective about once per second, and so do those
    that have finished, until all have.

        with StragglerBarrier(world, "reading") as barrier:
            for ...:                     # this rank's part of the work
                work()
                barrier.keepalive()

    Leaving the block waits for all ranks, after an exception too.

    Args:
        world: the ranks; all enter a barrier of this name.
        name: of the collective.
    """

    def __init__(self, world: World, name: str, interval_s: float = 1.0):
        self._world, self._name, self._interval_s = world, name, interval_s
        self._last = time.monotonic()

    def keepalive(self) -> None:
        """Takes part in the collective when it is due; called often."""
        if self._world.size > 1 and time.monotonic() - self._last > self._interval_s:
            self._any_busy(busy=True)
            self._last = time.monotonic()

    def _any_busy(self, busy: bool) -> bool:
        sent = np.array([busy], np.int32)
        return bool(np.asarray(self._world.all_reduce([sent], "max", self._name)[0])[0])

    def __enter__(self) -> "StragglerBarrier":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._world.size > 1:
            while self._any_busy(busy=False):
                continue
