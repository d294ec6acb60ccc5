"""Copies of samples from anywhere, compiled and by NumPy, against slices one by one."""

import numpy as np
import pytest

from dataloading.pipeline import gather as module
from dataloading.pipeline.gather import Scattered, aligned, gather, gather_ragged, read_splits
from dataloading.pipeline.ragged import row_splits_of

CONTENT = np.random.default_rng(0).integers(0, 256, 5000, np.uint8)


@pytest.fixture(params=["compiled", "NumPy"])
def implementation(request, monkeypatch):
    if request.param == "NumPy":
        monkeypatch.setattr(module, "_library", lambda: None)
    elif module._library() is None:
        pytest.skip("dataloading-kernels is not installed: run `make op`")


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
