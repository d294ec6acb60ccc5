"""How often each id of a column occurs, in fixed memory for any cardinality and number of rows.

An `IdCount` is given all ids of the column, a block at a time. Where there are more ids than it can
count at once, it counts the smallest ones, and says where a further pass over the data begins. So
passes are few for ids that are dense (a count for each id that could occur) as well as for few rows
of a large cardinality (a count for each id that does occur).
"""

import math
from dataclasses import dataclass, field

import numpy as np

_DENSE_IDS = 1 << 24  # counted in a pass, where each id has a place: 128 MiB
_SPARSE_IDS = 1 << 22  # where only those that occur have one, of 32 bytes while blocks are merged
_SMALL_CARDINALITY = 1 << 17  # below it, counting into an array of its size beats sorting
_TOP = 5
BUDGET_BYTES = 8 * _DENSE_IDS  # what the counts of one pass may need together


@dataclass
class IdFacts:
    """A column of ids. top: (id, share of all values) of the most frequent ids in range."""

    feature: str
    cardinality: int
    num_used: int = 0
    top: list[tuple[int, float]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class IdCount:
    """Counts the ids of a feature in one or more passes over its values.

    Args:
        num_values: how many values there are, or more; it decides how they are counted.

    Attributes:
        size_bytes: memory that a pass needs at most.
        facts: complete when `end_pass` has returned True.
    """

    def __init__(self, feature: str, cardinality: int, num_values: int):
        self.facts = IdFacts(feature, cardinality)
        self._first, self._num_values, self._num_outside = 0, 0, 0
        self._candidates: list[tuple[int, int]] = []
        ways = []
        for kind, most, at_once, place_bytes in (
            (_DenseCounts, cardinality, _DENSE_IDS, 8),
            (_SparseCounts, max(1, min(num_values, cardinality)), _SPARSE_IDS, 32),
        ):
            ways.append((math.ceil(most / at_once), min(most, at_once) * place_bytes, kind))
        _, self.size_bytes, self._kind = min(ways, key=lambda way: way[:2])
        self._counts = None

    def add(self, ids: np.ndarray) -> None:
        """Takes in ids `[n]`."""
        if self._counts is None:
            self._counts = self._kind(self._first, self.facts.cardinality)
        inside = ids
        if ids.size and (ids.min() < 0 or ids.max() >= self.facts.cardinality):
            inside = ids[(ids >= 0) & (ids < self.facts.cardinality)]
        if self._first == 0:
            self._num_values += ids.size
            self._num_outside += ids.size - inside.size
        self._counts.add(inside)

    def end_pass(self) -> bool:
        """To be called behind the last block. Returns whether all ids are counted; if not, every
        value has to be added anew."""
        counts, self._counts = self._counts, None
        if counts is not None:
            ids, times = counts.found()
            self.facts.num_used += len(ids)
            self._candidates += [(-int(times[i]), int(ids[i])) for i in _most_frequent(times)]
            if counts.next_id is not None:
                self._first = counts.next_id
                return False
        facts = self.facts
        top = sorted(self._candidates)[:_TOP]
        facts.top = [(i, -count / self._num_values) for count, i in top]
        if self._num_outside:
            facts.faults.append(
                f"feature '{facts.feature}': {self._num_outside} ids outside of "
                f"[0, {facts.cardinality})"
            )
        return True


class _DenseCounts:
    """A place for each of the ids from `first` on, up to `_DENSE_IDS` of them.

    Attributes:
        next_id: the smallest id behind these that was added; None where there is none.
    """

    def __init__(self, first: int, cardinality: int):
        self.next_id: int | None = None
        self._first = first
        self._places = np.zeros(min(_DENSE_IDS, cardinality - first), np.int64)
        self._is_all = first + len(self._places) == cardinality

    def add(self, ids: np.ndarray) -> None:
        if self._first:
            ids = ids[ids >= self._first]
        if not self._is_all:
            behind = ids >= self._first + len(self._places)
            if behind.any():
                self.next_id = _smaller(self.next_id, int(ids[behind].min()))
                ids = ids[~behind]
        if len(self._places) <= _SMALL_CARDINALITY:
            places = ids.astype(np.intp) - self._first
            self._places += np.bincount(places, minlength=len(self._places))
        else:
            found, times = np.unique(ids, return_counts=True)
            self._places[found.astype(np.intp) - self._first] += times

    def found(self) -> tuple[np.ndarray, np.ndarray]:
        """The ids that occur, ascending, and how often."""
        places = np.flatnonzero(self._places)
        return places + self._first, self._places[places]


class _SparseCounts:
    """Those ids from `first` on that occur, the smallest `_SPARSE_IDS` of them.

    Attributes:
        next_id: the smallest id that is not among them; None where all are.
    """

    def __init__(self, first: int, cardinality: int):
        self.next_id: int | None = None
        self._first = first
        nothing = np.empty(0, np.int64)
        self._merged, self._waiting, self._num_waiting = (nothing, nothing), [], 0

    def add(self, ids: np.ndarray) -> None:
        if self._first:
            ids = ids[ids >= self._first]
        if self.next_id is not None:
            ids = ids[ids < self.next_id]
        found, times = np.unique(ids, return_counts=True)
        self._waiting.append((found.astype(np.int64), times.astype(np.int64)))
        self._num_waiting += len(found)
        # Merging goes through all ids that were found, so it waits for as many new ones.
        if self._num_waiting > len(self._merged[0]):
            self._merge()

    def _merge(self) -> None:
        pieces, self._waiting, self._num_waiting = [self._merged, *self._waiting], [], 0
        ids, times = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
        order = np.argsort(ids, kind="stable")  # which merges pieces that are sorted
        ids, times = ids[order], times[order]
        starts = np.flatnonzero(np.diff(ids, prepend=-1))
        ids = ids[starts]
        times = np.add.reduceat(times, starts) if len(starts) else times
        if len(ids) > _SPARSE_IDS:
            self.next_id = _smaller(self.next_id, int(ids[_SPARSE_IDS]))
            ids, times = ids[:_SPARSE_IDS].copy(), times[:_SPARSE_IDS].copy()
        self._merged = ids, times

    def found(self) -> tuple[np.ndarray, np.ndarray]:
        """The ids that occur, ascending, and how often."""
        self._merge()
        return self._merged


def _smaller(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)


def _most_frequent(times: np.ndarray) -> np.ndarray:
    """The places of the `_TOP` largest numbers, all 1 or more; of equal ones, the first."""
    least = 1
    if len(times) > _TOP:
        least = np.partition(times, -_TOP)[-_TOP]
    above = np.flatnonzero(times > least)
    equal = np.flatnonzero(times == least)[: max(0, _TOP - len(above))]
    return np.union1d(above, equal)
