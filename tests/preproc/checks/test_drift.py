"""Columns that moved; tests/preproc/data_checks has their faults at each place."""

import pytest

from preproc.checks.drift import amount_of_move


@pytest.mark.parametrize(
    ("rows", "distance", "outside", "is_moved"),
    [
        *((9, 1.0, 0.0, False), (10, 0.96, 0.0, True), (100, 0.4, 0.0, False)),
        *((10_000, 0.3, 0.0, True), (1000, 0.0, 0.02, True), (1000, 0.0, 0.001, False)),
    ],
)
def test_few_rows_must_move_farther(rows, distance, outside, is_moved):
    assert (amount_of_move(rows, 1000, 0.0, distance, outside) >= 1) == is_moved
