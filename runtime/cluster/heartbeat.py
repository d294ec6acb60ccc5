"""What any rank knows, told to all of them some times a minute, without a message every step."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from runtime.cluster.distributed import World

INTERVAL_S = 2.0

# Between beats: steps may become slower.
MOST_CALLS = 256


class Heartbeat:
    """A small collective every `interval_s` or so; on one process at every call.

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
        """Forgets the pace: the next calls will be slower or faster. On all ranks together."""
        self._calls = self._until_next = 1
        self._last = self._clock()

    def __call__(self, facts: Callable[[], Sequence[bool]]) -> list[bool] | None:
        """For each fact whether it holds on any rank; None between beats.

        Args:
            facts: gives what this rank knows; only asked at a beat.
        """
        self._until_next -= 1
        if self._until_next > 0:
            return None
        known = [bool(fact) for fact in facts()]
        if self._world.size == 1:
            self._until_next = 1
            return known
        now = self._clock()
        pace = self._calls / max(now - self._last, 1e-6)  # calls a second
        wanted = min(max(1, int(pace * self._interval_s)), 4 * self._calls, MOST_CALLS)
        sent = np.array([wanted, *known], np.int64)
        agreed = np.asarray(self._world.all_reduce([sent], "max", "heartbeat")[0])
        self._calls = self._until_next = int(agreed[0])
        self._last = self._clock()
        return [bool(value) for value in agreed[1:]]


class StragglerBarrier:
    """Ranks that do unequal work, of which none may seem lost to the others meanwhile.

    Collectives end a rank that waits longer than --rank_timeout_s. So ranks that still work look in
    about once a second, and those that are done wait for that, look by look.

        with StragglerBarrier(world, "reading") as meeting:
            for ...:                     # as much as this rank has to do
                work()
                meeting.keepalive()

    Leaving the block waits for all ranks, after an exception too.

    Args:
        world: the ranks; all make one meeting of this name.
        name: of the collective.
    """

    def __init__(self, world: World, name: str, interval_s: float = 1.0):
        self._world, self._name, self._interval_s = world, name, interval_s
        self._last = time.monotonic()

    def keepalive(self) -> None:
        """To be called often; looks in when it is time."""
        if self._world.size > 1 and time.monotonic() - self._last > self._interval_s:
            self._look_in(busy=True)
            self._last = time.monotonic()

    def _look_in(self, busy: bool) -> bool:
        sent = np.array([busy], np.int32)
        return bool(np.asarray(self._world.all_reduce([sent], "max", self._name)[0])[0])

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self._world.size > 1:
            while self._look_in(busy=False):
                continue
