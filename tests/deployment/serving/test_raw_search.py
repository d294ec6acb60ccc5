"""Recommendations by original values: a search with a model of some lines."""

import numpy as np
import pyarrow as pa
import pytest

from deployment.serving.catalogue_search import CatalogueSearch
from deployment.serving.checks import BadRequest
from deployment.serving.interface import (
    CANDIDATES_FILE,
    RECOMMENDER,
    Interface,
    RawColumn,
    ServedFeature,
    ServedTensor,
    answered,
)
from deployment.serving.raw.input_columns import items_dtype, raw_columns
from deployment.serving.raw.raw_catalogue import RawSearch, _known_ids
from deployment.serving.scorer import open_raw_requests
from preproc.encoding.arrow_columns import InvalidValue
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import HashBuckets, Identity
from tests.deployment.serving import made_raw_histories
from tests.deployment.serving.made_raw_histories import HISTORY, RAW_SEARCH, TARGET, write_encoder
from tests.deployment.serving.made_raw_model import vocabulary

# Movies 10, 20, ..., 50 have the ids 0 to 4.
MOVIES = vocabulary("item", "10", "20", "30", "40", "50", column="movie", first_id=0)
USERS = vocabulary("user", "u1", "u2", column="person", first_id=0)


def open_search(folder, encoder, interface, candidates, logits_of):
    write_encoder(folder, encoder)
    np.save(folder / CANDIDATES_FILE, candidates)
    search = CatalogueSearch(folder, interface._replace(columns=()), logits_of)
    requests = open_raw_requests(folder, interface)
    return RawSearch(requests, search, interface), search


def searched(opened, request):
    """Items and the number of finite scores of each row."""
    raw_search, search = opened
    ids, logits = search.search(raw_search.check(request))
    return raw_search.original_items(ids).tolist(), np.isfinite(logits).sum(axis=1).tolist()


def movie_logits(arrays):
    """User u1 prefers movies of high ids, u2 those of low ids."""
    return np.where(arrays["user"] == 0, arrays["item"], -arrays["item"]).astype(np.float32)


@pytest.fixture(params=["int64", "text"])
def movies(request, tmp_path):
    """A search of ids as integers and as texts."""
    items = vocabulary(
        *("item", *MOVIES.values.to_pylist()),
        column="movie",
        first_id=0,
        is_integer=request.param == "int64",
    )
    encoder = Encoder((USERS, items))
    tensors = tuple(ServedTensor(name, "int64", (1,)) for name in ("user", "item"))
    features = (ServedFeature("user", "user", 0, 1, 2), ServedFeature("item", "item", 0, 1, 5))
    interface = Interface(
        *("ncf", tensors, features, (), (), (), 0),
        role=RECOMMENDER,
        top=3,
        candidate_input="item",
        items=items_dtype(items),
        encoder=encoder.digest,
    )
    interface = interface._replace(columns=raw_columns(encoder, interface))
    assert interface.items == request.param
    candidates = np.arange(5)[:, np.newaxis]
    return open_search(tmp_path, encoder, interface, candidates, movie_logits), request.param


def people(*names):
    return {"person": np.array([[name.encode()] for name in names], object)}


def in_kind(kind, rows):
    """Rows of items as the answer has them."""
    if kind == "int64":
        return [[item or -1 for item in row] for row in rows]
    return [[str(item).encode() if item else b"" for item in row] for row in rows]


def test_items_of_users(movies):
    opened, kind = movies
    items, counts = searched(opened, people("u2", "u1"))
    assert items == in_kind(kind, [[10, 20, 30], [50, 40, 30]]) and counts == [3, 3]


def test_top(movies):
    opened, kind = movies
    items, counts = searched(opened, people("u2", "u1") | {"top": np.array([[1], [2]])})
    assert items == in_kind(kind, [[10, 0], [50, 40]]) and counts == [1, 2]
    for top, message in (
        ([[4], [1]], "row 0 .*1 to 3 items.*got 4"),
        ([[1], [0]], "row 1 .*got 0"),
    ):
        with pytest.raises(BadRequest, match=message):
            searched(opened, people("u1", "u2") | {"top": np.array(top)})


