"""Encoder: whole batches, errors, and rows of all kinds of frames."""

import datetime
from collections import Counter

import pyarrow as pa
import pytest

from preproc.encoding.encoder import Encoder, EncodingError
from preproc.encoding.encodings import HashBuckets, Identity, Label
from preproc.encoding.numbers import Bins, Number
from tests.vocabularies import vocabulary

ENCODER = Encoder(
    (
        vocabulary("city", ["Oslo", "Rome"]),
        Number(
            name="price",
            column="cost",
            transformation="standardize",
            mean=2.0,
            deviation=4.0,
            fill=2.0,
            indicator="price_missing",
        ),
        Label(name="clicked", column="clicked"),
    )
)


def as_lists(arrays):
    return {name: array.tolist() for name, array in arrays.items()}


ROWS = {"cost": ["10", "-"], "city": [" Rome", "Bonn"], "clicked": ["TRUE", "0"]}
ENCODED = {
    "city": [[2], [0]],
    "price": [[2.0], [0.0]],
    "price_missing": [[0.0], [1.0]],
    "clicked": [[True], [False]],
}


@pytest.mark.parametrize(
    "make", [dict, pa.table, pa.RecordBatch.from_pydict], ids=["lists", "table", "batch"]
)
def test_batches(make):
    arrays = ENCODER.encode(make(ROWS))
    assert as_lists(arrays) == ENCODED
    assert list(arrays) == list(ENCODED)
    assert [a.dtype.name for a in arrays.values()] == ["int8", "float32", "float32", "bool"]


def test_names():
    arrays = ENCODER.encode({"cost": [10]}, names=["price"])
    assert as_lists(arrays) == {"price": [[2.0]], "price_missing": [[0.0]]}
    with pytest.raises(KeyError, match="unknown feature 'cost'; expected one of city, price"):
        ENCODER.encode({"cost": [10]}, names=["cost"])


def test_no_rows():
    arrays = ENCODER.encode({"cost": [], "city": [], "clicked": []})
    assert [array.shape for array in arrays.values()] == [(0, 1)] * 4


@pytest.mark.parametrize(
    ("column", "values", "row", "message"),
    [
        ("cost", ["1", "x"], 1, "feature 'price', column 'cost', row 2 .* a number, got 'x'"),
        ("cost", [1, float("inf")], 1, "expected a finite number: replace .*, got inf"),
        ("cost", [1, "2"], 1, r"values of one type: .*, got '2' \(str\)"),
        ("cost", [1, 1 << 70], 1, "numbers below 2\\^63"),
        ("cost", [b"1", b"\xff"], 1, "UTF-8 text"),
        ("clicked", [0, 2], 1, "feature 'clicked', row 2 .* expected 0 or 1, got 2"),
        ("city", [0.5, 1], 0, "a whole number"),
    ],
)
def test_errors(column, values, row, message):
    with pytest.raises(EncodingError, match=message) as error:
        ENCODER.encode(ROWS | {column: values})
    assert (error.value.column, error.value.row) == (column, row)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"city": "Rome"}, "a list of values, one per row, got 'Rome'"),
        ({"cost": [1, 2, 3]}, "column 'cost': expected 2 values, one per row, got 3"),
        ({"cost": [datetime.date(2026, 1, 1)] * 2}, r"numbers: .* got a column of date32\[day\]"),
    ],
)
def test_invalid_columns(rows, message):
    with pytest.raises(EncodingError, match=message) as error:
        ENCODER.encode(ROWS | rows)
    assert error.value.row is None


def test_unknown_batch():
    with pytest.raises(TypeError, match="a mapping of column names to lists, got list"):
        ENCODER.encode([1, 2])
    with pytest.raises(EncodingError, match="a column 'cost', got the columns city") as error:
        ENCODER.encode({"city": ["Rome"]})
    assert error.value.row is None


def test_lists():
    encoder = Encoder((vocabulary("tags", ["a", "b", "c"], hotness=2),))
    expected = [[1, 2], [3, 0], [0, 0], [0, 0], [0, 1]]
    for values in (
        ["a;b;c", "c", None, "NULL", "-; a"],
        ['["a", "b", "c"]', '["c"]', None, "[]", '[null, "a"]'],
        [["a", "b", "c"], ["c"], None, [], [None, "a"]],
    ):
        long_lists = Counter()
        assert encoder.encode({"tags": values}, None, long_lists)["tags"].tolist() == expected
        assert long_lists == {"tags": 1}


def test_list_with_an_error():
    encoder = Encoder((Identity(name="ids", column="ids", cardinality=9, hotness=3),))
    assert encoder.encode({"ids": ["[1, 2.0]", "8"]})["ids"].tolist() == [[1, 2, 0], [8, 0, 0]]
    for values in (["1;2", "3;4;9"], ["[1]", "[9]"], [[1], [-1]], ["[1]", "[1"], ["1", "[{}]"]):
        with pytest.raises(EncodingError) as error:
            encoder.encode({"ids": values})
        assert error.value.row == 1


def test_lists_of_numbers():
    number = Number(name="v", column="v", hotness=2, fill=7.0, indicator="m")
    arrays = Encoder((number,)).encode({"v": [[1.0, 2.0], [3.0], None]})
    assert arrays["v"].tolist() == [[1, 2], [3, 7], [7, 7]]
    assert arrays["m"].tolist() == [[0, 0], [0, 1], [1, 1]]


def test_repeated_features():
    with pytest.raises(ValueError, match="each name once, got 'price_missing' twice"):
        Encoder((*ENCODER.features, Bins(name="price_missing", column="cost", edges=(1.0,))))


def test_decode():
    assert ENCODER.decode("city", [2, 0]).to_pylist() == ["Rome", None]
    assert ENCODER.decode("price", [2.0, 0.0]).to_pylist() == [10, 2]
    assert ENCODER.decode("clicked", [True, False]).to_pylist() == [1, 0]
    with pytest.raises(ValueError, match=r"feature 'city': ids: expected ids in \[0, 3\), got 3"):
        ENCODER.decode("city", [3])
    hashed = Encoder((HashBuckets(name="h", column="h", buckets=9),))
    with pytest.raises(ValueError, match="hash buckets: use a vocabulary"):
        hashed.decode("h", [1])


def test_own_missing_values():
    encoder = Encoder(ENCODER.features[1:2], missing_values=("?",))
    assert encoder.encode({"cost": ["?", None]})["price_missing"].tolist() == [[1], [1]]
    with pytest.raises(EncodingError, match="a number, got 'NA'"):
        encoder.encode({"cost": ["NA"]})
