"""Checks of requests: valid ones pass unchanged; errors name the rule and the place."""

import numpy as np
import pytest

from deployment.serving.checks import BadRequest, RequestChecker, find_misplaced_padding
from deployment.serving.interface import (
    Interface,
    ServedFeature,
    ServedLookup,
    ServedTable,
    ServedTensor,
)
from tests.deployment.serving.made_models import CATEGORICAL, CLICKS, NUMERICAL, request


def check(interface, arrays):
    return RequestChecker(interface).check(arrays)


def test_largest_ids_and_layouts():
    arrays = request(3)
    arrays[CATEGORICAL][1] = [3, 4, 4, 5, 5, 5]
    arrays[CATEGORICAL] = np.asfortranarray(arrays[CATEGORICAL])
    assert RequestChecker(CLICKS).check(arrays)[CATEGORICAL] is arrays[CATEGORICAL]


@pytest.mark.parametrize(
    ("row", "column", "value", "feature", "message"),
    [
        (2, 0, 4, "city", r"'city', row 2 \(counted from 0\): 4; ids lie in \[0, 4\); --unknown"),
        (0, 0, -1, "city", r"'city', row 0 .*: -1; ids lie in \[0, 4\)$"),
        (1, 2, 5, "tags", r"'tags', row 1 .*: 5; ids lie in \[0, 5\)"),
        (1, 5, 6, "words", r"'words', row 1 .*: 6; ids lie in \[0, 6\), -1 is for no id"),
    ],
)
def test_ids_out_of_range(row, column, value, feature, message):
    arrays = request(3)
    arrays[CATEGORICAL][row, column] = value
    with pytest.raises(BadRequest, match=message) as caught:
        check(CLICKS, arrays)
    assert (caught.value.feature, caught.value.row) == (feature, row)
    assert caught.value.value == str(value)


def test_first_bad_row():
    arrays = request(8)
    arrays[CATEGORICAL][[6, 2], [0, 3]] = 9
    with pytest.raises(BadRequest, match="'words', row 2 "):
        check(CLICKS, arrays)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_infinite_numerical_features(value):
    arrays = request(3)
    arrays[NUMERICAL][1, 1] = value
    with pytest.raises(BadRequest, match=f"'age', row 1 .*: {value}; numerical features are"):
        check(CLICKS, arrays)


def test_unknown_ids_as_zero():
    arrays = request(3)
    arrays[CATEGORICAL][2] = [4, 5, 3, 6, -1, 2**31 - 1]
    before = arrays[CATEGORICAL].copy()
    checked = check(CLICKS._replace(unknown_ids="zero"), arrays)
    assert checked[CATEGORICAL][2].tolist() == [0, 0, 3, 0, -1, 0]
    assert np.array_equal(checked[CATEGORICAL][:2], before[:2])
    assert np.array_equal(arrays[CATEGORICAL], before)  # the request itself is left as it is
    assert checked[CATEGORICAL].dtype == np.int32

    arrays[CATEGORICAL][1, 0] = -1
    with pytest.raises(BadRequest, match=r"'city', row 1 .*: -1; ids lie in \[0, 4\)$"):
        check(CLICKS._replace(unknown_ids="zero"), arrays)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({CATEGORICAL: None}, "has the tensors numerical_features; needed: categorical_features,"),
        ({CATEGORICAL: np.zeros((3, 6))}, r"is float64 \[3, 6\]; needed: int32 \[batch, 6\]"),
        ({CATEGORICAL: np.zeros((3, 5), "i4")}, r"is int32 \[3, 5\]; needed: int32 \[batch, 6\]"),
        ({NUMERICAL: np.zeros(2, "f4")}, r"is float32 \[2\]; needed: float32 \[batch, 2\]"),
        ({CATEGORICAL: np.zeros((2, 6), "i4")}, "has 2 rows and 'numerical_features' has 3;"),
    ],
)
def test_invalid_tensors(changes, message):
    arrays = {k: v for k, v in (request(3) | changes).items() if v is not None}
    with pytest.raises(BadRequest, match=message):
        check(CLICKS, arrays)


@pytest.mark.parametrize("rows", [0, 9])
def test_empty_and_large_batches(rows):
    with pytest.raises(BadRequest, match=f"has {rows} rows; expected 1 to 8"):
        check(CLICKS, request(rows))


