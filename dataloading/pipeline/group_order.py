"""Order of the samples of an epoch in which those of a group are neighbors. NumPy only."""

import functools

import numpy as np


class GroupOrder:
    """Groups of samples in a new order in each epoch, and the samples of each group as well.

    The order is a function of (seed, epoch) alone. Batches may cut a group. Samples without a group
    are groups of one sample.

    Memory: 8 bytes per sample (4 below 2^31 of them) and 8 per group; 16 more per group and epoch
    in use, at most two; 24 per sample of the windows in use, at most three.

    Args:
        groups: integer ids of the samples.
        first_id: samples of smaller ids have no group.
        seed: see above.
        window_samples: samples of successive groups whose order is computed at a time; a larger
            group is a window of its own.
    """

    def __init__(self, groups: np.ndarray, first_id: int, seed: int, window_samples: int):
        order = np.argsort(groups, kind="stable")
        self._by_group = order if len(groups) > 2**31 else order.astype(np.int32)
        ascending = groups[order]
        is_first = np.diff(ascending, prepend=ascending[:1] - 1) != 0
        is_first |= ascending < first_id
        self._begins = np.append(np.flatnonzero(is_first), len(groups))  # in _by_group
        self._seed, self._window_samples = seed, window_samples
        self._groups = functools.lru_cache(maxsize=2)(self._permute_groups)
        self._window = functools.lru_cache(maxsize=3)(self._permute_window)

    def samples(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """Returns the samples (int64) at the positions `start` to `stop - 1` of an epoch."""
        pieces = [np.empty(0, np.int64)]
        while start < stop:
            _, _, positions = self._groups(epoch)
            window = int(np.searchsorted(positions, start, side="right")) - 1
            begin = int(positions[window])
            pieces.append(self._window(epoch, window)[start - begin : stop - begin])
            start += len(pieces[-1])
        return np.concatenate(pieces)

    def _permute_groups(self, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the groups of an epoch in order, and for each window the number of its first
        group and the position of its first sample."""
        groups = np.random.default_rng([self._seed, epoch, 2]).permutation(len(self._begins) - 1)
        sizes = np.diff(self._begins)[groups]
        positions = np.cumsum(sizes) - sizes
        first = np.flatnonzero(np.diff(positions // self._window_samples, prepend=-1))
        return groups, np.append(first, len(groups)), positions[first]

    def _permute_window(self, epoch: int, window: int) -> np.ndarray:
        groups, first, _ = self._groups(epoch)
        groups = groups[first[window] : first[window + 1]]
        sizes = self._begins[groups + 1] - self._begins[groups]
        ends = np.cumsum(sizes)
        places = np.arange(ends[-1]) + np.repeat(self._begins[groups] - (ends - sizes), sizes)
        rng = np.random.default_rng([self._seed, epoch, 3, window])
        within = np.lexsort((rng.random(len(places)), np.repeat(np.arange(len(groups)), sizes)))
        return self._by_group[places[within]].astype(np.int64)
