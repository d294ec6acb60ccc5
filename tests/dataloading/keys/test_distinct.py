"""Different values of large arrays."""

import time

import numpy as np
import pytest

from dataloading.keys.distinct import distinct


@pytest.mark.parametrize("values", [[], [3], [5, 1, 5, -2, 1], [[2, 2], [1, 2]]])
def test_values_of_numpy(values):
    array = np.array(values, np.int64)
    np.testing.assert_array_equal(distinct(array), np.unique(array), strict=True)


def test_time_of_a_sort():
    """A million different values take at most a few times as long as their sort."""
    values = np.random.default_rng(0).integers(0, 1 << 40, 1_000_000)

    def seconds(function):
        times = []
        for _ in range(3):
            started = time.process_time()
            function(values)
            times.append(time.process_time() - started)
        return min(times)

    assert seconds(distinct) < 5 * seconds(np.sort)
