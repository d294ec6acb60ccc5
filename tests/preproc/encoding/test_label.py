"""Labels: spellings of 0 and 1 in values of all types."""

import decimal
import re

import numpy as np
import pyarrow as pa
import pytest

from preproc.encoding.arrow_columns import InvalidValue, label_key
from preproc.encoding.encodings import Label, known_meanings


def encoded(values, **settings):
    if not isinstance(values, pa.Array):
        values = pa.array(values)
    return Label(name="y", column="y", **settings).encode(values)["y"].ravel().tolist()


@pytest.mark.parametrize(
    ("values", "settings"),
    [
        (["0", "1", "1.0 "], {}),
        ([" False", "true", "TRUE"], {}),
        (["no", "Yes", "1"], {}),
        ([0, 1, 1], {}),
        ([False, True, True], {}),
        (pa.array([0, 1, 1], pa.decimal128(5, 2)), {}),
        (pa.array(["f", "t", "t"]).dictionary_encode(), {}),
        (["0", "true", " YES"], {"spellings": ("no", "yes")}),
        ([1, 2, 2], {"spellings": ("1", "2")}),
        (["1", "2.0", "+2"], {"spellings": ("1", "2")}),
        ([-1.0, 1, 1], {"spellings": ("-1", "1")}),
        ([True, False, False], {"spellings": ("true", "false")}),
        (["view", "buy", "Buy"], {"positive": "buy"}),
        ([5, 4, 4.0], {"positive": "4"}),
        ([decimal.Decimal("3.5"), decimal.Decimal("3.6"), decimal.Decimal(4)], {"above": 3.5}),
        (["3", "4.5", "5e0"], {"above": 3.5}),
    ],
)
def test_labels(values, settings):
    assert encoded(values, **settings) == [False, True, True]
    repeated = pa.concat_arrays([values if isinstance(values, pa.Array) else pa.array(values)] * 9)
    assert encoded(repeated, **settings) == [False, True, True] * 9  # by their different values


@pytest.mark.parametrize(
    ("values", "settings", "rule", "found"),
    [
        (["1", "2"], {}, "0 or 1", "'2'"),
        (["1", "NA"], {}, "0 or 1", "no value, as 'NA' is a missing value: leave the row out"),
        ([1, np.nan], {}, "0 or 1", "no value: leave the row out"),
        ([1, None], {}, "0 or 1", "no value: leave the row out"),
        ([1, 0], {"spellings": ("1", "2")}, "'1' or '2'", "0"),
        (["no", "0"], {"spellings": ("no", "YES!")}, "'no' or 'YES!'", "'0'"),
        (["a", "-"], {"positive": "b"}, "'b' or another value", "no value, as '-' is .*"),
        (["4", "many"], {"above": 3.5}, "a number", "'many'"),
    ],
)
def test_invalid_labels(values, settings, rule, found):
    for array in (pa.array(values), pa.array([values[0]] * 30 + values[1:])):
        with pytest.raises(InvalidValue) as error:
            encoded(array, **settings)
        assert (error.value.index, error.value.rule) == (len(array) - 1, rule)
        assert re.fullmatch(found, error.value.found)


def test_invalid_columns():
    with pytest.raises(InvalidValue, match="column of date32"):
        encoded(pa.array([0], pa.date32()))
    for values in (pa.nulls(1), pa.nulls(40)):
        with pytest.raises(InvalidValue) as error:
            encoded(values)
        assert error.value.index == 0


@pytest.mark.parametrize(
    ("settings", "conditions"),
    [
        ({}, ("y=0", "y=1")),
        ({"spellings": ("no", "yes")}, ("y=no", "y=yes")),
        ({"positive": "buy"}, ("y!=buy", "y=buy")),
        ({"above": 3.0}, ("y<=3", "y>3")),
    ],
)
def test_conditions(settings, conditions):
    label = Label(name="y", column="y", **settings)
    assert label.conditions == conditions
    assert Label.from_json(label.to_json()) == label


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["No", "YES"], [0, 1]),
        ([1.0, "-1"], [1, 0]),
        (["0", "true", "no", "Y"], [0, 1, 0, 1]),
        ([2, 1], [1, 0]),
        (["n", "t"], None),
        ([0, 1, 2], None),
        (["yes"], [1]),
        ([2], None),
        ([], None),
    ],
)
def test_known_pairs(values, expected):
    keys = [label_key(value) for value in values]
    meanings = known_meanings({*keys})
    assert (meanings and [meanings[key] for key in keys]) == expected


def test_label_of_older_data_sets():
    """Its settings are those of earlier versions, so that digests stay."""
    expected = {"kind": "label", "name": "y", "column": "y", "hotness": 1, "dtype": "bool"}
    assert Label(name="y", column="y").to_json() == expected
