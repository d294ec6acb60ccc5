"""Canonical values of Arrow columns."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from preproc.encoding import arrow_columns
from preproc.encoding.arrow_columns import InvalidValue, plain

MISSING = pa.array(arrow_columns.MISSING_VALUES)
NAN = float("nan")
TEXTS = pa.array(["a", None, "b"])


def test_plain_values():
    kinds = (pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary())
    for kind in (*kinds, pa.dictionary(pa.int8(), pa.string())):
        assert plain(TEXTS.cast(kind)) == TEXTS
    assert plain(pa.chunked_array([["a", None], ["b"]])) == TEXTS
    assert plain(pa.array([b"ab"], pa.binary(2))) == pa.array(["ab"])
    assert plain(pa.array([np.float16(0.5)])) == pa.array([0.5], pa.float32())
    with pytest.raises(InvalidValue) as error:
        plain(pa.array([b"a", None, b"\xe9"]))
    assert (error.value.index, error.value.found) == (2, r"b'\xe9'")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([" a\t\n", "NULL", "- ", "", "null!", None]), ["a", *[None] * 3, "null!", None]),
        (pa.array(["\u00a0x", "7.0", "True"]), ["\u00a0x", "7.0", "True"]),
        (pa.array([7.0, NAN, None, -0.0, 2.0**53]), ["7", None, None, "0", "9007199254740992"]),
        (pa.array([7, None], pa.uint64()), ["7", None]),
        (pa.array([True, None]), ["true", None]),
        (pa.array([Decimal("7.00"), None]), ["7", None]),
        (pa.nulls(2), [None, None]),
        (pa.array([], pa.string()), []),
    ],
)
def test_texts(values, expected):
    assert arrow_columns.texts(values, MISSING).to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "index", "message"),
    [
        (pa.array([1.0, None, 0.5]), 2, "0.5"),
        (pa.array([2.0**53 + 2]), 0, "9007199254740994.0"),
        (pa.array([float("inf")]), 0, "inf"),
        (pa.array([Decimal("1.0"), Decimal("2.5")]), 1, "Decimal('2.5')"),
        (pa.array([0], pa.timestamp("s")), -1, "a column of timestamp[s]"),
    ],
)
def test_invalid_texts(values, index, message):
    with pytest.raises(InvalidValue) as error:
        arrow_columns.texts(values, MISSING)
    assert (error.value.index, error.value.found) == (index, message)


def test_integer_texts():
    texts = pa.array(["7.0", "+7.", "-3.000", "007", "1.5", "v1.0", "7.0.0", None])
    expected = ["7", "+7", "-3", "007", "1.5", "v1.0", "7.0.0", None]
    assert arrow_columns.integer_texts(texts).to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([" 1.5 ", "+2", "-.5", "3.", "1E-2", "NA"]), [1.5, 2, -0.5, 3, 0.01, NAN]),
        (pa.array([1, None], pa.int64()), [1, NAN]),
        (pa.array([1.5, NAN, None], pa.float32()), [1.5, NAN, NAN]),
        (pa.array([True, False]), [1, 0]),
        (pa.array([Decimal("2.50"), None]), [2.5, NAN]),
        (pa.nulls(1), [NAN]),
    ],
)
def test_numbers(values, expected):
    np.testing.assert_array_equal(arrow_columns.numbers(values, MISSING), expected)


def test_infinity_as_missing_value():
    """Any infinite number, as text or not."""
    missing = pa.array(["", "inf"])
    for values in (["1", "-Infinity", "inf"], [1.0, -np.inf, np.inf]):
        numbers = arrow_columns.numbers(pa.array(values), missing)
        np.testing.assert_array_equal(numbers, [1, np.nan, np.nan])


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        *((text, "a number") for text in ("0x10", "1_0", "1,5", "1e", "١")),
        *((text, arrow_columns._FINITE) for text in ("inf", "1e999")),
    ],
)
def test_invalid_numbers(text, rule):
    with pytest.raises(InvalidValue) as error:
        arrow_columns.numbers(pa.array(["1", None, text]), MISSING)
    assert (error.value.index, error.value.found, error.value.rule) == (2, repr(text), rule)
    with pytest.raises(InvalidValue, match=r"a column of date32\[day\]"):
        arrow_columns.numbers(pa.array([0], pa.date32()), MISSING)


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["7", " -3.0", "+4", "NA"]),
        pa.array([7, -3, 4, None]),
        pa.array([7.0, -3, 4, NAN]),
        pa.array([Decimal("7.0"), Decimal("-3.0"), Decimal("4.0"), None]),
    ],
    ids=str,
)
def test_integers(values):
    ids, is_missing = arrow_columns.integers(values, MISSING)
    assert (ids.tolist(), is_missing.tolist()) == ([7, -3, 4, 0], [False, False, False, True])


@pytest.mark.parametrize(
    ("values", "index"),
    [
        (pa.array(["7", None, "1.5"]), 2),
        (pa.array(["7", "0x10"]), 1),
        (pa.array(["7", "9223372036854775808"]), 1),
        (pa.array([7, 1 << 63], pa.uint64()), 1),
        (pa.array([7.0, 0.5]), 1),
        (pa.array([0], pa.date32()), -1),
    ],
)
def test_invalid_integers(values, index):
    with pytest.raises(InvalidValue) as error:
        arrow_columns.integers(values, MISSING)
    assert error.value.index == index
