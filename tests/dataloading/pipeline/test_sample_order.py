"""Orders of samples: blocks and groups; the layout of a global batch."""

import numpy as np
import pytest

from dataloading.formats.stored_dataset import StoredDataset
from dataloading.pipeline.shuffle import BlockShuffle, GroupOrder, padded_shares, share_of_rank
from dataloading.synthetic.dataset import synthetic_spec, write_dataset


def random_groups(num_rows=1003, num_groups=90):
    """Returns ids of groups of different sizes; about 100 samples have id 0."""
    rng = np.random.default_rng(0)
    groups = (num_groups * rng.random(num_rows) ** 2).astype(np.int32)
    return np.where(rng.random(num_rows) < 0.1, 0, groups)


@pytest.mark.parametrize("window_samples", [1, 50, 400, 5000])
@pytest.mark.parametrize("first_id", [0, 1])
def test_neighbors(first_id, window_samples):
    groups = random_groups()
    order = GroupOrder(groups, first_id, seed=3, window_samples=window_samples)
    epochs = [order.samples(epoch, 0, 1003) for epoch in range(3)]
    for rows in epochs:
        assert rows.dtype == np.int64 and sorted(rows) == list(range(1003))
        ids = groups[rows]
        runs = 1 + np.count_nonzero(ids[1:] != ids[:-1])
        lonely = (ids == 0).sum() if first_id else 0
        assert runs == len(np.unique(ids)) if not lonely else runs > len(np.unique(ids)) + 20
        for group in (5, 60):
            assert np.ptp(np.flatnonzero(ids == group)) + 1 == (ids == group).sum()
    assert (epochs[0] != epochs[1]).any()
    within = [rows[groups[rows] == 1] for rows in epochs]
    assert len(within[0]) > 20 and (within[0] != within[1]).any(), "samples move in their group"


ORDERS = {
    "blocks": lambda seed: BlockShuffle(1003, seed, block_samples=10, window_samples=40),
    "groups": lambda seed: GroupOrder(random_groups(), 0, seed, window_samples=100),
}


@pytest.mark.parametrize("seed", range(4))  # a short last block comes at different places
@pytest.mark.parametrize("step", [1, 40, 64])
@pytest.mark.parametrize("order_of", ORDERS.values(), ids=ORDERS)
def test_rows_by_cut_of_an_epoch(order_of, step, seed):
    whole, order = order_of(seed).samples(2, 0, 1003), order_of(seed)
    pieces = [order.samples(2, start, min(start + step, 1003)) for start in range(0, 1003, step)]
    assert (np.concatenate(pieces) == whole).all()
    assert (order.samples(2, 501, 777) == whole[501:777]).all()
    assert order.samples(2, 1003, 1003).size == 0
    assert (order_of(seed + 1).samples(2, 0, 1003) != whole).any()


def test_one_group_and_one_row():
    order = GroupOrder(np.zeros(300, np.int64), 0, 1, 10)
    assert sorted(order.samples(0, 0, 300)) == list(range(300))
    assert GroupOrder(np.array([7]), 0, 1, 10).samples(4, 0, 1).tolist() == [0]


def test_grouped_data_set(tmp_path):
    """Batches of ranks are those of one rank, and an epoch continues at any sample."""
    spec = synthetic_spec([50, 20], hotness=[1, 2], num_numerical=1)
    spec = write_dataset(tmp_path / "rows", spec, {"train": 101})

    def batches(rank=0, world_size=1, **options):
        data = StoredDataset(spec, "train", 32, rank=rank, world_size=world_size)
        data = data.grouped("cat_0", 0, seed=1, window_samples=8192)
        return [batch.inputs for batch in data.dataset(1, **options)]

    whole = [inputs.categorical[0].numpy()[:, 0] for inputs in batches()]
    ids = np.concatenate(whole)
    assert 1 + np.count_nonzero(ids[1:] != ids[:-1]) == len(np.unique(ids))
    stored = StoredDataset(spec, "train", 101).stored_samples(0, 101)
    assert sorted(ids) == sorted(stored[1][:, 0])
    ranks = [batches(rank, 2) for rank in range(2)]
    for number in range(3):  # the last batch, of 5 samples, is padded
        own = [inputs[number].categorical[0].numpy()[:, 0] for inputs in ranks]
        assert (np.concatenate(own) == whole[number]).all()
    resumed = [inputs.categorical[0].numpy()[:, 0] for inputs in batches(start_sample=64)]
    assert (np.concatenate(resumed) == ids[64:]).all()


def block_shuffle(num_samples=1003, seed=5, block_samples=10, window_samples=40):
    return BlockShuffle(num_samples, seed, block_samples, window_samples)


@pytest.mark.parametrize("num_samples", [1, 9, 10, 40, 41, 1003])
@pytest.mark.parametrize("seed", range(2))
def test_permutations_of_epochs(num_samples, seed):
    order = block_shuffle(num_samples, seed)
    epochs = [order.samples(epoch, 0, num_samples) for epoch in range(3)]
    for rows in epochs:
        assert sorted(rows) == list(range(num_samples))
    if num_samples > 40:
        assert (epochs[0] != epochs[1]).any() and (epochs[1] != epochs[2]).any()
        assert (epochs[0] != np.arange(num_samples)).any()


def test_window_of_permuted_blocks():
    rows = block_shuffle(num_samples=1000).samples(0, 0, 1000).reshape(-1, 40)
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
