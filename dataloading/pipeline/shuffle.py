"""Order of the samples of an epoch, and the share of a rank. NumPy only."""

import functools

import numpy as np


class FileOrder:
    """Samples as they are stored, in every epoch."""

    def samples(self, epoch: int, start: int, stop: int) -> range:
        """Returns the samples at the positions `start` to `stop - 1` of an epoch."""
        return range(start, stop)


class BlockShuffle:
    """A new order in each epoch that needs neither all samples in memory nor random single reads.

    Blocks of `block_samples` neighboring samples are permuted; then the samples within each window
    of `window_samples`, a whole number of permuted blocks, are permuted. The order is a function of
    (seed, epoch) alone: batch size and start do not change it. Up to `window_samples` samples are
    shuffled fully; of larger data a window mixes blocks from anywhere. Memory: 8 bytes per sample
    of the windows in use, at most three of them.
    """

    def __init__(self, num_samples: int, seed: int, block_samples: int, window_samples: int):
        self._num_samples, self._seed = num_samples, seed
        self._block_samples = block_samples
        self._blocks_per_window = window_samples // block_samples
        self._num_blocks = -(-num_samples // block_samples)
        self._blocks = functools.lru_cache(maxsize=2)(self._permute_blocks)
        self._window = functools.lru_cache(maxsize=3)(self._permute_window)

    def samples(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """Returns the samples (int64) at the positions `start` to `stop - 1` of an epoch."""
        pieces = [np.empty(0, np.int64)]
        while start < stop:
            _, begins = self._blocks(epoch)
            window = int(np.searchsorted(begins, start, side="right")) - 1
            begin = int(begins[window])
            pieces.append(self._window(epoch, window)[start - begin : stop - begin])
            start += len(pieces[-1])
        return np.concatenate(pieces)

    def _permute_blocks(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the blocks of an epoch in order, and the position at which each window begins."""
        blocks = np.random.default_rng([self._seed, epoch, 0]).permutation(self._num_blocks)
        # The last block of the data may be short.
        sizes = np.minimum(self._block_samples, self._num_samples - blocks * self._block_samples)
        return blocks, (np.cumsum(sizes) - sizes)[:: self._blocks_per_window]

    def _permute_window(self, epoch: int, window: int) -> np.ndarray:
        first, last = (number * self._blocks_per_window for number in (window, window + 1))
        blocks = self._blocks(epoch)[0][first:last]
        rows = (blocks[:, None] * self._block_samples + np.arange(self._block_samples)).ravel()
        rows = rows[rows < self._num_samples]
        np.random.default_rng([self._seed, epoch, 1, window]).shuffle(rows)
        return rows


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


class RedrawnOrder:
    """Another order, whose sample i of epoch e is number e * num_samples + i: a sample of its own,
    for readers that draw a part of a sample by its number."""

    def __init__(self, order: FileOrder | BlockShuffle, num_samples: int):
        self._order, self._num_samples = order, num_samples

    def samples(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """Returns the samples (int64) at the positions `start` to `stop - 1` of an epoch."""
        samples = np.asarray(self._order.samples(epoch, start, stop), np.int64)
        return epoch * self._num_samples + samples


class RepeatedOrder:
    """The orders of `passes` epochs of `num_samples` samples, one after the other, as one epoch."""

    def __init__(
        self, order: FileOrder | BlockShuffle | RedrawnOrder, num_samples: int, passes: int
    ):
        self._order, self._num_samples, self._passes = order, num_samples, passes

    def samples(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """Returns the samples (int64) at the positions `start` to `stop - 1` of an epoch."""
        pieces = [np.empty(0, np.int64)]
        while start < stop:
            number, begin = divmod(start, self._num_samples)
            end = min(self._num_samples, begin + stop - start)
            piece = self._order.samples(epoch * self._passes + number, begin, end)
            pieces.append(np.asarray(piece))
            start += end - begin
        return np.concatenate(pieces)


def check_at_least(least: int, **values: float) -> None:
    """Raises ValueError for a smaller value, by its name."""
    for name, value in values.items():
        if value < least:
            raise ValueError(f"{name} is {value}; expected {least} or more")


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
