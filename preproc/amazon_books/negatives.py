"""Negative items that depend on nothing but where they stand: not on engines, threads or blocks.

A random number is a hash of its place: the seed, the user's id, the number of the event, the label
of the row, and the step, counted backwards from the target (0 is the target itself, 1 the event
right before it). Each part is folded into the hash of those before it by `split_mix.finalize`.
"""

import numpy as np

from dataloading.keys import split_mix

UNIFORM, POPULARITY = "uniform", "popularity"
NEGATIVES = (UNIFORM, POPULARITY)

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_BLOCK = 1 << 14  # numbers worked on at a time, so that they stay in the cache


def row_keys(seed: int, users: np.ndarray, events: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Returns the initial hash of each row (seed, user, number of its event, label), uint64 [n]."""
    key = _folded(np.zeros(1, np.uint64), np.array([seed], np.uint64))
    for part in (users, events, labels):
        key = _folded(key, part.astype(np.uint64))
    return key


def draw(keys: np.ndarray, steps: np.ndarray, positives: np.ndarray, num_items: int) -> np.ndarray:
    """Returns an item other than the positive one for each place, int64 [n], all equally likely.

    Args:
        keys: of the rows that the places are in, [n].
        steps: back from the target, [n].
        positives: item ids, 1 to num_items, [n].
        num_items: 2 to 2^31 - 1.
    """
    candidates = _uniform(keys, steps, num_items - 1) + 1
    return candidates + (candidates >= positives)


def draw_by_popularity(keys: np.ndarray, steps: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Returns the item of a random event, of fewer than 2^32, for each place, int64 [n].

    Items are drawn in proportion to their number of events, as NVIDIA's `sim_preprocessing.py` and
    the authors of DIEN do. As there, the positive item itself may be drawn.
    """
    return items[_uniform(keys, steps, len(items))].astype(np.int64)


def _uniform(keys: np.ndarray, steps: np.ndarray, bound: int) -> np.ndarray:
    """Returns a number in [0, bound) for each place, int64 [n]."""
    drawn, bound = np.empty(len(keys), np.int64), np.uint64(bound)
    for start in range(0, len(keys), _BLOCK):
        block = slice(start, start + _BLOCK)
        hashed = _folded(keys[block], steps[block].astype(np.uint64))
        # floor(hash * bound / 2^64); bound is below 2^32, so that no product overflows.
        low = ((hashed & _LOW) * bound) >> _HALF
        drawn[block] = ((hashed >> _HALF) * bound + low) >> _HALF
    return drawn


def _folded(key: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Hashes of parts behind what their keys already hold, uint64 [n], modulo 2^64."""
    return split_mix.finalize(key + (part + np.uint64(1)) * split_mix.INCREMENT)
