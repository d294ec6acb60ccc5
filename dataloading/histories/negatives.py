"""Negative items that depend on nothing but where they stand: not on batches or ranks.

A random number is a hash of its place: the seed, the user's id, the number of earlier events, the
label of the sample, and the step, counted backwards from the target (0 is the target itself, 1 the
event right before it). Each part is folded into the hash of those before it by
`split_mix.finalize`. Each pass of a training over the data has a seed of its own, that of the first
pass is the seed of the data set.
"""

from dataclasses import dataclass

import numpy as np

from dataloading.keys import split_mix
from dataloading.pipeline import gather
from dataloading.pipeline.gather import aligned
from dataloading.spec.feature_spec import FeatureSpec

METADATA = "negatives"  # key of the metadata: {distribution, seed}
UNIFORM, POPULARITY = "uniform", "popularity"
NEGATIVES = (UNIFORM, POPULARITY)

# From one pass to the next one's seed: odd, so that the seeds of 2^64 passes differ.
_SEED_STEP = np.uint64(0xD1342543DE82EF95)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_BLOCK = 1 << 14  # numbers worked on at a time, so that they stay in the cache


@dataclass(frozen=True)
class Negatives:
    """Distribution of the negative items of a data set.

    Attributes:
        distribution: `UNIFORM` over all items but the positive one, or by `POPULARITY`: the items
            of random events, as NVIDIA's `sim_preprocessing.py` and the authors of DIEN draw them;
            as there, the positive item itself may be drawn.
        seed: below 2^64.
        num_items: item ids are 1 to this number, 2 to 2^31 - 1.
        events: items of all events, fewer than 2^32, [n].
    """

    distribution: str
    seed: int
    num_items: int
    events: np.ndarray

    @classmethod
    def from_spec(cls, spec: FeatureSpec, num_items: int, events: np.ndarray) -> "Negatives":
        """From the metadata of a data set; raises ValueError for invalid ones."""
        content = spec.metadata.get(METADATA)
        where = f"{spec.origin}: metadata: {METADATA}"
        match content:
            case {"distribution": str(distribution), "seed": int(seed)}:
                is_valid = distribution in NEGATIVES and 0 <= seed < 1 << 64
            case _:
                is_valid = False
        if not is_valid:
            raise ValueError(
                f"{where} is {content!r}; expected distribution: {' or '.join(NEGATIVES)}, and "
                "seed: an integer in [0, 2^64)"
            )
        if num_items < 2:
            raise ValueError(
                f"{where}: there is one item, and no other one to draw negatives from; expected "
                "events of two items or more"
            )
        return cls(distribution, seed, num_items, events)

    def keys(
        self, passes: np.ndarray, users: np.ndarray, events: np.ndarray, labels: np.ndarray
    ) -> np.ndarray:
        """Returns the initial hash, uint64 [n], of each sample.

        Args:
            passes: number of the pass over the data for which each sample is drawn, int64 [n].
            users, events, labels: of the samples; events: the number of earlier ones.
        """
        seeds = np.uint64(self.seed) + passes.astype(np.uint64) * _SEED_STEP
        key = _folded(np.zeros(1, np.uint64), seeds)
        for part in (users, events, labels):
            key = _folded(key, part.astype(np.uint64))
        return key

    def draw(self, keys: np.ndarray, steps: np.ndarray, positives: np.ndarray) -> np.ndarray:
        """Returns a negative item for each positive one, int64 [n], `steps` before the target."""
        if self.distribution == POPULARITY:
            return self.events[_uniform(keys, steps, len(self.events))].astype(np.int64)
        candidates = _uniform(keys, steps, self.num_items - 1) + 1
        return candidates + (candidates >= positives)

    def draw_histories(
        self, keys: np.ndarray, lengths: np.ndarray, positive: np.ndarray
    ) -> np.ndarray:
        """Returns negative items for histories, [n, steps] in the dtype of the items of events.

        Args:
            keys: of the samples, [n].
            lengths: of their histories, which are right-aligned after zeros, int64 [n].
            positive: items of the histories, [n, steps].
        """
        steps, dtype = positive.shape[1], positive.dtype
        out = aligned(positive.nbytes).view(dtype).reshape(positive.shape)
        function = gather.compiled("draw_histories")
        if function is not None and dtype == np.int32:
            num_events = len(self.events) * (self.distribution == POPULARITY)
            sizes = len(keys), steps, self.num_items
            function(keys, lengths, positive, *sizes, self.events, num_events, out)
            return out
        out[:] = 0
        # Only these places are worked on, sample by sample: most histories are short.
        is_item = np.arange(steps, 0, -1) <= lengths[:, None]
        from_target = np.repeat(np.cumsum(lengths), lengths) - np.arange(lengths.sum())
        out[is_item] = self.draw(
            np.repeat(keys, lengths), from_target, positive[is_item].astype(np.int64)
        )
        return out


def features_of_items(table: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Returns a feature of items, `table[items]`."""
    function = gather.compiled("features_of_items")
    if function is None or not table.dtype == items.dtype == np.int32:
        return table[items]
    out = aligned(items.nbytes).view(np.int32).reshape(items.shape)
    function(table, items, items.size, out)
    return out


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
