"""Histories of raw rows: lists of original items of any length."""

import numpy as np
import pytest

from deployment.serving.checks import BadRequest
from deployment.serving.interface import RawColumn
from deployment.serving.raw.encoded_rows import RawRows
from deployment.serving.raw.input_columns import check_encoder, lacking
from deployment.serving.raw.requests import RawRequests
from preproc.encoding.encoder import Encoder
from tests.deployment.serving.made_raw_histories import (
    ENCODER,
    HISTORY,
    INTERFACE,
    RAW,
    TARGET,
    USER,
    write_encoder,
)
from tests.deployment.serving.made_raw_model import vocabulary


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return RawRows(write_encoder(tmp_path_factory.mktemp("model")), RAW)


def texts(*rows):
    return np.array([[text.encode() for text in row] for row in rows], object)


def test_columns():
    """The genre follows from the book; the target is needed, the others are not."""
    assert RAW.columns == (
        RawColumn("shopper", "int64", is_optional=True, example=7),
        RawColumn("book", "text", example="a"),
        RawColumn("item_pos", "text", is_list=True, is_optional=True, example=["a", "b"]),
    )


def test_rows_of_any_length(rows):
    """The latest are kept; unknown ones and their genres are left out."""
    batch = {
        "shopper": [12, 7, 99],
        "book": ["c", "b", "?"],
        "item_pos": [["a"], ["b", "?", "c", "a", "?", "b"], []],
    }
    arrays = rows.encode(batch)
    assert arrays[USER].tolist() == [[2], [1], [0]]
    assert arrays[TARGET].tolist() == [[3, 2], [2, 1], [0, 0]]
    assert arrays[HISTORY].tolist() == [
        [[0, 0, 1], [0, 0, 2]],
        [[3, 1, 2], [2, 2, 1]],
        [[0, 0, 0], [0, 0, 0]],
    ]
    assert all(array.dtype == np.int64 for array in arrays.values())


def test_tensors_of_a_request(rows):
    requests = RawRequests(rows, RAW)
    tensors = {"shopper": np.array([[7], [7]]), "book": texts(["a"], ["a"])}
    history = texts(["c", "a", "b", "?", "b"], ["c", "", "", "", ""])
    arrays = requests.check(tensors | {"item_pos": history})
    assert arrays[HISTORY][:, 0].tolist() == [[1, 2, 2], [0, 0, 3]]
    assert not requests.check(tensors)[HISTORY].any()
    arrays = requests.check(tensors | {"item_pos": texts(["b;c"], ['["a"]'])})
    assert arrays[HISTORY][:, 0].tolist() == [[0, 2, 3], [0, 0, 1]]


def test_encoded_rows(tmp_path):
    """Without an encoder, each history has a column of ids."""
    rows = RawRows(tmp_path, INTERFACE._replace(encoder=""))
    names = [column.name for column in rows.columns]
    assert names == ["user_id", "item", "genre", "item_pos", "genre_pos"]
    batch = {"user_id": [1, 2], "item": [3, 1], "genre": [2, 2]}
    histories = {"item_pos": [[3, 2], [0, 0, 1]], "genre_pos": [[2, 1], [0, 0, 2]]}
    arrays = rows.encode(batch | histories)
    assert arrays[HISTORY].tolist() == [[[0, 3, 2], [0, 2, 1]], [[0, 0, 1], [0, 0, 2]]]
    with pytest.raises(BadRequest, match="column 'genre_pos', row 1 .*: expected as many values"):
        rows.encode(batch | histories | {"genre_pos": [[2, 1], [2]]})


def test_encoders_of_others():
    check_encoder(ENCODER, INTERFACE)
    assert lacking(ENCODER, INTERFACE) == []
    user, item = ENCODER.features
    without = Encoder((user, vocabulary("item", "a", "b", "c", column="book")))
    assert lacking(without, INTERFACE) == ["genre", "genre_pos"]
    with pytest.raises(ValueError, match="feature 'genre': expected an encoder .*, got none"):
        check_encoder(without, INTERFACE)
    larger = Encoder((vocabulary("user_id", "7", "12", "13"), item))
    with pytest.raises(ValueError, match="feature 'user_id': .*at most 3 ids.*got .*4 ids"):
        check_encoder(larger, INTERFACE)
