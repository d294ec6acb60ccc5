"""The search of a catalogue against a full sort, with a model of some lines."""

import numpy as np
import pytest

from deployment.serving.catalogue_search import CatalogueSearch
from deployment.serving.checks import BadRequest
from deployment.serving.interface import (
    CANDIDATES_FILE,
    RECOMMENDER,
    Interface,
    ServedFeature,
    ServedTensor,
)

ITEMS = np.arange(2, 9002, 3)  # more than one block


def logits_of(arrays):
    """Many ties: 7 different values."""
    return ((arrays["user"] * 5 + arrays["item"] * 31) % 7 - 3).astype(np.float32)


def search_of(folder, logits_of=logits_of, top=20, items=ITEMS):
    np.save(folder / CANDIDATES_FILE, items[:, np.newaxis])
    tensors = tuple(ServedTensor(name, "int64", (1,)) for name in ("user", "item"))
    features = tuple(ServedFeature(t.name, t.name, 0, 1, 9002) for t in tensors)
    interface = Interface(
        *("ncf", tensors, features, (), (), (), 0),
        role=RECOMMENDER,
        top=top,
        candidate_input="item",
    )
    return CatalogueSearch(folder, interface, logits_of)


def test_full_sort(tmp_path):
    search = search_of(tmp_path)
    excluded = np.array([[-1, -1], [5, ITEMS[-1]], [2, -1]])
    users = np.array([[1], [2], [3]])
    answer = search.search(search.check({"user": users, "excluded_items": excluded}))
    for user, left_out, items, highest in zip(users, excluded, *answer, strict=True):
        logits = logits_of({"user": user, "item": ITEMS})
        order = [place for place in np.lexsort((ITEMS, -logits)) if ITEMS[place] not in left_out]
        assert items.tolist() == ITEMS[order[:20]].tolist()
        np.testing.assert_array_equal(highest, logits[order[:20]])


def test_fewer_items(tmp_path):
    search = search_of(tmp_path, top=4, items=np.array([3, 5, 8]))
    request = {"user": np.array([[1], [2]]), "excluded_items": np.array([[5, -1, -1], [3, 8, 5]])}
    items, logits = search.search(search.check(request))
    assert items.tolist() == [[8, 3, -1, -1], [-1] * 4]
    assert np.isfinite(logits).tolist() == [[True, True, False, False], [False] * 4]


def test_bad_requests(tmp_path):
    search = search_of(tmp_path)
    user = np.array([[1], [2]])
    for excluded in (np.array([[1]]), np.array([1, 2]), np.array([[1], [2]], np.int32)):
        with pytest.raises(BadRequest, match=r"'excluded_items' is .* needed: int64 \[2, items\]"):
            search.check({"user": user, "excluded_items": excluded})
    for bad in (-2, 9002):
        with pytest.raises(BadRequest, match=f"row 1 .*ids of items in .0, 9002.*got {bad}"):
            search.check({"user": user, "excluded_items": np.array([[9001], [bad]])})
    with pytest.raises(BadRequest, match="feature 'user', row 1 .*: 9002"):
        search.check({"user": np.array([[1], [9002]])})
    with pytest.raises(BadRequest, match="the request has the tensors item, user"):
        search.check({"user": user, "item": user})
    for logit in (np.nan, 1.0):
        bad = search_of(tmp_path, lambda arrays, x=logit: np.where(arrays["item"] == 5, x, 0.0))
        checked = bad.check({"user": user})
        if np.isnan(logit):
            with pytest.raises(BadRequest, match="the score of row 0"):
                bad.search(checked)
        else:
            assert bad.search(checked)[0][:, 0].tolist() == [5, 5]


def test_damaged_catalogue(tmp_path):
    search_of(tmp_path)
    (tmp_path / CANDIDATES_FILE).write_bytes(b"")
    with pytest.raises(ValueError, match="candidates.npy: cannot be read .*; deploy"):
        CatalogueSearch(tmp_path, Interface("ncf", (), (), (), (), (), role=RECOMMENDER), logits_of)
