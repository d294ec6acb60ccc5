"""Facts of columns: numbers, ids, lists, codes."""

import itertools

import pytest

from preproc.fitting.infer import IDS, NUMBERS, OTHER


def texts(*values):
    quoted = ('"' + value.replace('"', '""') + '"' for value in values)
    return "x,y\n" + "".join(f"{value},1\n" for value in quoted)


@pytest.mark.parametrize(
    ("values", "kind", "is_whole"),
    [
        (["1", "2", "-3", "+4"], NUMBERS, True),
        (["1", "", "NA", "NULL", "-", "nan"], NUMBERS, True),
        (["1.5", "2", ".5", "1e-3"], NUMBERS, False),
        (["1", "2", "x"], IDS, False),  # one odd value
        (["1e400", "2.5"], NUMBERS, False),
        (["007", "123"], IDS, True),  # a code with leading zeros
        (["0", "0.5", "-0.25"], NUMBERS, False),
        (["1234567890123456", "2"], IDS, True),  # a code of 16 digits
        (["1,5", "2"], IDS, False),
        (["", "NA"], OTHER, None),
    ],
)
def test_kinds_of_texts(values, kind, is_whole, count, read):
    _, facts = count(read(texts(*values)))
    assert facts.kind == kind
    if is_whole is not None:
        assert facts.is_whole is is_whole
    assert facts.hotness == 1 and not facts.list_form


def test_counts(count, read):
    _, facts = count(read(texts("a", " a ", "b", "", "NA", "b", "b")))
    assert (facts.present, facts.missing, facts.distinct) == (5, 2, 2)
    assert str(facts) == "text, 2 different"
    _, facts = count(read(texts("1", "7.0")))
    assert facts.has_point and str(facts) == "integers, 2 different"


@pytest.mark.parametrize(
    ("values", "form", "hotness", "distinct"),
    [
        (["a;b", "a", "b", "", "b;a;a", "a;a"], ";", 3, 2),
        (["a;b", "c"], "", 1, 2),  # more values than texts: remarks
        (["a", "b", "c"] * 40 + ["a;b"], "", 1, 4),  # under 1 %
        (['["a", "b"]', '["a"]', "[]"], "strings", 2, 2),
        (["[1, 2, 3]", "[ ]", "[4]", ""], "numbers", 3, 4),
        (['["a, b", "c"]', '["c" ,"d"]', '["d","c"]'], "strings", 2, 3),
        (['["a", 1]', '["a"]'], "", 1, 2),  # of several types
        (['["a\\"b", "c"]', '["a"]'], "", 1, 2),  # escaped
        (['["a"]', '["b"]'], "", 1, 2),  # single values
    ],
)
def test_lists_of_texts(values, form, hotness, distinct, count, read):
    _, facts = count(read(texts(*values)))
    assert (facts.list_form, facts.hotness, facts.distinct) == (form, hotness, distinct)
    assert facts.kind == IDS
    if hotness > 1:
        assert str(facts).startswith(f"lists of up to {hotness}, {distinct} different")


def test_known_lists(count, read):
    _, facts = count(read(texts("a;b", "c")), is_list=True)
    assert (facts.list_form, facts.hotness, facts.distinct) == (";", 2, 3)


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
