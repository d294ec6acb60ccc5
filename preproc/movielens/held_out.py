"""The last interactions of each user, taken out of a stream of all of them."""

from collections.abc import Iterable, Iterator

import numpy as np


class LastOfUsers:
    """Takes each user's last `count` interactions out of those that pass through `others`.

    num_of_users: each user's number of interactions, [users], `count` or more.

    Attributes:
        items: int32 [users, count], the last first, complete at the stream's end.
    """

    def __init__(self, num_of_users: np.ndarray, count: int):
        self.items = np.zeros((len(num_of_users), count), np.int32)
        self._ends = np.cumsum(num_of_users)
        self._count = count

    def others(
        self, interactions: Iterable[tuple[np.ndarray, np.ndarray]]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields what is not held out of users and items, [n] each, by user and time."""
        begin = 0
        for users, items in interactions:
            from_end = self._ends[users] - 1 - np.arange(begin, begin + len(users))
            is_held_out = from_end < self._count
            self.items[users[is_held_out], from_end[is_held_out]] = items[is_held_out]
            yield users[~is_held_out], items[~is_held_out]
            begin += len(users)
