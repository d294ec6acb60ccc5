"""The order of an epoch and the share of a rank."""

import numpy as np
import pytest

from dataloading.pipeline.shuffle import BlockShuffle, padded_shares, share_of_rank


def shuffle(num_samples=1003, seed=5, block_samples=10, window_samples=40):
    return BlockShuffle(num_samples, seed, block_samples, window_samples)


@pytest.mark.parametrize("num_samples", [1, 9, 10, 40, 41, 1003])
@pytest.mark.parametrize("seed", range(2))
def test_permutations_of_epochs(num_samples, seed):
    order = shuffle(num_samples, seed)
    epochs = [order.samples(epoch, 0, num_samples) for epoch in range(3)]
    for rows in epochs:
        assert sorted(rows) == list(range(num_samples))
    if num_samples > 40:
        assert (epochs[0] != epochs[1]).any() and (epochs[1] != epochs[2]).any()
        assert (epochs[0] != np.arange(num_samples)).any()


def test_window_of_permuted_blocks():
    rows = shuffle(num_samples=1000).samples(0, 0, 1000).reshape(-1, 40)
    blocks = [set(window // 10) for window in rows]
    assert all(len(window) == 4 for window in blocks)
    assert len(set.union(*blocks)) == 100
    neighbours = sum(max(window) - min(window) == 3 for window in blocks)
    assert neighbours < 3  # windows are made of blocks from anywhere


def test_layout_of_a_global_batch():
    assert padded_shares(10, 4).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0, 8, 9, 0]
    assert padded_shares(1, 3).tolist() == [0, 0, 0]
    for num_samples in range(9):
        for world_size in range(1, 5):
            padded = padded_shares(num_samples, world_size)
            for rank in range(world_size):
                begin, end, length = share_of_rank(num_samples, rank, world_size)
                share = padded[rank * length : (rank + 1) * length].tolist()
                assert share == [*range(begin, end), *[0] * (length - (end - begin))]
