"""The order in which the training rows are stored: seeded and random, or as in the log.

A random order is a function from row numbers to positions: nothing is drawn.
"""

from dataclasses import dataclass

import numpy as np

from dataloading.keys import split_mix
from dataloading.spec.feature_spec import TRAIN
from preproc.criteo.output.splits import Split

_CHUNK_ROWS = 1 << 14  # a chunk's intermediate results stay in the processor's cache
_ROUNDS = 6  # with 4, rows a whole width apart are not quite independent


@dataclass(frozen=True)
class OutputOrder:
    """Order in which the rows of the log are stored."""

    # pairs (start, stop) of row numbers; the rows of each run are permuted among themselves
    runs: tuple[tuple[int, int], ...] = ()
    seed: int = 0

    @property
    def is_sequential(self) -> bool:
        return not self.runs

    def positions(self, rows: np.ndarray) -> np.ndarray:
        """Row numbers [n] -> their positions in the log as it is stored, int64 [n]."""
        if self.is_sequential:
            return rows
        positions = np.array(rows, np.int64)
        for number, (start, stop) in enumerate(self.runs):
            inside = np.flatnonzero((rows >= start) & (rows < stop))
            if len(inside):
                place = permuted(positions[inside] - start, stop - start, (self.seed, number))
                positions[inside] = start + place
        return positions


INPUT_ORDER = OutputOrder()


def output_order(
    ordering: str, seed: int, splits: tuple[Split, ...], rows_per_day: list[int]
) -> OutputOrder:
    """The order that `--output_ordering` names, of the training rows; others keep input order."""
    train = next((split for split in splits if split.name == TRAIN), None)
    if train is None or ordering in ("input", "any"):  # the order that costs least
        return INPUT_ORDER
    if ordering == "total_random":
        return OutputOrder(((train.start, train.stop),), seed)
    ends = np.cumsum(rows_per_day).tolist()
    days = zip([0, *ends[:-1]], ends, strict=True)
    runs = tuple((start, min(stop, train.stop)) for start, stop in days if start < train.stop)
    return OutputOrder(tuple(run for run in runs if run[0] < run[1]), seed)


def permuted(values: np.ndarray, size: int, key: tuple[int, int]) -> np.ndarray:
    """A keyed permutation of 0 .. size - 1, for the values [n] alone; int64 [n].

    A Feistel network over pairs (i, j) of numbers below about the square root of `size`, with
    addition modulo those (the generalised one of Black and Rogaway, "Ciphers with arbitrary finite
    domains", 2002); a result outside of the range goes round again until it is inside.
    """
    width = max(1, round(size**0.5))
    height = -(-size // width)
    keys = np.random.SeedSequence(key).generate_state(_ROUNDS, np.uint64)
    result = np.array(values, np.int64)
    for start in range(0, len(result), _CHUNK_ROWS):
        chunk = result[start : start + _CHUNK_ROWS]
        outside = slice(None)
        while len(chunk[outside]):
            moved = _network(chunk[outside], width, height, keys)
            chunk[outside] = moved
            outside = np.flatnonzero(chunk >= size)
    return result


def _network(pairs: np.ndarray, width: int, height: int, keys: np.ndarray) -> np.ndarray:
    """One pass of the Feistel network over pairs left * width + right."""
    left = pairs // width  # below height
    right = pairs - left * width
    for turn in range(0, _ROUNDS, 2):
        _move(left, _hash_below(right, keys[turn], height), height)
        _move(right, _hash_below(left, keys[turn + 1], width), width)
    return left * width + right


def _move(values: np.ndarray, distance: np.ndarray, limit: int) -> None:
    """values = (values + distance) mod limit, of numbers below it."""
    values += distance
    values -= limit
    values += (values >> 63) & limit  # a negative number, shifted, is all ones


def _hash_below(values: np.ndarray, key: np.uint64, limit: int) -> np.ndarray:
    """Returns pseudo-random numbers in [0, limit)."""
    mixed = split_mix.finalize(values.view(np.uint64) + key)
    mixed >>= np.uint64(32)
    mixed *= np.uint64(limit)
    mixed >>= np.uint64(32)
    return mixed.view(np.int64)
