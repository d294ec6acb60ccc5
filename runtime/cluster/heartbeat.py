"""Periodic all-reduce of per-rank status flags, without a message in every step."""

import time
from collections.abc import Callable, Sequence

import numpy as np
from distributed_embeddings.collectives import World

_INTERVAL_S = 2.0
_MAX_CALLS = 256  # between beats: steps may become slower


class Heartbeat:
    """A small collective about every `interval_s`; on a single process at every call.

    Ranks, which all make the same calls, count them instead of seconds so that they come to the
    same beat: each beat also agrees on the number of calls until the next one, from the last pace.
    """

    def __init__(
        self,
        world: World,
        interval_s: float = _INTERVAL_S,
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

        `facts` returns those of this rank and is only called at a beat.
        """
        self._until_next -= 1
        if self._until_next > 0:
            return None
        known = [bool(fact) for fact in facts()]
        if self._world.size == 1:
            return known
        now = self._clock()
        pace = self._calls / max(now - self._last, 1e-6)  # calls per second
        calls = min(max(1, int(pace * self._interval_s)), 4 * self._calls, _MAX_CALLS)
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

    Leaving the block waits for all ranks, after an exception too. All enter a barrier of this name.
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
