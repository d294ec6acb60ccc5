"""Forms of raw rows."""

import numpy as np
import pyarrow as pa
import pytest

from preproc.encoding.row_forms import is_single_row, num_rows, part_of

COLUMNS = ("city", "price")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({"city": "Bern", "tags": ["a", "b"]}, True),
        ({"city": None, "price": np.float32(2)}, True),
        ({"city": ["Bern"], "price": np.array([2.0])}, False),
        ({"city": pa.array(["Bern"])}, False),
        (pa.table({"city": ["Bern"]}), False),
        ({"city": ["Bern"], "comment": "of all rows"}, False),  # not a column that is read
        ({}, False),
    ],
)
def test_single_rows(rows, expected):
    assert is_single_row(rows, COLUMNS) == expected


def test_parts():
    with pytest.raises(ValueError, match="rows: expected a pandas frame, .*, got a list"):
        num_rows([["Bern", 2.0]], COLUMNS)
    rows = {"city": ["a", "b", "c"], "price": np.arange(3), "x": [1]}
    assert num_rows(rows, COLUMNS) == 3
    part = part_of(rows, COLUMNS, 1, 9)
    assert part["city"] == ["b", "c"] and part["price"].tolist() == [1, 2] and "x" not in part
    table = pa.table({"city": ["a", "b", "c"], "price": [1, 2, 3]})
    assert num_rows(table, COLUMNS) == 3
    assert part_of(table, COLUMNS, 1, 2).to_pylist() == [{"city": "b", "price": 2}]
