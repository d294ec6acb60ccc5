"""Different values of large arrays."""

import numpy as np
import pytest

from dataloading.keys.distinct import distinct


@pytest.mark.parametrize("values", [[], [3], [5, 1, 5, -2, 1], [[2, 2], [1, 2]]])
def test_values_of_numpy(values):
    array = np.array(values, np.int64)
    np.testing.assert_array_equal(distinct(array), np.unique(array), strict=True)
