"""Zeros of histories: padding at the start, nowhere else."""

import numpy as np
import pytest

from deployment.serving.checks import find_misplaced_padding


@pytest.mark.parametrize("features", [1, 3])
def test_batch_against_single_rows(features):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, (400, features, 4))
    for row in rows:
        lists = row.tolist()
        events = [[i for i in history if i] for history in lists]
        good = len({len(ids) for ids in events}) == 1 and all(
            history == [0] * (4 - len(ids)) + ids
            for history, ids in zip(lists, events, strict=True)
        )
        assert (find_misplaced_padding(row[np.newaxis]) is None) == good
