"""Positions of texts: batches and single values agree with `index_in`."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from preproc.encoding import vocabulary_lookup
from preproc.encoding.vocabulary_lookup import TextIndex

VALUES = ["", "a", "ab", "abcdefgh", "abcdefghi", "abcdefgh\0", "\u00e4" * 20, "x" * 100]
OTHERS = [None, "\0", "A", "abcdefgi", "abcdefgh\0\0", "x" * 99, "x" * 101, "y" * 5000]


def index_in(texts, values):
    return pc.fill_null(pc.index_in(texts, values, skip_nulls=True), -1).to_pylist()


def test_find():
    values, texts = pa.array(VALUES), pa.array([*OTHERS, *VALUES] * 2)
    index = TextIndex(values)
    expected = index_in(texts, values)
    assert expected[8:16] == list(range(8))
    assert index.find(texts).tolist() == expected
    assert index.find(texts.slice(3, 20)).tolist() == expected[3:23]
    for start in range(len(texts)):
        assert index.find(texts.slice(start, 1)).tolist() == expected[start : start + 1]
    assert index.find(texts.slice(0, 0)).tolist() == []


def test_many_values():
    values = pa.array([str(number) for number in range(30_000)]).slice(1000)
    texts = pa.array(np.random.default_rng(0).integers(0, 31_000, 20_000)).cast(pa.string())
    assert TextIndex(values).find(texts).tolist() == index_in(texts, values)


def test_no_values_and_repeated_ones():
    assert TextIndex(pa.array([], pa.string())).find(pa.array(["a", None])).tolist() == [-1, -1]
    with pytest.raises(ValueError, match="each value once, got 'b' twice"):
        TextIndex(pa.array(["b", "a", "b"]))


def test_equal_hashes(monkeypatch):
    """Other texts with the hash of a value are not found; values with equal hashes get others."""
    hashes = vocabulary_lookup._hashes

    def weak(texts, longest, seed):
        return hashes(texts, longest, seed) if seed == 2 else np.zeros(len(texts), np.uint64)

    monkeypatch.setattr(vocabulary_lookup, "_hashes", weak)
    assert TextIndex(pa.array(["a"])).find(pa.array(["b", "a"] * 10)).tolist() == [-1, 0] * 10
    index = TextIndex(pa.array(["a", "b"]))
    assert index.find(pa.array(["b", "c", "a"] * 10)).tolist() == [1, -1, 0] * 10
    assert index.find(pa.array(["b"])).tolist() == [1]
