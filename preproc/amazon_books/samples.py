"""Samples: histories from a window that moves over a user's events.

Event i of a user, counted from 0, with at least one earlier event is a pair of rows: label 1 with
the event's item as target, then label 0 with a negative item. The history is what came before, as
much of it as fits, right-aligned, zeros in front. A user's last event is for the test, the one
before it for validation (if requested), all others are for training. Rows are in the order of
users, events, label 1 before label 0.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dataloading.spec.feature_spec import TEST, TRAIN, VALIDATION
from preproc.amazon_books.engines.interface import NumberedLog, running_total
from preproc.amazon_books.negatives import (
    POPULARITY,
    UNIFORM,
    draw,
    draw_by_popularity,
    row_keys,
)

# What a split takes of memory for each user, with the log's numbers of events: these, where users'
# events and rows begin, and what is needed to find out the last.
BYTES_PER_USER = 6 * 8


@dataclass(frozen=True)
class SampleBlock:
    """A run of a split's rows; everything is int64."""

    label: np.ndarray
    user: list[np.ndarray]  # the features of users, the id first: a list of [n]
    # the features of the items that are asked about, the id first: a list of [n]
    target: list[np.ndarray]
    # positive, negative: those of the histories, a list of [n, max_history]
    positive: list[np.ndarray]
    negative: list[np.ndarray]


@dataclass(frozen=True)
class SampleSplit:
    """The rows of one split, by number.

    Raises:
        ValueError: a single item occurs.
    """

    name: str  # TRAIN, VALIDATION or TEST
    log: NumberedLog
    with_validation: bool  # whether the event before the last is for validation
    max_history: int  # length of a history
    seed: int  # of the negatives
    negatives: str = UNIFORM  # one of all other items; POPULARITY: the item of one of all events
    min_training_history: int = 1  # events before each training sample, at least

    def __post_init__(self):
        if self.log.num_items < 2:
            raise ValueError(
                "one item occurs in all events: there is no other one to draw negatives from"
            )

    @functools.cached_property
    def items(self) -> np.memmap:
        """Items of all events of the log, int32, in a mapped file."""
        return np.memmap(self.log.events, np.int32, "r")

    @functools.cached_property
    def _pair_starts(self) -> np.ndarray:
        first, stop = self._events(self.log.num_events)
        num_pairs = stop - first
        return running_total(np.maximum(num_pairs, 0, out=num_pairs))

    @property
    def num_rows(self) -> int:
        return 2 * int(self._pair_starts[-1])

    def rows(self, start: int, stop: int) -> SampleBlock:
        """Returns rows [start, stop), both even and not beyond num_rows; no loop over rows."""
        pairs = np.arange(start // 2, stop // 2)
        users = np.searchsorted(self._pair_starts, pairs, side="right") - 1  # from 0
        first, _ = self._events(self.log.num_events[users])
        events = first + pairs - self._pair_starts[users]
        places = self.log.user_starts[users] + events
        lengths = np.minimum(events, self.max_history)
        targets = self.items[places].astype(np.int64)
        users, events = (np.repeat(each, 2) for each in (users + 1, events))
        label = np.tile(np.array([1, 0]), len(pairs))
        keys = row_keys(self.seed, users, events, label)
        missed = self._drawn(keys[1::2], np.zeros(len(pairs), np.int64), targets)
        history = self._histories(places, lengths)
        # Both rows of a pair have the same history, and negatives of their own.
        negative = self._negative_histories(
            keys, np.repeat(lengths, 2), np.repeat(history, 2, axis=0)
        )
        return SampleBlock(
            label=label,
            user=[users, *(ids[users].astype(np.int64) for ids in self.log.user_features)],
            target=self._with_features(np.stack([targets, missed], axis=1).reshape(-1)),
            positive=[np.repeat(each, 2, axis=0) for each in self._with_features(history)],
            negative=self._with_features(negative),
        )

    def _with_features(self, items: np.ndarray) -> list[np.ndarray]:
        """Item ids and their features, int64 in their shape; all of item 0 is 0."""
        return [items, *(ids[items].astype(np.int64) for ids in self.log.item_features)]

    def _histories(self, places: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Returns the items before each place of the log, zeros before `lengths` of them."""
        steps = np.arange(self.max_history, 0, -1)
        # Where a history does not reach, any place will do.
        items = self.items[np.maximum(places[:, None] - steps, 0)].astype(np.int64)
        items[steps > lengths[:, None]] = 0
        return items

    def _negative_histories(
        self, keys: np.ndarray, lengths: np.ndarray, positive: np.ndarray
    ) -> np.ndarray:
        """Returns negative items in the places that have a positive one, [rows, max_history]."""
        # Only these places are worked on, row by row: most histories are short.
        ends = np.cumsum(lengths)
        steps = np.repeat(ends, lengths) - np.arange(lengths.sum())  # back from the target
        row_ends = np.arange(1, len(keys) + 1) * self.max_history
        places = np.repeat(row_ends, lengths) - steps
        negative = np.zeros(positive.shape, np.int64)
        negative.reshape(-1)[places] = self._drawn(
            np.repeat(keys, lengths), steps, positive.reshape(-1)[places]
        )
        return negative

    def _events(self, num_events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the first of each user's events in the split and their end, not before it."""
        last = num_events - 1
        if self.name == TEST:
            return last, num_events
        if self.name == VALIDATION:
            return np.maximum(last - 1, 1), last
        assert self.name == TRAIN, self.name
        return np.broadcast_to(self.min_training_history, last.shape), last - self.with_validation

    def _drawn(self, keys: np.ndarray, steps: np.ndarray, positives: np.ndarray) -> np.ndarray:
        if self.negatives == POPULARITY:
            return draw_by_popularity(keys, steps, self.items)
        return draw(keys, steps, positives, self.log.num_items)


def splits(
    log: NumberedLog, with_validation: bool, *arguments, **keywords
) -> Iterator[SampleSplit]:
    """Yields all splits, training first, each made when it is needed; see `SampleSplit`."""
    for name in (TRAIN, VALIDATION, TEST) if with_validation else (TRAIN, TEST):
        yield SampleSplit(name, log, with_validation, *arguments, **keywords)
