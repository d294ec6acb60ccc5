"""Review and metadata lines: the rule, the quick readers beside it, the files they are in."""

import ast
import gzip
import json

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preproc.amazon_books.lines import line_files, literal_lines, metadata_lines, review_lines
from preproc.amazon_books.lines.json_reader import JsonReader
from preproc.amazon_books.lines.line_files import LinePiece, find_files, pieces, stage_lines
from preproc.arguments import MachineOptions

REVIEW = '{"reviewerID": "A1", "asin": "B1", "unixReviewTime": 5}'
BAD_REVIEWS = {
    '{"asin": "B1", "unixReviewTime": 5}': "reviewerID is missing; it must be text",
    '{"reviewerID": 12, "asin": "B1", "unixReviewTime": 5}': "reviewerID is 12; it must be text",
    '{"reviewerID": "A", "asin": "", "unixReviewTime": 5}': "asin is ''; it must be text",
    '{"reviewerID": "A", "asin": ["B"], "unixReviewTime": 5}': "asin is .'B'.; it must be text",
    '{"reviewerID": "A", "asin": "B", "unixReviewTime": "5"}': "unixReviewTime is '5'; it must be",
    '{"reviewerID": "A", "asin": "B", "unixReviewTime": 5.5}': "unixReviewTime is 5.5; it must",
    '{"reviewerID": "A", "asin": "B", "unixReviewTime": true}': "unixReviewTime is True; it must",
    '{"reviewerID": "A", "asin": "B", "unixReviewTime": 1e30}': "unixReviewTime is 1e.30; it must",
    '{"reviewerID": "A", "asin": "B", "unixReviewTime": 9223372036854775808}': "integer of 64 bits",
    '{"reviewerID": "A", "reviewerID": "A", "asin": "B", "unixReviewTime": 5}': "is there twice",
    '{"reviewerID": "A\\ud800", "asin": "B", "unixReviewTime": 5}': "reviewerID has half a char",
    '{"reviewerID": "A", "asin": "B"': "it is not JSON .*delimiter",
    REVIEW[:-1] + ", }": "it is not JSON",
    REVIEW[:-1] + ', "x": [1,\t]}': "it is not JSON",
    REVIEW[:-1] + ', "x": {"y": 1,}}': "it is not JSON",
    REVIEW[:-1] + ', "x": -inf}': "it is not JSON",
    REVIEW[:-1] + ', "x": [nan]}': "it is not JSON",
    "null": "it is JSON, but no object",
    "[1]": "it is JSON, but no object",
}
METADATA = {
    '{"asin": "B1", "categories": [["Books", "X"], ["Books", "Y"]]}': ("B1", "Y"),
    '{"asin": "B1", "categories": [["Books"], []]}': ("B1", None),
    '{"asin": "B1", "categories": []}': ("B1", None),
    '{"asin": "B1", "categories": [[""]]}': ("B1", None),
    '{"asin": "B1", "categories": null, "price": null}': ("B1", None),
    '{"asin": "B1"}': ("B1", None),
    '{"price": 1.5, "categories": [["x"], ["y", "caf\\u00e9 \\"null\\""]], "asin": "B\\/1"}': (
        "B/1",
        'café "null"',
    ),
}
LITERALS = {
    "{'asin': 'B1', 'categories': [['Books', 'Children\\'s']]}": ("B1", "Children's"),
    "{'asin': 'B1', 'categories': [['Books', \"Children's\"]], 'price': 9.5}": ("B1", "Children's"),
    "{'categories': [['a'], ['b', 'c']], 'related': {'x': ['y', 'z']}, 'asin': 'B1'}": ("B1", "c"),
    "{'asin': 'B1', 'categories': [['Books'], []]}": ("B1", None),
    "{'asin': 'B1', 'title': \"'asin': 'no'\", 'also': {'asin': 'no'}}": ("B1", None),
    "{'asin': 'B1', 'categories': [['\\u00e9\\N{BULLET}']]}": ("B1", "é•"),
    "{'asin': 'B1', 'categories': [['caf\\xe9']], 'rank': {}, 'x': -1.}": ("B1", "café"),
    "{ 'asin' :'B1','categories':[['x',],], 't': (1, 2), 'd': {'a': [['deep', [None]]]}}": (
        "B1",
        "x",
    ),
    "{'asin': 'B1', 'asin': 'B2', 'categories': [['x']]}": ("B2", "x"),
    "{'asin': 'B1', 'price': 007}": "neither JSON nor a Python literal",
    "{'asin': 'B1', 'price': f()}": "neither JSON nor a Python literal .*malformed node",
    "{'asin': 'B1', 'price': 1": "neither JSON nor a Python literal",
    "{'asin': 'B1', 'x': " + "[" * 5000 + "]" * 5000 + "}": "neither JSON nor a Python literal",
    "{'asin': 'B1', {}: 1}": "neither JSON nor a Python literal .*unhashable",
    "{'asin': 'B1', 'categories': [['\\ud800']]}": "categories has half a character",
    "['asin']": "a Python literal, but no dictionary",
    "{'asin': ''}": "asin is ''; it must be text",
    "{'asin': 5}": "asin is 5; it must be text",
    "{'title': 'asin'}": "asin is missing",
}
BAD_METADATA = {
    f'{{"asin": "B1", "categories": {value}}}': "categories is .*; it must be a list of lists"
    for value in ('"x"', '["x"]', "[[1]]", '[["a", null]]', '[["a"], null]', "{}", '[[["a"]]]')
}