def test_excluded_items(movies):
    """Empty texts stand for no item; a row with fewer items left is filled."""
    opened, kind = movies
    lists = np.array([[b"10", b"", b"30"], [b"50", b"", b""]], object)
    items, _ = searched(opened, people("u2", "u1") | {"excluded_items": lists})
    assert items == in_kind(kind, [[20, 40, 50], [40, 30, 20]])
    as_text = np.array([[b"10;20;30;40"]], object)
    items, counts = searched(opened, people("u1") | {"excluded_items": as_text})
    assert items == in_kind(kind, [[50, 0, 0]]) and counts == [1]
    none = np.empty((1, 0), object)
    assert searched(opened, people("u1") | {"excluded_items": none})[1] == [3]


def test_bad_requests(movies):
    opened, _ = movies
    with pytest.raises(BadRequest, match="column 'person', row 1 .*one of the 2 values.*got 'u3'"):
        searched(opened, people("u1", "u3"))
    with pytest.raises(
        BadRequest, match="got the tensor user; needed: person; optional: top, excl"
    ):
        searched(opened, {"user": np.array([[0]])})
    for bad, rule in (
        (b"\xff", "UTF-8 text"),
        (b"60", "one of the 5 items .* 10, 20, 30 .*got '60'"),
    ):
        lists = np.array([[b"10", b""], [b"", bad]], object)
        with pytest.raises(BadRequest, match=f"column 'excluded_items', row 1 .*expected {rule}"):
            searched(opened, people("u1", "u2") | {"excluded_items": lists})


def test_excluded_items_without_vocabulary():
    encoding, missing = Identity(name="item", column="item", cardinality=3), pa.array([""])
    assert _known_ids(encoding, pa.array(["2", "", "0"]), missing).tolist() == [2, -1, 0]
    for bad in ("3", "-1"):
        with pytest.raises(InvalidValue) as caught:
            _known_ids(encoding, pa.array(["1", bad]), missing)
        assert caught.value.index == 1 and "the 3 items" in caught.value.rule


def test_histories(tmp_path):
    """The target is left out of requests; its features come from the catalogue."""
    assert RAW_SEARCH.columns == (
        RawColumn("shopper", "int64", is_optional=True, example=7),
        RawColumn("item_pos", "text", is_list=True, is_optional=True, example=["a", "b"]),
        RawColumn("top", "int64", is_optional=True, example=2),
        RawColumn("excluded_items", "text", is_list=True, is_optional=True, example=["a", "b"]),
    )
    assert answered(RAW_SEARCH) == (
        ServedTensor("items", "text", (-1,)),
        ServedTensor("scores", "float32", (-1,)),
    )

    def logits_of(arrays):
        """Books of the genre of the last one read."""
        is_same = arrays[TARGET][:, 1:] == arrays[HISTORY][:, 1, -1:]
        return np.where(is_same, arrays[TARGET][:, :1], 0).astype(np.float32)

    candidates = np.array([[1, 2], [2, 1], [3, 2]])
    encoder = made_raw_histories.ENCODER
    opened = open_search(tmp_path, encoder, RAW_SEARCH, candidates, logits_of)
    history = np.array([[b"b", b"a", b"?"], [b"c", b"b", b""]], object)
    items, _ = searched(opened, {"shopper": np.array([[7], [7]]), "item_pos": history})
    assert items == [[b"c", b"a"], [b"b", b"a"]]


@pytest.mark.parametrize(
    ("encoding", "dtype"),
    [
        (vocabulary("x", "1", "2", is_integer=True), "int64"),
        (vocabulary("x", "1", "-1", is_integer=True), "text"),
        (vocabulary("x", "1", "007", is_integer=True), "text"),
        (vocabulary("x", "1", "9223372036854775808", is_integer=True), "text"),
        (vocabulary("x", "1", "2"), "text"),
        (Identity(name="x", column="x", cardinality=3), "int64"),
        (HashBuckets(name="x", column="x", buckets=3), ""),
    ],
)
def test_dtype_of_items(encoding, dtype):
    assert items_dtype(encoding) == dtype
