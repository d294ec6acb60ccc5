"""Computed training rows: content of an epoch, order, and shares of ranks."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from dataloading.interactions import keyed_permutation
from dataloading.interactions.keyed_permutation import (
    NUM_DRAW_KEYS,
    NUM_ORDER_KEYS,
    KeyedOrder,
    drawn_below,
    key_words,
    keys_of_epoch,
)
from dataloading.interactions.sampled import SampledInteractions
from dataloading.pipeline.shuffle import share_of_rank
from tests.interaction_data import write_interactions

NUM_USERS, NUM_ITEMS = 50, 23


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """`stored(n)`: a data set of n interactions; user and item of each, and its number in both."""
    created = {}

    def data_set(num_interactions):
        if num_interactions not in created:
            rng = np.random.default_rng(num_interactions)
            users = rng.integers(0, NUM_USERS, num_interactions).tolist()
            items = rng.integers(0, NUM_ITEMS, num_interactions).tolist()
            folder = tmp_path_factory.mktemp("interactions")
            train = {"train": {"user": users, "item": items}}
            spec = write_interactions(folder, NUM_USERS, NUM_ITEMS, train)
            created[num_interactions] = SimpleNamespace(spec=spec, users=users, items=items)
        return created[num_interactions]

    return data_set


def batches(loader, epoch=0, start_sample=0):
    """The rows of each batch: arrays (users, items, labels, weights), each [batch].

    Without XLA, which would compile for a second; `test_types_and_shapes` has it.
    """
    tickets = loader.dataset(epoch, start_sample)
    tf.config.run_functions_eagerly(True)
    try:
        computed = [loader.samples(ticket) for ticket in tickets]
    finally:
        tf.config.run_functions_eagerly(False)
    return [
        tuple(np.ravel(column) for column in (*rows.inputs, rows.labels, rows.weights))
        for rows in computed
    ]


def rows_of(loader, epoch=0, start_sample=0):
    """The real rows of an epoch side by side: int64 [rows, 3] of user, item and label."""
    columns = [
        np.concatenate(column) for column in zip(*batches(loader, epoch, start_sample), strict=True)
    ]
    assert columns[3].min() > 0
    return np.stack(columns[:3], axis=1).astype(np.int64)


def sorted_pairs(users, items):
    return sorted(zip(users, items, strict=True))


def excess(counts, expected):
    """Returns the distance of a chi-square of counts from its mean, in standard deviations."""
    freedom = counts.size - 1
    chi_square = (np.square(counts - expected) / expected).sum()
    return (chi_square - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize(("num_interactions", "negative_samples"), [(2, 1), (97, 4)])
def test_interactions_and_negatives_of_an_epoch(stored, num_interactions, negative_samples):
    data = stored(num_interactions)
    loader = SampledInteractions(data.spec, "train", 64, negative_samples=negative_samples)
    assert loader.num_samples == (1 + negative_samples) * num_interactions
    assert loader.num_batches == len(batches(loader)) == -(-loader.num_samples // 64)
    assert loader.failure is None
    for epoch in (0, 1):
        users, items, labels = rows_of(loader, epoch).T
        assert sorted_pairs(users[labels == 1], items[labels == 1]) == sorted_pairs(
            data.users, data.items
        )
        assert sorted(users[labels == 0]) == sorted(data.users * negative_samples)
        assert items.min() >= 0 and items.max() < NUM_ITEMS


def test_types_and_shapes(stored):
    """In a step, which computes the rows from a ticket."""
    loader = SampledInteractions(stored(97).spec, "train", 64)
    in_a_step = tf.function(lambda iterator: loader.samples(iterator.get_next()), autograph=False)
    (users, items), labels, weights = in_a_step(iter(loader.dataset(3)))
    ticket = next(iter(loader.dataset(3)))
    for column, expected in zip((users, items), loader.samples(ticket).inputs, strict=True):
        assert np.array_equal(column, expected)
    assert users.dtype == items.dtype == tf.int32 and users.shape == items.shape == [64]
    assert labels.dtype == weights.dtype == tf.float32
    assert labels.shape == weights.shape == [64, 1] and set(np.ravel(weights)) == {1}


def test_epochs_and_seeds(stored):
    def epochs(seed, *numbers):
        loader = SampledInteractions(stored(512).spec, "train", 2560, seed=seed)
        return [rows_of(loader, number) for number in numbers]

    result = [*epochs(0, 0, 1), *epochs(10**20, 0)]
    for first in range(3):
        for second in range(first):
            # Rows that are equal by chance: the same user and item at the same position.
            same = (result[first] == result[second]).all(axis=1).mean()
            assert same < 4 / (NUM_USERS * NUM_ITEMS)
    assert np.array_equal([result[1]], epochs(0, 1))


def test_batch_sizes_and_restarts(stored):
    spec = stored(97).spec
    whole = rows_of(SampledInteractions(spec, "train", 485, seed=4), 2)
    loader = SampledInteractions(spec, "train", 200, seed=4)
    for start_sample in (77, 484):
        assert np.array_equal(rows_of(loader, 2, start_sample), whole[start_sample:])
    assert batches(loader, 2, 485) == []


@pytest.mark.parametrize(("num_interactions", "world_size"), [(97, 2), (1, 3)])
def test_shares_of_ranks(stored, world_size, num_interactions):
    spec, batch_size = stored(num_interactions).spec, 240

    def loader(rank, size):
        return SampledInteractions(spec, "train", batch_size, rank=rank, world_size=size, seed=1)

    whole = batches(loader(0, 1), 1, 3)
    of_rank = [batches(loader(rank, world_size), 1, 3) for rank in range(world_size)]
    assert {len(result) for result in of_rank} == {len(whole)}
    for number, rows in enumerate(whole):
        size = len(rows[0])
        for rank, result in enumerate(of_rank):
            begin, end, length = share_of_rank(size, rank, world_size)
            *columns, weights = result[number]
            real = end - begin
            assert {len(column) for column in columns} == {length}
            expected = np.float32(length * world_size / size)
            assert weights.tolist() == [expected] * real + [0.0] * (length - real)
            for column, of_one in zip(columns, rows[:3], strict=True):
                assert np.array_equal(column[:real], of_one[begin:end])
            for padding in zip(*(column[real:] for column in columns), strict=True):
                assert padding in set(zip(*rows[:3], strict=True))


def test_uniform_negatives(stored):
    """Chi-squares within 4 standard deviations of chance, below and above."""
    loader = SampledInteractions(stored(20_000).spec, "train", 100_000, seed=2)
    result = np.concatenate([rows_of(loader, epoch) for epoch in range(3)])
    users, items, _ = result[result[:, 2] == 0].T
    counts = np.bincount(items, minlength=NUM_ITEMS)
    assert abs(excess(counts, len(items) / NUM_ITEMS)) < 4
    of_user = np.bincount(users * NUM_ITEMS + items, minlength=NUM_USERS * NUM_ITEMS)
    expected = np.repeat(np.bincount(users, minlength=NUM_USERS) / NUM_ITEMS, NUM_ITEMS)
    assert abs(excess(of_user, expected)) < 4


def keys(seed=0, epoch=0):
    result = keys_of_epoch(
        key_words(seed, NUM_ORDER_KEYS + NUM_DRAW_KEYS), tf.constant(epoch, tf.int64)
    )
    return result[:NUM_ORDER_KEYS], result[NUM_ORDER_KEYS:]


def drawn(limit, numbers, largest, epoch=0):
    return drawn_below(limit, tf.constant(numbers), largest, keys(0, epoch)[1]).numpy()


@pytest.mark.parametrize("first", [0, 2**40], ids=["small", "large"])
def test_independent_draws_of_neighbours_and_epochs(first):
    """The negatives of an interaction, of the next ones, and of the same row in the next epoch."""
    numbers = first + np.arange(200_000)
    largest = 2**62 if first else 200_000
    draws = drawn(20, numbers, largest)
    others = [np.roll(draws, shift) for shift in (1, 2, 3, 4, 5, 4096)]
    others.append(drawn(20, numbers, largest, epoch=1))
    if first:  # other rows with the same low bits
        others.append(drawn(20, numbers + 2**32, largest))
    for other in others:
        counts = np.bincount(draws * 20 + other, minlength=400)
        assert abs(excess(counts, len(numbers) / 400)) < 4


@pytest.mark.parametrize("size", [1, 2, 3, 10, 17, 128, 1000, 65_537])
def test_permutations(size):
    numbers = KeyedOrder(size).permuted(tf.range(size, dtype=tf.int64), keys(size)[0]).numpy()
    assert np.array_equal(np.bincount(numbers, minlength=size), np.ones(size, int))


@pytest.mark.parametrize("size", [1, 63])
def test_permutations_with_surplus_pairs(size, monkeypatch):
    monkeypatch.setattr(keyed_permutation, "_widths", lambda size: (8, 8))
    for epoch in range(5):
        result = KeyedOrder(size).permuted(tf.range(size, dtype=tf.int64), keys(0, epoch)[0])
        assert sorted(result.numpy()) == list(range(size))


@pytest.mark.parametrize("size", [10**12 + 39, 1 << 62])
def test_samples_of_huge_permutations(size):
    rng = np.random.default_rng(0)
    begins = [0, size - 20_000, *rng.integers(0, size - 20_000, 4)]
    request = np.unique(np.concatenate([np.arange(begin, begin + 20_000) for begin in begins]))
    result = KeyedOrder(size).permuted(tf.constant(request), keys()[0]).numpy()
    assert result.min() >= 0 and result.max() < size
    assert len(np.unique(result)) == len(request)
    buckets = np.bincount((result / size * 100).astype(int), minlength=100)
    assert abs(excess(buckets, len(request) / 100)) < 4


@pytest.mark.parametrize("size", [524_288, 499_979])
def test_mixing_of_an_epoch(size):
    """New positions of neighbours, also of those one width apart, are uniform and independent."""
    order = KeyedOrder(size)
    result = order.permuted(tf.range(size, dtype=tf.int64), keys(3)[0]).numpy()
    assert np.mean(result == np.arange(size)) < 20 / size
    buckets = result * 16 // size
    part_of = np.arange(size) * 16 // size
    counts = np.bincount(part_of * 16 + buckets, minlength=256)
    assert excess(counts, size / 256) < 4
    for lag in (1, 2, 5, *order._widths, 2 * order._widths[1], size // 2):
        later = np.roll(result, -lag)
        correlation = np.corrcoef(result, later)[0, 1]
        assert abs(correlation) * math.sqrt(size) < 4, lag
        pairs = np.bincount(buckets * 16 + later * 16 // size, minlength=256)
        assert abs(excess(pairs, size / 256)) < 4, lag
        # Also the distance of two, which a network of few rounds would often repeat.
        steps = np.bincount((later - result) % size * 256 // size, minlength=256)
        assert abs(excess(steps, size / 256)) < 4, lag


def test_golden_draws():
    """Golden values: a training resumes in the same order, also with a later version."""
    order, draw = keys(seed=7, epoch=3)
    numbers = tf.range(6, dtype=tf.int64)
    assert KeyedOrder(1009).permuted(numbers, order).numpy().tolist() == [
        407, 826, 6, 709, 739, 199
    ]  # fmt: skip
    small, large = (drawn_below(1000, numbers, largest, draw) for largest in (1009, 2**40))
    assert small.numpy().tolist() == [387, 202, 298, 463, 168, 181]
    assert large.numpy().tolist() == [800, 450, 347, 4, 650, 693]


def test_more_ranks_than_rows_of_a_batch(stored):
    with pytest.raises(ValueError, match="batch_size 64 .* each of 65 ranks .* choose 65 or more"):
        SampledInteractions(stored(97).spec, "train", 64, world_size=65)


def test_size_of_the_graph_of_a_step(tmp_path):
    """The popularities of 100,000 items take 800 KB, which no graph may contain."""
    train = {"train": {"user": [0, 1], "item": [0, 99_999]}}
    spec = write_interactions(tmp_path, 2, 100_000, train)
    loader = SampledInteractions(spec, "train", 8, negative_exponent=0.5)
    step = tf.function(loader.samples, autograph=False)
    graph = step.get_concrete_function(next(iter(loader.dataset()))).graph
    assert graph.as_graph_def().ByteSize() < 100_000


def test_negatives_by_popularity(tmp_path, exponent=0.3):
    """Chi-square of 2 million draws; an item without interactions counts as one with one."""
    counts = np.array([0, 1, 3, 900, 40, 7])
    items = np.repeat(np.arange(len(counts)), counts)
    users = np.arange(len(items)) % 9
    train = {"train": {"user": users.tolist(), "item": items.tolist()}}
    spec = write_interactions(tmp_path, 9, len(counts), train)
    sizes = {"negative_samples": 1000, "negative_exponent": exponent}
    loader = SampledInteractions(spec, "train", 10**6, **sizes)
    rows = np.concatenate([rows_of(loader, epoch) for epoch in (0, 1)])
    seen = np.bincount(rows[rows[:, 2] == 0, 1], minlength=len(counts))
    expected = np.maximum(counts, 1.0) ** exponent
    expected *= seen.sum() / expected.sum()
    assert seen.sum() == 2 * 1000 * len(items)
    chi_square = ((seen - expected) ** 2 / expected).sum()
    assert chi_square < 25.7  # 5 degrees of freedom, one in ten thousand


def test_stored_negatives(tmp_path):
    """Rows of label 0 of `train`, with and without drawn negatives."""
    users, items, labels = [0, 0, 1, 2], [3, 4, 5, 0], [1, 0, 1, 0]
    columns = {"user": users, "item": items, "label": labels}
    spec = write_interactions(tmp_path, 3, 6, {"train": columns})
    rows = rows_of(SampledInteractions(spec, "train", 4, negative_samples=0))
    expected = sorted(zip(users, items, labels, strict=True))
    assert sorted(map(tuple, rows.tolist())) == expected
    rows = rows_of(SampledInteractions(spec, "train", 4, negative_samples=2, negative_exponent=1))
    assert len(rows) == 12 and rows[:, 2].sum() == 2
    assert [1, 5, 1] in rows.tolist() and [0, 4, 1] not in rows.tolist()
