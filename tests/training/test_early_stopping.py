"""The rule of early stopping, by hand."""

import math

import pytest

from training import early_stopping

NAN = math.nan


@pytest.mark.parametrize(
    ("value", "best", "expected"),
    [
        (0.5, None, True),
        (NAN, None, True),
        (0.5 + 1e-12, 0.5, True),
        (0.5, 0.5, False),
        (0.4, 0.5, False),
        (NAN, 0.5, False),
        (0.1, NAN, True),
    ],
)
def test_improvements(value, best, expected):
    assert early_stopping.is_improvement(value, best) is expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], 0),
        ([0.5], 0),
        ([0.5, 0.5], 1),
        ([0.5, 0.4, 0.45], 2),  # a rise that stays below the best is no improvement
        ([0.5, 0.4, 0.6], 0),
        ([0.5, 0.6, 0.4, 0.6, 0.3], 3),
        ([NAN, NAN, NAN], 3),
        ([NAN, 0.5, NAN], 1),
    ],
)
def test_stale_evaluations(values, expected):
    assert early_stopping.stale_evaluations(values) == expected