def reader(tmp_path):
    return JsonReader(MachineOptions(threads=2), tmp_path)


def result(parse, line):
    try:
        return parse(line)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize(("line", "message"), BAD_REVIEWS.items())
def test_bad_reviews(line, message):
    with pytest.raises(ValueError, match=message):
        review_lines.parse(line)


def test_good_review():
    line = '{"x": {"asin": 1, "asin": 2}, "reviewerID": "\\u00e9\\n", "asin": "B", '
    assert review_lines.parse(line + '"unixReviewTime": -5}') == ("é\n", "B", -5)


@pytest.mark.parametrize(("line", "expected"), [*METADATA.items(), *LITERALS.items()])
def test_metadata(line, expected):
    if isinstance(expected, tuple):
        assert metadata_lines.parse(line) == expected
    else:
        with pytest.raises(ValueError, match=expected):
            metadata_lines.parse(line)


@pytest.mark.parametrize(("line", "message"), BAD_METADATA.items())
def test_bad_categories(line, message):
    with pytest.raises(ValueError, match=message):
        metadata_lines.parse(line)


def test_usual_literals_are_read_quickly():
    assert [literal_lines.parse_quickly(line) is not None for line in LITERALS] == (
        [True] * 3 + [False, True, False, True] + [False] * 9 + [True] + [False] * 2
    )


NAMES = st.text(st.sampled_from("ab'\"\\\n\té• ,:[]{}"), max_size=5)
VALUES = st.none() | st.booleans() | st.integers(-5, 10**20) | st.floats(-9, 9) | NAMES
FIELDS = st.dictionaries(
    st.sampled_from(["asin", "categories", "title", "related", "asin "]) | NAMES,
    VALUES
    | st.lists(NAMES, max_size=3)
    | st.dictionaries(NAMES, st.lists(NAMES, max_size=2), max_size=2)
    | st.lists(st.lists(NAMES, max_size=2), max_size=3),
    max_size=5,
)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(FIELDS, st.integers(0, 200), st.sampled_from(["", "'", '"', "\\", "}", ", ", "None"]))
def test_literals_like_python_itself(fields, place, change):
    """Written by Python, or with a character in it replaced: what is read quickly is right."""
    line = repr(fields)
    for text in (line, line[:place] + change + line[place + 1 :]):
        quickly = literal_lines.parse_quickly(text)
        if quickly is None:
            continue
        value = ast.literal_eval(text)
        assert quickly[0] == value["asin"]
        expected = value["categories"][-1][-1] if "categories" in value else None
        assert quickly[1] == expected


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(NAMES, NAMES.filter(bool), st.text(max_size=20))
def test_most_literals_are_read_quickly(name, item, text):
    line = repr({"asin": item, "title": text, "categories": [["Books", name]]})
    control = any(ch < " " for ch in repr(text)) or "\\u" in line or "\\U" in line
    if not control:
        assert literal_lines.parse_quickly(line) == (item, name)


# The fast reader


