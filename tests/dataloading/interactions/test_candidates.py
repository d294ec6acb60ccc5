"""Batches of whole candidate lists: shares of ranks, and negatives."""

import numpy as np
import pytest
import tensorflow as tf

from dataloading.interactions.candidates import CandidateDataset
from tests.interaction_data import write_interactions

NUM_USERS, NUM_ITEMS, LENGTH = 12, 40, 5
NUM_LISTS = 11


def stored_lists():
    """Users, items [11, 5] and the place of each positive."""
    rng = np.random.default_rng(0)
    items = rng.integers(0, NUM_ITEMS, (NUM_LISTS, LENGTH))
    return rng.permutation(NUM_USERS)[:NUM_LISTS], items, rng.integers(0, LENGTH, NUM_LISTS)


@pytest.fixture
def spec(tmp_path):
    """Candidate lists of 5 in `test`; 11 positives in `validation`; one interaction to train on."""
    users, items, positives = stored_lists()
    return write_interactions(
        tmp_path,
        NUM_USERS,
        NUM_ITEMS,
        {
            "train": {"user": [3, 3], "item": [1, 2]},
            "validation": {"user": users.tolist(), "item": items[:, 0].tolist()},
            "test": {
                "user": np.repeat(users, LENGTH).tolist(),
                "item": items.ravel().tolist(),
                "label": np.eye(LENGTH, dtype=int)[positives].ravel().tolist(),
            },
        },
        {"test_samples_per_series": LENGTH},
    )


def batches(loader, *place):
    """Arrays (users, items, labels or None, weights) of each batch, each [batch]."""
    return [
        tuple(
            None if column is None else np.ravel(column)
            for column in (*batch.inputs, batch.labels, batch.weights)
        )
        for batch in loader.dataset(*place)
    ]


def side_by_side(found):
    return [np.concatenate(column) for column in zip(*found, strict=True)]


@pytest.mark.parametrize(
    ("batch_size", "of_batch", "num_batches"), [(5, 5, 11), (14, 10, 6), (1000, 1000, 1)]
)
def test_whole_lists_in_file_order(spec, batch_size, of_batch, num_batches):
    loader = CandidateDataset(spec, "test", batch_size)
    assert (loader.batch_size, loader.num_batches) == (of_batch, num_batches)
    assert (loader.list_length, loader.num_lists, loader.num_samples) == (5, 11, 55)
    assert loader.failure is None
    result = batches(loader)
    assert {len(rows[0]) for rows in result[:-1]} <= {of_batch}
    users, items, labels, weights = side_by_side(result)
    expected_users, expected_items, positives = stored_lists()
    assert users.tolist() == np.repeat(expected_users, LENGTH).tolist()
    assert items.tolist() == expected_items.ravel().tolist()
    assert np.flatnonzero(labels).tolist() == (np.arange(NUM_LISTS) * LENGTH + positives).tolist()
    assert set(weights) == {1}
    (ids, _), of_ids, _ = next(iter(loader.dataset()))
    assert ids.dtype == tf.int32 and of_ids.dtype == tf.float32
    assert ids.shape == [len(result[0][0])] and of_ids.shape == [*ids.shape, 1]
    later = side_by_side(batches(loader, 3, 10))
    assert all(map(np.array_equal, later, [users[10:], items[10:], labels[10:], weights[10:]]))


@pytest.mark.parametrize("world_size", [2, 3])
def test_shares_of_ranks(spec, world_size):
    """Ranks together read the batches of a single rank; padding is whole lists of weight 0."""
    batch_size = 20 * world_size
    one = batches(CandidateDataset(spec, "test", batch_size))
    of_rank = []
    for rank in range(world_size):
        loader = CandidateDataset(spec, "test", batch_size, rank=rank, world_size=world_size)
        assert loader.batch_size == batch_size and loader.num_lists == NUM_LISTS
        of_rank.append(batches(loader))
    for number, whole in enumerate(one):
        parts = [result[number] for result in of_rank]
        lengths = {len(part[0]) for part in parts}
        assert len(lengths) == 1 and lengths.pop() % LENGTH == 0
        for column in range(3):
            real = [part[column][part[3] > 0] for part in parts]
            assert np.concatenate(real).tolist() == whole[column].tolist()
        weights = np.concatenate([part[3] for part in parts])
        assert (weights.reshape(-1, LENGTH) == weights.reshape(-1, LENGTH)[:, :1]).all()
        assert weights.mean() == pytest.approx(1)


