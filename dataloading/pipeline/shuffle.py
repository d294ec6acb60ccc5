"""Order of the samples of an epoch, and the share of a rank. NumPy only."""

import functools

import numpy as np


class FileOrder:
    """Samples as they are stored, in every epoch."""

    def samples(self, epoch: int, start: int, stop: int) -> range:
        """Returns the samples at the positions `start` to `stop - 1` of an epoch."""
        return range(start, stop)


class WindowedOrder:
    """A new order in each epoch, of which a window at a time is computed, and three are kept.

    A subclass has `_permute_units(epoch)`, whose last result is the position at which each window
    begins, and `_permute_window(epoch, window)`, the samples of a window. `_units` has the results
    of the former, of the last two epochs.
    """

    def __init__(self, seed: int):
        self._seed = seed
        self._units = functools.lru_cache(maxsize=2)(self._permute_units)
        self._window = functools.lru_cache(maxsize=3)(self._permute_window)

    def samples(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """Returns the samples (int64) at the positions `start` to `stop - 1` of an epoch."""
        pieces = [np.empty(0, np.int64)]
        while start < stop:
            begins = self._units(epoch)[-1]
            window = int(np.searchsorted(begins, start, side="right")) - 1
            begin = int(begins[window])
            pieces.append(self._window(epoch, window)[start - begin : stop - begin])
            start += len(pieces[-1])
        return np.concatenate(pieces)


class BlockShuffle(WindowedOrder):
    """A new order in each epoch that needs neither all samples in memory nor random single reads.

    Blocks of `block_samples` neighboring samples are permuted; then the samples within each window
    of `window_samples`, a whole number of permuted blocks, are permuted. The order is a function of
    (seed, epoch) alone: batch size and start do not change it. Up to `window_samples` samples are
    shuffled fully; of larger data a window mixes blocks from anywhere. Memory: 8 bytes per sample
    of the windows in use, at most three of them.
    """

    def __init__(self, num_samples: int, seed: int, block_samples: int, window_samples: int):
        super().__init__(seed)
        self._num_samples, self._block_samples = num_samples, block_samples
        self._blocks_per_window = window_samples // block_samples
        self._num_blocks = -(-num_samples // block_samples)

    def _permute_units(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the blocks of an epoch in order, and the position at which each window begins."""
        blocks = np.random.default_rng([self._seed, epoch, 0]).permutation(self._num_blocks)
        # The last block of the data may be short.
        sizes = np.minimum(self._block_samples, self._num_samples - blocks * self._block_samples)
        return blocks, (np.cumsum(sizes) - sizes)[:: self._blocks_per_window]

    def _permute_window(self, epoch: int, window: int) -> np.ndarray:
        first, last = (number * self._blocks_per_window for number in (window, window + 1))
        blocks = self._units(epoch)[0][first:last]
        rows = (blocks[:, None] * self._block_samples + np.arange(self._block_samples)).ravel()
        rows = rows[rows < self._num_samples]
        np.random.default_rng([self._seed, epoch, 1, window]).shuffle(rows)
        return rows


class GroupOrder(WindowedOrder):
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
        super().__init__(seed)
        order = np.argsort(groups, kind="stable")
        self._by_group = order if len(groups) > 2**31 else order.astype(np.int32)
        ascending = groups[order]
        is_first = np.diff(ascending, prepend=ascending[:1] - 1) != 0
        is_first |= ascending < first_id
        self._begins = np.append(np.flatnonzero(is_first), len(groups))  # in _by_group
        self._window_samples = window_samples

    def _permute_units(self, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the groups of an epoch in order, and for each window the number of its first
        group and the position of its first sample."""
        groups = np.random.default_rng([self._seed, epoch, 2]).permutation(len(self._begins) - 1)
        sizes = np.diff(self._begins)[groups]
        positions = np.cumsum(sizes) - sizes
        first = np.flatnonzero(np.diff(positions // self._window_samples, prepend=-1))
        return groups, np.append(first, len(groups)), positions[first]

    def _permute_window(self, epoch: int, window: int) -> np.ndarray:
        groups, first, _ = self._units(epoch)
        groups = groups[first[window] : first[window + 1]]
        sizes = self._begins[groups + 1] - self._begins[groups]
        ends = np.cumsum(sizes)
        places = np.arange(ends[-1]) + np.repeat(self._begins[groups] - (ends - sizes), sizes)
        rng = np.random.default_rng([self._seed, epoch, 3, window])
        within = np.lexsort((rng.random(len(places)), np.repeat(np.arange(len(groups)), sizes)))
        return self._by_group[places[within]].astype(np.int64)


class ShiftedOrder:
    """An order of the samples from number `first` on, of which `order` counts from 0."""

    def __init__(self, order: FileOrder | BlockShuffle, first: int):
        self._order, self._first = order, first

    def samples(self, epoch: int, start: int, stop: int) -> range | np.ndarray:
        """Returns the samples at the positions `start` to `stop - 1` of an epoch."""
        samples = self._order.samples(epoch, start, stop)
        if isinstance(samples, range):
            return range(samples.start + self._first, samples.stop + self._first)
        return samples + self._first


class RepeatedOrder:
    """The orders of `passes` epochs of `num_samples` samples, one after the other, as one epoch.

    With `redraws`, sample i of pass p over the data is number p * num_samples + i: a sample of its
    own, for readers that draw a part of a sample by its number.
    """

    def __init__(
        self, order: FileOrder | BlockShuffle, num_samples: int, passes: int, redraws: bool = False
    ):
        self._order, self._num_samples = order, num_samples
        self._passes, self._redraws = passes, redraws

    def samples(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """Returns the samples (int64) at the positions `start` to `stop - 1` of an epoch."""
        pieces = [np.empty(0, np.int64)]
        while start < stop:
            number, begin = divmod(start, self._num_samples)
            end = min(self._num_samples, begin + stop - start)
            number += epoch * self._passes
            piece = np.asarray(self._order.samples(number, begin, end), np.int64)
            pieces.append(piece + self._redraws * number * self._num_samples)
            start += end - begin
        return np.concatenate(pieces)


def check_shares(batch_size: int, rank: int, world_size: int) -> None:
    """Raises ValueError for a global batch that ranks cannot share."""
    if not 0 <= rank < world_size:
        raise ValueError(f"rank is {rank}; expected 0 to world_size - 1 = {world_size - 1}")
    if batch_size < world_size:
        raise ValueError(
            f"batch_size {batch_size} is the global batch, of which each of {world_size} ranks "
            f"gets a share; choose {world_size} or more"
        )


def share_of_rank(num_samples: int, rank: int, world_size: int) -> tuple[int, int, int]:
    """Returns a rank's contiguous share of a global batch of `num_samples` samples.

    Returns:
        (first sample, sample after the last one, length after padding). Shares differ by at most
        one sample; the length after padding is the same on all ranks.
    """
    base, longer = divmod(num_samples, world_size)
    begin = rank * base + min(rank, longer)
    end = begin + base + (1 if rank < longer else 0)
    return begin, end, base + (1 if longer else 0)


def padded_shares(num_samples: int, world_size: int) -> np.ndarray:
    """Returns the samples of a global batch rank by rank, int64 `[length * world_size]`.

    Rank r's share begins at `r * length`, see `share_of_rank`; padding is sample 0.
    """
    index = np.zeros((world_size, -(-num_samples // world_size)), np.int64)
    for rank in range(world_size):
        begin, end, _ = share_of_rank(num_samples, rank, world_size)
        index[rank, : end - begin] = np.arange(begin, end)
    return index.ravel()
