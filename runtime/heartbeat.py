"""What any rank knows, told to all of them some times a minute, without a message every step."""

import time
from collections.abc import Callable, Sequence

from runtime.distributed import World

INTERVAL_S = 2.0


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
        import tensorflow as tf

        now = self._clock()
        pace = self._calls / max(now - self._last, 1e-6)  # calls a second
        wanted = min(max(1, int(pace * self._interval_s)), 4 * self._calls)
        sent = tf.constant([wanted, *known], tf.int64)
        (agreed,) = self._world.all_reduce([sent], "max", "heartbeat")
        self._calls = self._until_next = int(agreed[0])
        self._last = self._clock()
        return [bool(value) for value in agreed[1:].numpy()]
