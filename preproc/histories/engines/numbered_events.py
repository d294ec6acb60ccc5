"""Numbered events: what the preparation's first half hands to the second, which draws samples."""

import functools
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from preproc.checks.report import Finding


@dataclass(frozen=True)
class NumberedLog:
    """Ids instead of raw values. They start at 1 and follow the values upwards (numbers as numbers,
    text by its UTF-8 bytes); only what occurs in a kept event has one. A missing feature counts as
    a value below all others, so that it has id 1 where it occurs.
    """

    # a file of int32, the item ids of all kept events, by user id, then time, then tie order
    events: Path
    num_events: np.ndarray  # how many of these each user has, int64 [num_users], by user id from 1
    # user_features, item_features: the ids of each feature, int32 [num_users + 1] and
    # [num_items + 1]; element 0 is 0
    user_features: tuple[np.ndarray, ...]
    item_features: tuple[np.ndarray, ...]
    num_items: int  # how many items occur
    num_users_before: int  # users of the log, also those with too few events
    checks: tuple[Finding, ...] = ()
    # of each feature, as messages call it: users or items that have no value of it
    num_missing: dict[str, int] = field(default_factory=dict)
    # "user" and "item" -> Parquet file of the raw values in the order of their ids, and of their
    # kept events: columns value and count
    vocabularies: dict[str, Path] = field(default_factory=dict)

    @property
    def num_users(self) -> int:
        return len(self.num_events)

    @functools.cached_property
    def user_starts(self) -> np.ndarray:
        """First event of each user, and the end of the last one's, int64 [num_users + 1]."""
        return np.concatenate([[0], np.cumsum(self.num_events)])

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """The largest id + 1 of users, their features, items, their features."""
        return (
            self.num_users + 1,
            *(int(ids.max()) + 1 for ids in self.user_features),
            self.num_items + 1,
            *(int(ids.max()) + 1 for ids in self.item_features),
        )
