"""Columns of whole numbers: ids or amounts."""

import numpy as np
import pytest

from preproc.encoding.encodings import Label
from preproc.fitting.whole_numbers import _binned, choose, has_id_name, measure

LABEL = Label(name="y", column="y")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, True) for name in ("Item", "userId", "USER_ID", "shop id", "zip5", "account-ID")),
        *((name, True) for name in ("PostalCode", "phone_number", "order_no", "store_nbr")),
        *((name, False) for name in ("paid", "user_age", "code_length", "", "цена", "items", "no")),
    ],
)
def test_names(name, expected):
    assert has_id_name(name) is expected


@pytest.mark.parametrize(
    ("name", "rows", "distinct", "z", "is_id"),
    [
        ("price", 1000, 20, -90.0, True),  # few values
        ("price", 1000, 21, None, False),
        ("user_id", 1000, 900, None, True),
        ("price", 1000, 500, 5.1, True),
        ("price", 1000, 501, 5.1, False),  # too few rows per value
        ("price", 1000, 500, 5.0, False),
        ("user_id", 1000, 500, -5.0, True),
        ("user_id", 1000, 500, -5.1, False),
    ],
)
def test_choices_by_hand(name, rows, distinct, z, is_id):
    assert choose(name, rows, distinct, z).is_id is is_id


def test_neighbors_of_few_values():
    """Up to 64 values: bins of a value and its neighbors, which count no more than itself."""
    rows, clicks = np.array([[1, 2, 8]]), np.array([[1, 0, 4]])
    binned, binned_clicks, places = _binned(rows, clicks)
    np.testing.assert_allclose(binned, [[1 + 1, 2 + 1 + 2, 8 + 2]])
    np.testing.assert_allclose(binned_clicks, [[1 + 0, 0 + 1 + 1, 4 + 0]])
    assert places.tolist() == [0, 1, 2]
    binned, _, places = _binned(np.ones((1, 128)), np.ones((1, 128)))
    assert binned.tolist() == [[2] * 64] and places.tolist() == [i // 2 for i in range(128)]


def columns(num_rows=20_000):
    """An id with a rate of its own per value, an amount that the rate grows with, and noise."""
    rng = np.random.default_rng(0)
    ids, amount = rng.integers(0, 500, num_rows), rng.integers(0, 500, num_rows)
    rate = 0.4 * rng.uniform(0, 1, 500)[ids] + 0.6 * amount / 500
    label = rng.uniform(0, 1, num_rows) < rate
    return {"ids": ids, "amount": amount, "noise": rng.integers(0, 500, num_rows), "y": label}


def test_measured_columns(duckdb, read):
    """In the engine; missing values and labels do not count."""
    data = columns()
    text = [("NA" if i % 10 == 0 else str(value)) for i, value in enumerate(data["ids"])]
    rows = [f"{t},{a},{int(y)}" for t, a, y in zip(text, data["amount"], data["y"], strict=True)]
    table = read("\n".join(["ids,amount,y", *rows, "3,4,", "5,6,NA"]) + "\n")
    z = measure(duckdb, table, ["ids", "amount"], LABEL, ("", "NA"), len(rows) + 2)
    assert z["ids"] > 5 and z["amount"] < -5
    assert measure(duckdb, table, [], LABEL, ("",), len(rows)) == {}


def test_measured_sample(duckdb, read, monkeypatch):
    monkeypatch.setattr("preproc.fitting.whole_numbers._SAMPLE_ROWS", 1000)
    table = read(columns())
    z = measure(duckdb, table, ["ids", "amount"], LABEL, ("",), 20_000)
    assert all(abs(value) < 20 for value in z.values())
    empty = read({"ids": [None, 3], "amount": [None, 4], "y": [0, None]})
    assert measure(duckdb, empty, ["ids", "amount"], LABEL, ("",), 2)["ids"] is None
