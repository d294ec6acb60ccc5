"""Raw rows to the encoded tensors of a model."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from deployment.serving.checks import BadRequest
from deployment.serving.raw.encoded_rows import RawRows
from deployment.serving.raw.input_columns import check_encoder, raw_columns
from deployment.serving.raw.requests import RawRequests
from deployment.serving.scorer import RequestScorer, ServedModel
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import HashBuckets, Identity
from preproc.encoding.numbers import Bins, Number
from preproc.encoding.profile import ColumnProfile
from tests.deployment.serving import made_models
from tests.deployment.serving.made_models import CATEGORICAL, CLICKS, NUMERICAL, expected_scores
from tests.deployment.serving.made_raw_model import (
    ENCODER,
    IDS,
    INTERFACE,
    NUMBERS,
    RAW,
    ROWS,
    tensors,
    vocabulary,
    write,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("model") / "1")


@pytest.fixture(scope="module")
def rows(folder):
    return RawRows(folder, RAW)


@pytest.fixture(scope="module")
def requests(rows):
    return RawRequests(rows, RAW)


def check_encoded(arrays):
    np.testing.assert_array_equal(arrays[NUMERICAL], NUMBERS)
    np.testing.assert_array_equal(arrays[CATEGORICAL], IDS)
    assert (arrays[NUMERICAL].dtype, arrays[CATEGORICAL].dtype) == (np.float32, np.int64)


@pytest.mark.parametrize(
    ("encodings", "missing", "dtype", "is_optional"),
    [
        ([vocabulary("x", "a", "b")], 0, "text", True),
        ([vocabulary("x", "a", "b", first_id=0)], 0, "text", False),
        ([vocabulary("x", "1", "2", is_integer=True)], 0, "int64", True),
        ([vocabulary("x", "1", "2", is_integer=True)], 1, "text", True),
        ([vocabulary("x", "true", "false")], 0, "bool", True),
        ([HashBuckets(name="x", column="x", buckets=3, is_integer=True)], 0, "int64", True),
        ([Identity(name="x", column="x", cardinality=3)], None, "int64", False),
        ([Number(name="x", column="x")], 0, "float64", False),
        ([Bins(name="x", column="x", edges=(1.0, 2.0))], 1, "float64", True),
        (
            [vocabulary("x", "1", "2", is_integer=True), Number(name="y", column="x", fill=1.0)],
            *(0, "float64", True),
        ),
    ],
)
def test_dtype_and_missing_values_of_columns(encodings, missing, dtype, is_optional):
    profile = {} if missing is None else {"x": ColumnProfile(9, missing)}
    features = tuple(
        feature._replace(
            name=encoding.name, count=1, cardinality=getattr(encoding, "num_ids", None)
        )
        for encoding, feature in zip(encodings, INTERFACE.features, strict=False)
    )
    (column,) = raw_columns(
        Encoder(tuple(encodings), profile=profile), INTERFACE._replace(features=features)
    )
    assert (column.dtype, column.is_optional) == (dtype, is_optional)


def test_rows_of_a_batch(rows):
    for batch in (ROWS, pa.RecordBatch.from_pydict(ROWS), pa.table({"id": [1, 2, 3], **ROWS})):
        check_encoded(rows.encode(batch))


def test_tensors_of_a_request(requests):
    check_encoded(requests.check(tensors()))
    lists = {"tags": ["sale;new", '["red"]', ""], "words": ["5;1", "1;2;3", ""]}
    as_texts = {
        name: np.array([[text.encode()] for text in texts], object) for name, texts in lists.items()
    }
    check_encoded(requests.check(tensors() | as_texts))
    arrays = requests.check(tensors() | {"tags": np.empty((3, 0), object)})
    assert not arrays[CATEGORICAL][:, 1:3].any()
    with pytest.raises(BadRequest, match="expected raw rows, got the tensor numerical_features; "):
        requests.check(tensors() | {NUMERICAL: NUMBERS})
    bad = np.array([[b"Oslo"], [b"\xff"], [b""]], object)
    with pytest.raises(BadRequest, match="column 'city', row 1 .*: expected UTF-8 text"):
        requests.check(tensors() | {"city": bad})


def test_absent_columns(requests):
    arrays = requests.check({"price": tensors()["price"]})
    assert arrays[NUMERICAL][:, 1].tolist() == [30, 30, 30]
    assert not arrays[CATEGORICAL].any()
    with pytest.raises(BadRequest, match="expected the column price.*, got city, age; needed: "):
        requests.check({name: tensors()[name] for name in ("city", "age")})
    with pytest.raises(BadRequest, match="got .none.; needed: price"):
        requests.check({})


@pytest.mark.parametrize(
    ("changed", "row", "message"),
    [
        ({"price": [1.0, np.nan, 2.0]}, 1, "column 'price', row 1 .*: expected a value.*no value"),
        ({"price": ["1", "2", "x"]}, 2, "column 'price', row 2 .*: expected a number, got 'x'"),
        ({"words": [[1], [6], []]}, 1, r"column 'words', row 1 .*: expected an id in \[0, 6\)"),
        ({"city": ["a"]}, None, "column 'city': expected 3 values, one per row, got 1"),
    ],
)
def test_invalid_values(rows, changed, row, message):
    with pytest.raises(BadRequest, match=message) as error:
        rows.encode(ROWS | changed)
    (column,) = changed
    assert (error.value.feature, error.value.row) == (column, row)


def test_scores_of_raw_rows(folder):
    scorer = RequestScorer(folder)
    encoded = {NUMERICAL: NUMBERS, CATEGORICAL: IDS}
    expected = scorer.score(encoded)
    np.testing.assert_allclose(expected, expected_scores(encoded), rtol=1e-3)
    np.testing.assert_array_equal(scorer.score(scorer.raw_rows.encode(ROWS)), expected)
    assert scorer.raw_rows.columns == RAW.columns


def test_model_without_encoder(tmp_path):
    scorer = RequestScorer(write(tmp_path / "1", CLICKS))
    assert [(c.name, c.dtype, c.is_list) for c in scorer.raw_rows.columns] == [
        *(("price", "float64", False), ("age", "float64", False), ("city", "int64", False)),
        *(("tags", "text", True), ("words", "text", True)),
    ]
    names = [feature.name for feature in CLICKS.features]
    values = ([1.5, 0], [2, -3], [0, 3], ["1;1", "4;0"], ["5", "0;1;2"])
    expected = scorer.score(made_models.request(2))
    rows = scorer.raw_rows.encode(dict(zip(names, values, strict=True)))
    np.testing.assert_array_equal(scorer.score(rows), expected)


def test_answer_of_a_part_with_tables(folder):
    model = ServedModel(folder, RAW._replace(role="sparse"))
    model.warm_up()
    answer = model.answer(model.check(tensors()))
    assert answer.keys() == {"embeddings", NUMERICAL}
    np.testing.assert_array_equal(answer[NUMERICAL], NUMBERS)


def test_encoder_of_another_data_set(tmp_path):
    folder = write(tmp_path / "1", RAW._replace(encoder="0123456789abcdef"))
    message = f"expected the encoder of the deployment, digest 0123456789ab, got {RAW.encoder[:12]}"
    with pytest.raises(ValueError, match=message):
        ServedModel(folder, RAW._replace(encoder="0123456789abcdef"))
    changed = INTERFACE.features[2]._replace(cardinality=3)
    features = (*INTERFACE.features[:2], changed, *INTERFACE.features[3:])
    with pytest.raises(
        ValueError, match="feature 'city': expected .* 1, at most 3 ids.*got hotness 1, 4 ids"
    ):
        check_encoder(ENCODER, INTERFACE._replace(features=features))
    with pytest.raises(ValueError, match="feature 'city': expected .*, got none"):
        check_encoder(replace(ENCODER, features=ENCODER.features[:3]), INTERFACE)


def test_truncated_vocabulary(tmp_path):
    folder = write(tmp_path / "1")
    path = folder / "encoder/vocabulary/city.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"city.parquet: its checksum differs .*; deploy the"):
        ServedModel(folder, RAW)
    path.unlink()
    with pytest.raises(ValueError, match=r"city.parquet: cannot be read"):
        ServedModel(folder, RAW)