def test_checks_of_ensemble_parts():
    arrays = request(3)
    dense = RequestChecker(CLICKS._replace(role="dense"))
    inputs = {"embeddings": np.zeros((3, 7), np.float32), NUMERICAL: arrays[NUMERICAL]}
    assert dense.check(inputs).keys() == inputs.keys()
    inputs[NUMERICAL][0, 0] = np.nan
    with pytest.raises(BadRequest, match="'price', row 0"):
        dense.check(inputs)
    with pytest.raises(BadRequest, match=r"'embeddings' is float32 \[3, 6\]; needed: .*7\]"):
        dense.check(inputs | {"embeddings": np.zeros((3, 6), np.float32)})
    sparse = RequestChecker(CLICKS._replace(role="sparse"))
    with pytest.raises(BadRequest, match="'city', row 2 "):
        arrays[CATEGORICAL][2, 0] = 4
        sparse.check({CATEGORICAL: arrays[CATEGORICAL]})


@pytest.mark.parametrize(
    ("role", "dtype"), [("scorer", "int32"), ("sparse", "int64"), ("dense", "int64")]
)
def test_padding_of_histories(role, dtype):
    """Zeros come first, at the same steps of both features, in every part of a model."""
    interface = Interface(
        "sim",
        (ServedTensor("target", dtype, (1,)), ServedTensor("history", dtype, (2, 4))),
        (
            ServedFeature("target", "target", 0, 1, 10),
            ServedFeature("item", "history", 0, 4, 10),
            ServedFeature("shop", "history", 4, 4, 5),
        ),
        (ServedLookup("item", "history", 0, 4, None), ServedLookup("item", "target", 0, 1, None)),
        (ServedTable("item", 10, 1),),
        ("target", "history"),
        role=role,
        histories=("history",),
    )
    good = [[[0, 0, 0, 0], [0, 0, 0, 0]], [[0, 0, 9, 8], [0, 0, 4, 1]], [[1, 2, 3, 4]] * 2]
    arrays = {"target": np.zeros((3, 1), dtype), "history": np.array(good, dtype)}
    if role == "dense":
        arrays["embeddings"] = np.zeros((3, interface.width), np.float32)
    assert check(interface, arrays)["history"] is arrays["history"]
    for place, value, name, step, message in (
        ((1, 0, 3), 0, "item", 3, "0 after an id; zeros are padding, at the start of a history"),
        ((2, 1, 2), 0, "shop", 2, "0 after an id; zeros"),
        ((1, 1, 2), 0, "shop", 2, "0, and 'item' has 9; zeros are padding, at the same steps"),
        ((1, 1, 1), 3, "shop", 1, "3, and 'item' has 0; zeros are padding, at the same steps"),
    ):
        bad = arrays["history"].copy()
        bad[place] = value
        message = (
            rf"tensor 'history': feature '{name}', row {place[0]}, step {step} \(.*\): {message}"
        )
        with pytest.raises(BadRequest, match=message) as caught:
            check(interface, {**arrays, "history": bad})
        assert (caught.value.feature, caught.value.row) == (name, place[0])
    bad = np.where(arrays["history"] == 9, 10, arrays["history"])
    # An unknown id does not become 0 here.
    with pytest.raises(BadRequest, match=r"'item', row 1 .*: 10; ids lie in \[0, 10\)$"):
        check(interface, {**arrays, "history": bad})


def test_cardinality_above_dtype_range():
    """Every int32 of 0 or more is valid, and a negative one is not."""
    interface = CLICKS._replace(
        inputs=(ServedTensor("ids", "int32", (1,)),),
        features=(ServedFeature("a", "ids", 0, 1, 2**32 + 5),),
    )
    ids = np.int32([[0], [7], [2**31 - 1]])
    assert check(interface, {"ids": ids})["ids"] is ids
    with pytest.raises(BadRequest, match="'a', row 0 .*: -1; ids lie in"):
        check(interface, {"ids": np.int32([[-1]])})


@pytest.mark.parametrize("features", [1, 3])
def test_padding_of_a_batch_against_single_rows(features):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, (400, features, 4))
    for row in rows:
        lists = row.tolist()
        events = [[i for i in history if i] for history in lists]
        good = len({len(ids) for ids in events}) == 1 and all(
            history == [0] * (4 - len(ids)) + ids
            for history, ids in zip(lists, events, strict=True)
        )
        assert (find_misplaced_padding(row[np.newaxis]) is None) == good
