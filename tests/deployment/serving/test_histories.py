"""Zeros of histories: padding at the start, nowhere else."""

import numpy as np
import pytest

from deployment.serving.checks import find_misplaced_padding


@pytest.mark.parametrize(
    ("second_row", "result"),
    [
        ([[0, 0, 0], [0, 0, 0]], None),
        ([[0, 0, 7], [0, 0, 1]], None),
        ([[5, 6, 7], [1, 2, 3]], None),
        ([[5, 0, 7], [1, 2, 3]], (1, 0, 1, True)),
        ([[5, 6, 7], [1, 2, 0]], (1, 1, 2, True)),
        ([[5, 0, 7], [1, 0, 3]], (1, 0, 1, True)),
        ([[5, 6, 7], [0, 2, 3]], (1, 1, 0, False)),
        ([[0, 0, 7], [0, 2, 3]], (1, 1, 1, False)),
    ],
)
def test_histories_by_hand(second_row, result):
    """The third row is bad where the second one is."""
    rows = np.array([[[0, 8, 9], [0, 1, 1]], second_row, second_row], np.int32)
    assert find_misplaced_padding(rows) == result


def test_single_step():
    assert find_misplaced_padding(np.array([[[0]], [[3]]])) is None


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
