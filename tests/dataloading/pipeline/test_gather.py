"""Copies of samples from anywhere, compiled and by NumPy, against slices one by one."""

import numpy as np
import pytest

from dataloading.pipeline.gather import Scattered, aligned, gather

CONTENT = np.random.default_rng(0).integers(0, 256, 5000, np.uint8)


def test_order():
    scattered = Scattered.from_batch(np.array([7, 0, 9, 3]))
    assert [part.tolist() for part in scattered] == [[0, 3, 7, 9], [1, 3, 0, 2]]
    assert scattered.in_batch_order().tolist() == [7, 0, 9, 3]


@pytest.mark.parametrize("size", [1, 4, 13, 63, 64, 65, 200])
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


def test_no_samples(implementation):
    nothing = np.empty(0, np.int64)
    gather(CONTENT[:0], nothing, nothing, 4, aligned(0))
