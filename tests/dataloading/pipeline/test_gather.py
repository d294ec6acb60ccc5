"""Copies of samples from anywhere, compiled and by NumPy, against slices one by one."""

import numpy as np
import pytest

from dataloading.pipeline.gather import (
    Scattered,
    aligned,
    are_row_splits,
    gather,
    gather_ragged,
    locate,
    read_splits,
    running_totals,
)
from dataloading.pipeline.ragged import row_splits_of

CONTENT = np.random.default_rng(0).integers(0, 256, 5000, np.uint8)


def test_order():
    samples, places = Scattered.from_batch(np.array([7, 0, 9, 3]))
    assert samples.tolist() == [0, 3, 7, 9] and places.tolist() == [1, 3, 0, 2]


@pytest.mark.parametrize("num_bytes", [0, 1, 1000])
def test_alignment(num_bytes):
    buffer = aligned(num_bytes)
    assert buffer.shape == (num_bytes,) and buffer.ctypes.data % 64 == 0


@pytest.mark.parametrize("size", [1, 3, 4, 8, 13, 52, 63, 64, 65, 200])
def test_equal_sizes(implementation, size):
    random = np.random.default_rng(size)
    offsets = random.integers(0, len(CONTENT) - size + 1, 100)
    offsets[:2] = 0, len(CONTENT) - size
    places = random.permutation(100)
    out = np.zeros(100 * size + 1, np.uint8)
    gather(CONTENT, offsets, places, size, out[:-1])
    for place, offset in zip(places, offsets, strict=True):
        actual = out[place * size : (place + 1) * size]
        assert actual.tolist() == CONTENT[offset : offset + size].tolist()
    assert out[-1] == 0, "nothing is written behind"


@pytest.mark.parametrize("size", [1, 4, 8])
def test_different_lengths(implementation, size):
    random = np.random.default_rng(1)
    lengths = random.integers(0, 30, 300)
    places = random.permutation(300)
    lengths[places[:3]] = 0, 25, 1
    offsets = random.integers(0, len(CONTENT) - 30 * size, 300)
    offsets[1] = len(CONTENT) - 25 * size
    row_splits = row_splits_of(lengths)
    out = np.zeros(lengths.sum() * size + 1, np.uint8)
    gather_ragged(CONTENT, offsets, places, size, row_splits, out[:-1])
    for place, offset in zip(places, offsets, strict=True):
        num_bytes = lengths[place] * size
        actual = out[row_splits[place] * size :][:num_bytes]
        assert actual.tolist() == CONTENT[offset : offset + num_bytes].tolist()
    assert out[-1] == 0, "nothing is written behind"


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_row_splits(implementation, dtype):
    row_splits = np.array([0, 5, 5, 7, 2**30], dtype)
    content = np.frombuffer(b"..." + row_splits.tobytes(), np.uint8)
    samples, places = np.array([0, 1, 3]), np.array([2, 0, 1])
    begins, lengths = np.array([100, 200, 300]), np.full(3, -1)
    offsets = 3 + samples * row_splits.itemsize
    read_splits(content, offsets, places, row_splits.dtype, 4, begins, lengths)
    assert begins.tolist() == [100, 220, 328] and lengths.tolist() == [0, 2**30 - 7, 5]


def test_no_samples(implementation):
    nothing = np.empty(0, np.int64)
    gather(CONTENT[:0], nothing, nothing, 4, aligned(0))
    read_splits(CONTENT, nothing, nothing, np.dtype(np.int32), 4, nothing, nothing)
    gather_ragged(CONTENT, nothing, nothing, 4, np.zeros(1, np.int32), aligned(0))


@pytest.mark.parametrize("sizes", [[7, 7, 7, 2], [5], [1] * 300, [3, 0, 0, 40, 0, 1, 1, 250]])
@pytest.mark.parametrize("num_samples", [0, 1, 20])
def test_places_in_records(implementation, sizes, num_samples):
    random = np.random.default_rng(len(sizes))
    first = np.cumsum([0, *sizes])
    samples = np.sort(random.integers(0, first[-1], num_samples))
    origins, begins = random.integers(0, 10**12, (2, len(sizes)))
    owners = [record for record, size in enumerate(sizes) for _ in range(size)]
    records = [owners[sample] for sample in samples]
    for more in (begins, None):
        located = locate(samples, first, origins, 12, more)
        expected = [origins[r] + s * 12 for r, s in zip(records, samples, strict=True)]
        assert located.offsets.tolist() == expected
        assert located.records.tolist() == sorted(set(records))
        runs = zip(located.records, np.diff(located.run_starts), strict=True)
        assert [record for record, count in runs for _ in range(count)] == records
        assert located.run_starts[0] == 0 and located.run_starts[-1] == num_samples
    assert located.begins is None
    located = locate(samples, first, origins, 12, begins)
    assert located.begins.tolist() == [begins[record] for record in records]


def test_running_totals(implementation):
    totals = np.zeros(4, np.int32)
    assert running_totals(np.array([3, 0, 4]), totals) == 7
    assert totals.tolist() == [0, 3, 3, 7]
    assert running_totals(np.array([2**31 - 1, 5, 2**40]), totals) == 2**31 + 4 + 2**40
    assert running_totals(np.empty(0, np.int64), totals[:1]) == 0


@pytest.mark.parametrize("dtype", ["<i4", "<i8"])
@pytest.mark.parametrize(
    ("splits", "ragged", "fixed"),
    [
        ([0, 2, 4, 6], True, True),
        ([0, 2, 2, 6], False, False),
        ([0, 0, 2, 4], False, False),
        ([0, 1, 3, 6], False, False),
        ([0, 2, 1, 6], False, False),
        ([1, 2, 4, 6], False, False),
        ([0, 2, 4, 5], False, False),
        ([0, 2, 4, -6], False, False),
        ([0], False, False),
    ],
)
def test_rules_of_row_splits(implementation, dtype, splits, ragged, fixed):
    """At an odd address, as in a record."""
    content = np.frombuffer(b"x" + np.array(splits, dtype).tobytes(), np.uint8)[1:].view(dtype)
    assert are_row_splits(content, 6, 2, ragged=True) == ragged
    assert are_row_splits(content, 6, 2, ragged=False) == fixed


def test_row_splits_of_different_lengths(implementation):
    splits = np.array([0, 0, 2, 3], np.int32)
    assert are_row_splits(splits, 3, 2, ragged=True)
    assert not are_row_splits(splits, 3, 1, ragged=True)
    assert not are_row_splits(splits, 3, 2, ragged=False)
    assert are_row_splits(splits[:1], 0, 2, ragged=True)
