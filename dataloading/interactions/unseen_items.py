"""Items that a user never touched, drawn at random: the negatives of candidate lists.

The items that a user did not touch are numbered from 0, numbers are drawn, and each is turned into
the item that has it. So a user who touched nearly everything costs no more than others, and draws
are exactly uniform.
"""

import numpy as np

from dataloading.keys.distinct import distinct

MOST_IDS = 1 << 31  # of users and of items: ids are int32
_BLOCK_NUMBERS = 1 << 20  # drawn at a time: 8 MiB, and a few times that on the way
_BLOCK_ROWS = 1 << 13  # at a time, whose touched items are in memory
_DENSE = 2  # from 1 / _DENSE of all unseen items on, shuffling them beats drawing again


class TooFewUnseen(ValueError):
    """A user has fewer unseen items than requested; `what` has the facts, without the solution."""

    def __init__(self, user: int, touched: int, num_items: int, count: int):
        self.user, self.unseen = user, num_items - touched
        self.what = (
            f"touched {touched:,} of {num_items:,} items, so {self.unseen:,} are unseen, fewer "
            f"than the {count:,} requested negatives"
        )
        remedy = f"--valid_negative {self.unseen} or less" if self.unseen else "more items"
        super().__init__(
            f"user {user} (as numbered in the data set) {self.what}; possible solutions: {remedy}, "
            "or leave that user out of the data"
        )


def keys_of(users: np.ndarray, items: np.ndarray, num_items: int) -> np.ndarray:
    """Returns user * num_items + item, which identifies pairs: int64, of the shape of both."""
    keys = users.astype(np.int64)
    keys *= num_items
    keys += items
    return keys


def draw_unseen(
    users: np.ndarray,
    num_items: int,
    touched_keys: np.ndarray,
    count: int,
    seed,
    distinct: bool = True,
) -> np.ndarray:
    """Draws items for each row that its user did not touch, all equally likely.

    The same arguments give the same items; rows are independent, also those of one user. Memory
    in addition to the arguments and the result: about 100 MiB.

    Args:
        users: a user for each row, integers [n], in any order; may be repeated.
        num_items: items are 0 to num_items - 1; `MOST_IDS` at most.
        touched_keys: `keys_of` all touched pairs, int64 [m], ascending and each once.
        count: items for each row.
        seed: an integer, 0 or more, or several.
        distinct: whether the items of a row differ from each other.

    Returns:
        int32 [n, count], in random order.

    Raises:
        TooFewUnseen: a user has fewer than `count` unseen items, or none if they may repeat.
    """
    bounds = users.astype(np.int64) * num_items
    starts = np.searchsorted(touched_keys, bounds)
    num_touched = np.searchsorted(touched_keys, bounds + num_items) - starts
    worst = int(num_touched.argmax()) if len(users) else 0
    least = count if distinct else 1
    if len(users) and num_items - num_touched[worst] < least:
        raise TooFewUnseen(int(users[worst]), int(num_touched[worst]), num_items, least)
    random = np.random.default_rng(seed)
    drawn = np.empty((len(users), count), np.int32)
    rows = max(1, min(_BLOCK_ROWS, _BLOCK_NUMBERS // count))
    for start in range(0, len(users), rows):
        block = slice(start, start + rows)
        bounds_of_rows = num_items - num_touched[block]
        if distinct:
            numbers = _different_numbers(random, bounds_of_rows, count)
        else:
            numbers = random.integers(0, bounds_of_rows[:, None], (len(bounds_of_rows), count))
        # The row of each touched item of the block, and its number among those of the row.
        lengths = num_touched[block]
        row = np.repeat(np.arange(len(lengths)), lengths)
        nth = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        items = touched_keys[starts[block][row] + nth] - bounds[block][row]
        drawn[block] = _items(numbers, row * num_items + items - nth, num_items)
    return drawn


def draw_unseen_in_use(
    users: np.ndarray, num_items: int, touched_keys: np.ndarray, count: int, seed
) -> np.ndarray:
    """Draws as `draw_unseen`, of those items that any user touched."""
    users_of_keys, items = np.divmod(touched_keys, num_items)
    in_use = distinct(items)
    # Items are renumbered without the others, in the same order.
    keys = keys_of(users_of_keys, np.searchsorted(in_use, items), len(in_use))
    return in_use[draw_unseen(users, len(in_use), keys, count, seed)].astype(np.int32)


def _different_numbers(random: np.random.Generator, bounds: np.ndarray, count: int) -> np.ndarray:
    """Draws different numbers for each row, int64 [n, count], below its bound (count or more)."""
    numbers = np.empty((len(bounds), count), np.int64)
    dense = bounds < _DENSE * count
    if dense.any():
        most = bounds[dense].max()
        places = random.random((np.count_nonzero(dense), most))
        places[np.arange(most) >= bounds[dense][:, None]] = 2  # after all others
        numbers[dense] = np.argsort(places, axis=1)[:, :count]
    rows = np.flatnonzero(~dense)
    numbers[rows] = random.integers(0, bounds[rows, None], (len(rows), count))
    while len(rows):
        # A row's repeated numbers are drawn again. All numbers are treated equally, so that all
        # results are equally likely.
        order = np.argsort(numbers[rows], axis=1, kind="stable")
        ascending = np.take_along_axis(numbers[rows], order, axis=1)
        again, column = np.nonzero(ascending[:, 1:] == ascending[:, :-1])
        numbers[rows[again], order[again, column + 1]] = random.integers(0, bounds[rows[again]])
        rows = rows[distinct(again)]
    return numbers


def _items(numbers: np.ndarray, passed_keys: np.ndarray, num_items: int) -> np.ndarray:
    """Returns the items that have these numbers among a row's unseen ones, [n, count].

    Number u belongs to item u + t, where t touched items have u or fewer unseen ones before them.

    passed_keys: row * num_items + the unseen items before a touched one, of all touched ones of
        all rows, ascending.
    """
    first = np.arange(len(numbers))[:, None] * num_items
    passed = np.searchsorted(passed_keys, (numbers + first).ravel(), side="right")
    return numbers + passed.reshape(numbers.shape) - np.searchsorted(passed_keys, first)
