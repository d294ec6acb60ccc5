"""Histories of original values as ids of equal length."""

import pyarrow as pa
import pytest

from preproc.encoding.encoder import Encoder, EncodingError
from tests.vocabularies import vocabulary

ENCODER = Encoder(
    (vocabulary("item", ["a", "b", "c"]), vocabulary("group", ["1", "2"], is_integer=True))
)
ITEMS = {"items": "item"}
BOTH = {"items": "item", "groups": "group"}


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([["a", "b"], ["c"]], [[0, 1, 2], [0, 0, 3]]),
        ([["a", "b", "c", "a"], []], [[2, 3, 1], [0, 0, 0]]),  # the latest are kept
        ([["a", "?", "c", "b", "?"]], [[1, 3, 2]]),  # unknown items are left out
        ([None, ["a", None]], [[0, 0, 0], [0, 0, 1]]),
        (["a;b", '["c", "a"]', "", "b"], [[0, 1, 2], [0, 3, 1], [0, 0, 0], [0, 0, 2]]),
        ([], []),
    ],
)
def test_ids(lists, expected):
    assert ENCODER.encode_histories({"items": lists}, ITEMS, 3)["items"].tolist() == expected


def test_two_columns():
    """An event without an id in one of them is left out of both."""
    table = pa.table({"items": [["b", "c"], ["a"]]})
    for batch in (table, table.to_batches()[0]):
        assert ENCODER.encode_histories(batch, ITEMS, 2)["items"].tolist() == [[2, 3], [0, 1]]
    rows = {"items": [["a", "b", "c"], ["a"]], "groups": [[2, 9, 1], [1]]}
    ids = ENCODER.encode_histories(rows, BOTH, 2)
    assert ids["items"].tolist() == [[1, 3], [0, 1]]
    assert ids["groups"].tolist() == [[2, 1], [0, 1]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"items": [["a"], ["b"]]}, "column 'groups': expected a column 'groups', got the columns"),
        ({"items": [["a"], ["a", "b"]], "groups": [[1], [1]]}, "row 2 .*: expected as many values"),
        ({"items": [["a"], ["b"]], "groups": [[1]]}, "row 2 .*: expected as many values"),
        ({"items": [["a"], ["b"]], "groups": [[1], [1.5]]}, "row 2 .* got 1.5"),
        ({"items": ["a", '["b'], "groups": [[1], [1]]}, "column 'items', row 2 .* a JSON array"),
    ],
)
def test_errors(rows, message):
    with pytest.raises(EncodingError, match=message):
        ENCODER.encode_histories(rows, BOTH, 2)


def test_attributes():
    """A history that follows from another has no column."""
    items = vocabulary("item", ["a", "b", "c"], attributes={"group": pa.array([2, 0, 1])})
    encoder = Encoder((items,))
    assert encoder.history_columns(BOTH) == {"items": "items", "groups": "items"}
    assert ENCODER.history_columns(BOTH) == {"items": "items", "groups": "groups"}
    rows = {"items": [["c", "?", "a", "b"], ["a", "c", "a", "c"], []]}
    ids = encoder.encode_histories(rows, BOTH, 3)
    assert ids["items"].tolist() == [[0, 3, 1], [3, 1, 3], [0, 0, 0]]
    assert ids["groups"].tolist() == [[0, 1, 2], [1, 2, 1], [0, 0, 0]]
    with pytest.raises(ValueError, match="feature 'group': .* got ids that follow from 'item'"):
        encoder.decode("group", [1])
