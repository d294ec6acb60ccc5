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


@pytest.mark.engines("pandas")
def test_pandas_frames():
    """The index does not count, and columns may be called as attributes."""
    import pandas

    frame = pandas.DataFrame({"city": list("abc"), "price": [1, 2, 3], "slice": 0, "num_rows": 0})
    frame.index = [2, 0, 1]
    assert not is_single_row(frame, COLUMNS) and num_rows(frame, COLUMNS) == 3
    assert part_of(frame, COLUMNS, 1, 3)["city"].tolist() == ["b", "c"]
    series = {"city": frame["city"], "price": frame["price"]}
    assert num_rows(series, COLUMNS) == 3
    assert part_of(series, COLUMNS, 1, 3)["city"].tolist() == ["b", "c"]
