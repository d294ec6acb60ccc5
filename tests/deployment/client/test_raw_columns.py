"""Rows as the tensors of a model that takes raw columns."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from tritonclient.grpc.model_config_pb2 import ModelConfig

from deployment.client import raw_columns
from deployment.client.__main__ import _description, main
from deployment.serving.interface import RawColumn

COLUMNS = (
    RawColumn("city", "text", is_optional=True, example="St. John's"),
    RawColumn("price", "float64", example=12.5),
    RawColumn("count", "int64", is_optional=True, example=3),
    RawColumn("is_new", "bool", is_optional=True, example=True),
    RawColumn("tags", "text", is_list=True, is_optional=True, example=["new"]),
    RawColumn("sizes", "float64", is_list=True, is_optional=True, example=[1.5]),
)


def config(columns=COLUMNS) -> ModelConfig:
    result = ModelConfig(name="shop", backend="python", max_batch_size=8)
    result.input.add(name="categorical_features", data_type="TYPE_INT64", dims=[4])
    result.output.add(name="scores", data_type="TYPE_FP32", dims=[1])
    if columns:
        text = json.dumps([column._asdict() for column in columns])
        result.parameters["columns"].string_value = text
    return result


def of_json(text: str):
    tensors = raw_columns.request(raw_columns.columns_of_json(text, COLUMNS), COLUMNS)
    return {name: tensor.tolist() for name, tensor in tensors.items()}


def test_columns_of_a_model():
    assert raw_columns.raw_columns(config()) == COLUMNS
    assert raw_columns.require_columns(config(), "--rows") == COLUMNS
    with pytest.raises(
        ValueError, match="--rows: expected a model of raw rows, got shop.* categorical_features: "
    ):
        raw_columns.require_columns(config(()), "--rows")


def test_row_as_json():
    row = '{"city": 7, "price": "12.50", "count": 3.0, "is_new": true, '
    row += '"tags": ["a", 1], "sizes": [2]}'
    assert of_json(row) == {
        "city": [[b"7"]],
        "price": [[12.5]],
        "count": [[3]],
        "is_new": [[True]],
        "tags": [[b"a", b"1"]],
        "sizes": [[2]],
    }


def test_missing_values_of_rows():
    rows = '[{"price": null, "tags": ["a", "b"]}, {"price": 1, "city": "x"}, {"tags": []}]'
    tensors = of_json(rows)
    assert tensors.keys() == {"price", "tags", "city"}
    assert math.isnan(tensors["price"][0][0]) and tensors["price"][1] == [1]
    assert tensors["tags"] == [[b"a", b"b"], [b"", b""], [b"", b""]]
    assert tensors["city"] == [[b""], [b"x"], [b""]]
    assert of_json('{"price": 1, "count": null, "tags": "a;b"}') == {
        "price": [[1]],
        "tags": [[b"a;b"]],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "--json: expected a row as JSON, got '{'"),
        ("3", "expected an object, or a list of objects, got '3'"),
        ('{"town": 1}', "expected the columns city, price, .*, got town"),
        ('{"city": ["a"]}', "column 'city': expected one value per row"),
        ('{"price": "x"}', "column 'price', row 0 .*: expected a number, got 'x'"),
        ('[{"count": 1}, {"price": 1}]', "column 'count', row 1 .*: expected an integer: no value"),
        ('{"is_new": "maybe"}', "column 'is_new', row 0 .*: expected 0 or 1, got 'maybe'"),
    ],
)
def test_invalid_json(text, message):
    with pytest.raises(ValueError, match=message):
        of_json(text)


def test_columns_of_a_table():
    rows = {
        "city": pa.array([1.0, None]),
        "price": pa.array(["NA", " 2 "]),
        "count": pa.array([1, 2], pa.int8()),
        "is_new": pa.array(["True", "0"]),
        "tags": pa.array([["a"], None]),
        "other": pa.array([1, 2]),
    }
    tensors = raw_columns.request(rows, COLUMNS)
    assert tensors["city"].tolist() == [[b"1"], [b""]]
    np.testing.assert_array_equal(tensors["price"], [[np.nan], [2]])
    assert tensors["count"].tolist() == [[1], [2]] and tensors["count"].dtype == np.int64
    assert tensors["is_new"].tolist() == [[True], [False]]
    assert tensors["tags"].tolist() == [[b"a"], [b""]]
    assert "other" not in tensors


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--rows", "a.csv"], "--rows is only read with --model_name"),
        (["--model", "shop", "--json", "{}", "--describe"], "--json: expected one of them"),
    ],
)
def test_flags(flags, message, capsys):
    assert main(flags) == 2
    assert message in capsys.readouterr().err


def test_description():
    assert _description(config(), "curl URL").splitlines() == [
        "shop: python, up to 8 rows",
        '''  column  city    text            optional  "St. John's"''',
        "  column  price   number          required  12.5",
        "  column  count   integer         optional  3",
        "  column  is_new  true or false   optional  true",
        '  column  tags    list of texts   optional  ["new"]',
        "  column  sizes   list of numbers optional  [1.5]",
        "  output  scores  FP32 [1]",
        """  curl URL --data '{"city": "St. John'"'"'s", "price": 12.5, "count": 3, """
        """"is_new": true, "tags": ["new"], "sizes": [1.5]}'""",
    ]
    assert "  input   categorical_features  INT64 [4]" in _description(config(()), "")