def test_minimum_of_one_list_per_rank(spec):
    message = r"batch_size is 14; .* 5 rows x 3 ranks = 15: choose that .*--valid_batch_size"
    with pytest.raises(ValueError, match=message):
        CandidateDataset(spec, "test", 14, rank=1, world_size=3)
    assert CandidateDataset(spec, "test", 15, rank=1, world_size=3).batch_size == 15
    assert CandidateDataset(spec, "test", 29, rank=1, world_size=3).batch_size == 15
    assert CandidateDataset(spec, "test", 30, rank=1, world_size=3).batch_size == 30


def test_first_stored_negatives(spec):
    _, items, positives = stored_lists()
    loader = CandidateDataset(spec, "test", 1000, valid_negative=2)
    ((users, result, labels, _),) = batches(loader)
    assert loader.list_length == 3 and len(users) == 33
    for number, (row, place) in enumerate(zip(items, positives, strict=True)):
        # The positive stays where it is among the two negatives that come first.
        places = sorted([place, *[p for p in range(LENGTH) if p != place][:2]])
        assert result[3 * number : 3 * number + 3].tolist() == row[places].tolist()
        assert labels[3 * number : 3 * number + 3].tolist() == [p == place for p in places]


def test_drawn_negatives_for_stored_positives(spec):
    """Negatives are drawn from the items of interactions, not of stored negatives alone."""

    def drawn(seed):
        loader = CandidateDataset(spec, "validation", 1000, valid_negative=10, seed=seed)
        ((users, items, labels, _),) = batches(loader)
        assert loader.list_length == 11
        return [column.reshape(NUM_LISTS, 11) for column in (users, items, labels)]

    expected_users, expected_items, positives = stored_lists()
    touched = {(3, 1), (3, 2)}
    for user, row, place in zip(expected_users, expected_items, positives, strict=True):
        touched |= {(user, row[0]), (user, row[place])}
    users, items, labels = drawn(1)
    assert (users == expected_users[:, None]).all()
    assert (items[:, 0] == expected_items[:, 0]).all()
    assert (labels == (np.arange(11) == 0)).all()
    in_use = {item for _, item in touched}
    assert len(in_use) == 17
    for user, negatives in zip(expected_users, items[:, 1:], strict=True):
        assert len(set(negatives)) == 10 and set(negatives) <= in_use
        assert touched.isdisjoint({(user, item) for item in negatives})
    assert (drawn(1)[1] == items).all()
    assert (drawn(2)[1] != items).any()


def test_rows_to_predict_without_labels(spec):
    (spec.base_directory / "test/label_0.bin").write_bytes(bytes(55))
    loader = CandidateDataset(spec, "test", 8, with_labels=False)
    assert (loader.num_samples, loader.num_batches, loader.list_length) == (55, 7, 1)
    result = batches(loader)
    assert all(rows[2] is None for rows in result)
    items = np.concatenate([rows[1] for rows in result])
    assert items.tolist() == stored_lists()[1].ravel().tolist()


@pytest.mark.parametrize(
    ("split", "settings", "message"),
    [
        ("test", {"batch_size": 0}, "batch_size is 0"),
        ("test", {"rank": 2, "world_size": 2}, "rank is 2; expected 0 to world_size - 1 = 1"),
        ("test", {"valid_negative": 5}, "stores 4 negatives a candidate list, fewer than .* at"),
        ("validation", {}, "'validation' holds positives only: expected the number of"),
        ("validation", {"valid_negative": 40}, "user 3 .*touched 4 of 17 items, so 13 are"),
        ("tset", {}, "needs the split 'tset'"),
    ],
)
def test_bad_arguments(spec, split, settings, message):
    with pytest.raises(ValueError, match=message):
        CandidateDataset(spec, split, **{"batch_size": 10} | settings)
