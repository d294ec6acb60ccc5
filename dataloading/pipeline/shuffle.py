"""Order of the samples of an epoch, and the share of a rank. NumPy only."""

import functools

import numpy as np


class FileOrder:
    """Rows as they are stored, in every epoch."""

    def rows(self, epoch: int, start: int, stop: int) -> slice:
        """The rows at the positions `start` to `stop - 1` of an epoch."""
        return slice(start, stop)


class BlockShuffle:
    """A new order in each epoch that needs neither all rows in memory nor random single reads.

    Blocks of `block_rows` neighbouring rows are permuted; then the rows within each window of
    `window_rows` (that many permuted blocks side by side) are permuted. The order is a function of
    (seed, epoch) alone: batch size and start do not change it. Up to `window_rows` rows are
    shuffled fully; of larger data a window mixes `window_rows / block_rows` blocks from anywhere.
    Memory: 8 bytes per row of the windows in use, at most three of them.
    """

    def __init__(self, num_rows: int, seed: int, block_rows: int, window_rows: int):
        check_at_least(1, block_rows=block_rows, window_rows=window_rows)
        if window_rows % block_rows:
            raise ValueError(
                f"window_rows {window_rows} is not a multiple of block_rows {block_rows}; a "
                "window is a whole number of blocks"
            )
        check_at_least(0, seed=seed)
        self._num_rows = num_rows
        self._seed = seed
        self._block_rows = block_rows
        self._window_rows = window_rows
        self._num_blocks = -(-num_rows // block_rows)
        self._blocks = functools.lru_cache(maxsize=2)(self._permute_blocks)
        self._window = functools.lru_cache(maxsize=3)(self._permute_window)

    def rows(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """The rows (int64) at the positions `start` to `stop - 1` of an epoch."""
        pieces = []
        position = start
        while position < stop:
            window = position // self._window_rows
            if position >= self._begin(epoch, window + 1):
                window += 1
            begin = self._begin(epoch, window)
            pieces.append(self._window(epoch, window)[position - begin : stop - begin])
            position += len(pieces[-1])
        return np.concatenate(pieces) if pieces else np.empty(0, np.int64)

    def _begin(self, epoch: int, window: int) -> int:
        """The position of a window's first row: the data's short last block shifts later ones."""
        blocks = self._blocks(epoch)
        short_position = int(np.argmax(blocks)) * self._block_rows
        shift = self._num_blocks * self._block_rows - self._num_rows
        begin = window * self._window_rows
        return begin - shift if begin > short_position else begin

    def _permute_blocks(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([self._seed, epoch, 0]).permutation(self._num_blocks)

    def _permute_window(self, epoch: int, window: int) -> np.ndarray:
        per_window = self._window_rows // self._block_rows
        blocks = self._blocks(epoch)[window * per_window : (window + 1) * per_window]
        rows = (blocks[:, None] * self._block_rows + np.arange(self._block_rows)).ravel()
        rows = rows[rows < self._num_rows]
        np.random.default_rng([self._seed, epoch, 1, window]).shuffle(rows)
        return rows


class RepeatedOrder:
    """The orders of several epochs, one after the other, as one epoch.

    Args:
        order: order of a pass.
        num_samples: samples of a pass.
        passes: passes per epoch.
    """

    def __init__(self, order: FileOrder | BlockShuffle, num_samples: int, passes: int):
        self._order, self._num_samples, self._passes = order, num_samples, passes

    def rows(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """The samples (int64) at the positions `start` to `stop - 1` of an epoch."""
        pieces = [np.empty(0, np.int64)]
        while start < stop:
            number, begin = divmod(start, self._num_samples)
            end = min(self._num_samples, begin + stop - start)
            piece = self._order.rows(epoch * self._passes + number, begin, end)
            pieces.append(np.arange(begin, end) if isinstance(piece, slice) else piece)
            start += end - begin
        return np.concatenate(pieces)


def check_at_least(least: int, **values: int) -> None:
    """Refuses smaller values, by name.

    Raises:
        ValueError: one is smaller.
    """
    for name, value in values.items():
        if value < least:
            raise ValueError(f"{name} is {value}; allowed: {least} or more")


def check_shares(batch_size: int, rank: int, world_size: int) -> None:
    """Refuses global batches that ranks cannot share.

    Raises:
        ValueError: one of them is out of range, or there are more ranks than rows.
    """
    check_at_least(1, batch_size=batch_size, world_size=world_size)
    if batch_size < world_size:
        raise ValueError(
            f"batch_size {batch_size} is the global batch, of which each of {world_size} ranks "
            f"gets a share; choose {world_size} or more"
        )
    if not 0 <= rank < world_size:
        raise ValueError(f"rank is {rank}; allowed: 0 to world_size - 1 = {world_size - 1}")


def check_position(epoch: int, start_row: int, num_rows: int) -> None:
    """Refuses places to start from that no epoch of `num_rows` rows has.

    Raises:
        ValueError: one of them is out of range.
    """
    check_at_least(0, epoch=epoch)
    if not 0 <= start_row <= num_rows:
        raise ValueError(f"start_row is {start_row}; allowed: 0 to the number of rows, {num_rows}")


def share_of_rank(num_rows: int, rank: int, world_size: int) -> tuple[int, int, int]:
    """A rank's contiguous share of a global batch of `num_rows` rows.

    Returns:
        (first row, row after the last one, length after padding). Shares differ by at most one
        row; the length after padding is the same on all ranks.
    """
    base, longer = divmod(num_rows, world_size)
    begin = rank * base + min(rank, longer)
    end = begin + base + (1 if rank < longer else 0)
    return begin, end, base + (1 if longer else 0)


def lay_out_shares(rows: np.ndarray, world_size: int) -> np.ndarray:
    """A global batch with the padding of `share_of_rank`: [n, ...] -> [length * world_size, ...].

    Rank r's share begins at `r * length`; padding repeats the batch's first row.
    """
    base, longer = divmod(len(rows), world_size)
    if not longer:
        return rows
    full = longer * (base + 1)
    padded = np.empty((world_size, base + 1, *rows.shape[1:]), rows.dtype)
    padded[longer:, base] = rows[0]
    padded[:longer] = rows[:full].reshape(longer, base + 1, *rows.shape[1:])
    padded[longer:, :base] = rows[full:].reshape(world_size - longer, base, *rows.shape[1:])
    return padded.reshape(-1, *rows.shape[1:])