def staged_by(read, path, lines, tmp_path):
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    target = tmp_path / "staged.parquet"
    if not read(path, target):
        return None
    rows = pq.read_table(target).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def test_fast_reviews(tmp_path):
    good = [REVIEW, '{"asin": "\\u00e9\\n\\"", "reviewerID": "B\\u0000", "unixReviewTime": -7}']
    bad_bytes = [REVIEW.encode().replace(b"A1", b"A\xff"), b"\xef\xbb\xbf" + REVIEW.encode()]
    with reader(tmp_path) as json_reader:
        path = tmp_path / "a*[b].json"
        lines = [line.encode() for line in good]
        expected = sorted(review_lines.parse(line) for line in good)
        assert staged_by(json_reader.stage_reviews, path, [*lines, b"", b" "], tmp_path) == expected
        text = REVIEW[:-1] + ', "x": "a,]b, }: nan, \\"", "y": [NaN]}'  # only looks bad
        assert review_lines.parse(text) == ("A1", "B1", 5)
        assert staged_by(json_reader.stage_reviews, path, [text.encode()], tmp_path) is not None
        for line in [*(line.encode() for line in BAD_REVIEWS), *bad_bytes]:
            assert staged_by(json_reader.stage_reviews, path, [lines[0], line], tmp_path) is None, (
                line
            )
        assert staged_by(json_reader.stage_reviews, path, [], tmp_path) == []


@pytest.mark.parametrize("start", [b"\v", b"\f"])
@pytest.mark.parametrize("line", [b"", REVIEW.encode()], ids=["empty", "review"])
def test_space_that_is_not_json(tmp_path, start, line):
    """DuckDB takes a vertical tab and a form feed for blanks; JSON and the other readers do not."""
    path = tmp_path / "reviews.json"
    with reader(tmp_path) as json_reader:
        for odd in (start + line, line + start):
            lines = [REVIEW.encode(), odd]
            assert staged_by(json_reader.stage_reviews, path, lines, tmp_path) is None
            with pytest.raises(ValueError, match="the file, line 2: it is not JSON"):
                stage(path, tmp_path)


@pytest.mark.parametrize("shift", range(4))
def test_character_cut_in_message(tmp_path, shift):
    """DuckDB quotes the first 50 bytes of a line that is JSON of another kind."""
    line = '{"asin": "B", "asin": "B", "x": "' + "a" * shift + "ü" * 40 + '"}'
    path = tmp_path / "reviews.json"
    with reader(tmp_path) as json_reader:
        lines = [REVIEW.encode(), line.encode()]
        assert staged_by(json_reader.stage_reviews, path, lines, tmp_path) is None
        assert staged_by(json_reader.stage_reviews, path, lines[:1], tmp_path) == [("A1", "B1", 5)]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(ValueError, match="the file, line 2: asin is there twice"):
        stage(path, tmp_path)
    assert stage(path, tmp_path, "skip") == (1, [("A1", "B1", 5)])


def test_fast_metadata(tmp_path):
    with reader(tmp_path) as json_reader:
        path = tmp_path / "meta.json"
        for line, expected in METADATA.items():
            found = staged_by(json_reader.stage_metadata, path, [line.encode()], tmp_path)
            assert found == [expected], line
        trailing = '{"asin": "B", "x": 1,}'
        for line in [
            *LITERALS,
            *BAD_METADATA,
            trailing,
            '{"asin": "B", "asin": "B"}',
            '{"asin": 7}',
        ]:
            assert staged_by(json_reader.stage_metadata, path, [line.encode()], tmp_path) is None, (
                line
            )


GOOD = '{"reviewerID": "u", "asin": "a", "unixReviewTime": 7}'
MORE_REVIEWS = {
    "good": [GOOD, '{"unixReviewTime":-1,"o":{"asin":[{}]},"asin":"é\\u0000\\"","reviewerID":"v"}'],
    "\\r": [GOOD + "\r", GOOD],
    "not a line each": [GOOD + GOOD],
    "over two lines": [GOOD[:20], GOOD[20:]],
    "as many of each, all opened": [GOOD[:-1] + ', "o": [', "{}]}" + GOOD],
    "as many of each, all closed": [GOOD + GOOD[:-1] + ', "o": {}', ', "p": 1}'],
    "a list": ["[1]"],
    "no user": [GOOD, '{"asin": "a", "unixReviewTime": 7}'],
    "an empty item": [GOOD.replace('"a"', '""')],
    "no time": [GOOD.replace("7", "null")],
    "half a second": [GOOD.replace("7", "7.5")],
    "time as text": [GOOD.replace("7", '"7"')],
    "a large time": [GOOD.replace("7", "9223372036854775808")],
    "a user of two names": [GOOD.replace("{", '{"reviewerID": "w", ')],
    "a number for an item": [GOOD.replace('"a"', "1")],
    "half a character": [GOOD.replace('"a"', '"\\ud800"')],
    "cut off": [GOOD, GOOD[:-2]],
    "nothing": [],
}  # fmt: skip


