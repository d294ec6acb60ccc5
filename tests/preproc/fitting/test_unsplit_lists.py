"""Texts that look like lists: separators and brackets that are not read as lists."""

import itertools

import pytest

GENRES = ("Action", "Comedy", "Drama", "War")
PAIRS = list(itertools.permutations(GENRES, 2))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["Drama", "Drama|War", "Drama|War", "Drama|War|Comedy"], ("Drama|War", 3)),
        ([*GENRES, *map(", ".join, PAIRS)], ("Action, Comedy", 4)),
        (["a|b", "c|d"], None),  # more values than combinations
        ([f"Zug {i}, ZG" for i in range(20)], None),
        (["['a', 'b']", "['a']", "['b', 'a']"], ("['a', 'b']", 2)),  # of Python
        (["[1 2]", "[2 1]", "[1]"], ("[1 2]", 2)),  # of NumPy
        (["{a,b}", "{a}", "{b}"], ("{a,b}", 2)),  # of PostgreSQL
        (["one two", "two one", "two", "one"], None),
        (["a"] * 9 + ["a|a"], None),  # few have a separator
    ],
)
def test_lists_by_hand(values, expected, count, read):
    table = read("x\ty\n" + "".join(f"{value}\t1\n" for value in values))
    _, facts = count(table)
    assert facts.unsplit_lists == expected
    assert not facts.list_form