def parsed(lines, text):
    """The rows that the slow way makes of a text; None if a line is bad."""
    try:
        return sorted(lines.parse(line.strip()) for line in text.split("\n") if line.strip())
    except ValueError:
        return None


@pytest.mark.parametrize("name", MORE_REVIEWS)
def test_review_lines(tmp_path, name):
    """The same rows as the slow way, or none where a line is bad."""
    lines = [line.encode() for line in MORE_REVIEWS[name]]
    with reader(tmp_path) as json_reader:
        rows = staged_by(json_reader.stage_reviews, tmp_path / "lines", lines, tmp_path)
    assert rows == parsed(review_lines, "\n".join(MORE_REVIEWS[name]))
    assert (rows is None) == (name not in ("good", "\\r", "nothing"))


# Files


def stage(path, tmp_path, on_bad_line="error", first_line=1):
    target = tmp_path / "lines.parquet"
    piece = LinePiece(path, tmp_path / "the file", first_line)
    bad = stage_lines(piece, review_lines.parse, review_lines.SCHEMA, target, on_bad_line)
    return bad, [tuple(row.values()) for row in pq.read_table(target).to_pylist()]


def test_line_by_line(tmp_path, monkeypatch):
    monkeypatch.setattr(line_files, "_BATCH_ROWS", 2)
    monkeypatch.setattr(line_files, "MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "lines.json"
    review = REVIEW.encode()
    lines = [b"\xef\xbb\xbf" + review, b"", b"[]", review + b"\r", b"\xff" + review]
    lines += [b'{"x": "' + b"a" * (3 << 20) + b'"}', review]
    path.write_bytes(b"\n".join(lines))
    assert stage(path, tmp_path, "skip") == (3, [("A1", "B1", 5)] * 3)
    path.write_bytes(b"\n".join(lines[1:]))
    with pytest.raises(ValueError, match=r"the file, line 12: it is JSON, .*--on_bad_line skip"):
        stage(path, tmp_path, first_line=11)
    for line, message in (
        (lines[4], r"line 1: it is not UTF-8 text \(byte 1 is 0xff\)"),
        (lines[5], "line 1: it is 1 MiB long, or longer"),
    ):
        path.write_bytes(line)
        with pytest.raises(ValueError, match=message):
            stage(path, tmp_path)


def test_gzip_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(line_files, "_PIECE_BYTES", 100)
    monkeypatch.setattr(line_files, "_BLOCK_BYTES", 30)
    lines = [json.dumps({"n": i, "text": "x" * (i * 7 % 60)}) for i in range(50)]
    for end in ("", "\n"):
        text = ("\n".join(lines) + end).encode()
        file = tmp_path / "lines.json.gz"
        file.write_bytes(gzip.compress(text))
        with pieces(file, tmp_path) as found:
            parts = [(piece.first_line, piece.path.read_bytes()) for piece in found]
        assert b"".join(part for _, part in parts) == text
        assert len(parts) > 10
        for first, part in parts:
            here = part.decode().splitlines()
            assert here == lines[first - 1 :][: len(here)]
        assert [path.name for path in tmp_path.iterdir()] == ["lines.json.gz"]
    file.write_bytes(gzip.compress(text)[:-9])
    damaged = pytest.raises(ValueError, match="lines.json.gz: the gzip data is cut off or damaged")
    with damaged, pieces(file, tmp_path) as found:
        list(found)
    file.write_bytes(gzip.compress(b""))
    with pieces(file, tmp_path) as found:
        assert [piece.first_line for piece in found] == [1]


def test_finding_files(tmp_path):
    for name in ("reviews_b.json.gz", "reviews_a.json", "meta_a.json", "reviews_c.txt"):
        (tmp_path / name).touch()
    (tmp_path / "reviews_d.json").mkdir()
    found = find_files(tmp_path, "reviews_")
    assert [path.name for path in found] == ["reviews_a.json", "reviews_b.json.gz"]
    with pytest.raises(ValueError, match="--amazon_dataset_path .* is not a folder"):
        find_files(tmp_path / "reviews_a.json", "reviews_")
    (tmp_path / "reviews_b.json").touch()
    message = "reviews_b.json and reviews_b.json.gz, whose lines would count twice; remove one of"
    with pytest.raises(ValueError, match=message):
        find_files(tmp_path, "reviews_")
