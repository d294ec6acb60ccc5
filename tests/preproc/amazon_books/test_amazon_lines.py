"""Review and metadata lines: the rules, and the files that they are in."""

import gzip
import json

import pyarrow.parquet as pq
import pytest

from preproc.amazon_books.lines import line_files, metadata_lines, review_lines
from preproc.amazon_books.lines.line_files import find_files, pieces
from preproc.amazon_books.lines.metadata_lines import stage_metadata
from preproc.amazon_books.lines.review_lines import stage_reviews
from preproc.arguments import MachineOptions
from preproc.engines.duckdb_session import PreparationSession

REVIEW = '{"reviewerID": "A1", "asin": "B1", "unixReviewTime": 5}'
BAD_REVIEWS = {
    '{"asin": "B1", "unixReviewTime": 5}': "reviewerID",
    '{"reviewerID": 12, "asin": "B1", "unixReviewTime": 5}': "reviewerID",
    '{"reviewerID": "A", "asin": "", "unixReviewTime": 5}': "asin",
    '{"reviewerID": "A", "asin": ["B"], "unixReviewTime": 5}': "asin",
    '{"reviewerID": "A", "asin": "B", "unixReviewTime": "5"}': "unixReviewTime",
    '{"reviewerID": "A", "asin": "B", "unixReviewTime": 5.5}': "unixReviewTime",
    '{"reviewerID": "A", "asin": "B", "unixReviewTime": true}': "unixReviewTime",
    '{"reviewerID": "A", "asin": "B", "unixReviewTime": null}': "unixReviewTime",
    '{"reviewerID": "A", "asin": "B", "unixReviewTime": 1e30}': "unixReviewTime",
    '{"reviewerID": "A", "asin": "B", "unixReviewTime": 9223372036854775808}': "unixReviewTime",
    '{"reviewerID": "A\\ud800", "asin": "B", "unixReviewTime": 5}': "reviewerID",
    '{"reviewerID": "A", "asin": "B"': "not JSON",
    "null": "no object",
    "[1]": "no object",
    '{"reviewerID": "A\udcff", "asin": "B", "unixReviewTime": 5}': r"UTF-8 text \(byte 18 is 0xff",
}
# DuckDB takes a comma after the last element, and any case of NaN and Infinity.
ACCEPTED = (", }", ', "x": [1,\t]}', ', "x": {"y": 1,}}', ', "x": -inf}', ', "x": [nan]}')
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
    "{ 'asin' :'B1','categories':[['x',],], 'd': {'a': [['deep', [None]]]}}": ("B1", "x"),
    "{'asin': 'B1', 'asin': 'B2', 'categories': [['x']]}": ("B2", "x"),
    "{'asin': 'B1', 'price': 007}": "neither JSON",
    "{'asin': 'B1', 'price': f()}": "neither JSON",
    "{'asin': 'B1', 'price': 1": "neither JSON",
    "{'asin': 'B1', 'x': " + "[" * 5000 + "]" * 5000 + "}": "neither JSON",
    "{'asin': 'B1', {}: 1}": "neither JSON",
    "{'asin': 'B1', 'categories': [['\\ud800']]}": "categories has half a character",
    "['asin']": "a Python literal, but no object",
    "{'asin': ''}": "asin is ''",
    "{'asin': 5}": "asin is 5",
    "{'title': 'asin'}": "asin is missing",
}
BAD_METADATA = {
    f'{{"asin": "B1", "categories": {value}}}': "categories is "
    for value in ('"x"', '["x"]', "[[1]]", '[["a", null]]', '[["a"], null]', "{}", '[[["a"]]]')
}


def test_good_review():
    line = '{"x": {"asin": 1, "asin": 2}, "reviewerID": "\\u00e9\\n", "asin": "B", '
    assert review_lines.parse(line + '"unixReviewTime": -5}') == ("é\n", "B", -5)


@pytest.mark.parametrize(
    ("line", "expected"), [*METADATA.items(), *LITERALS.items(), *BAD_METADATA.items()]
)
def test_metadata(line, expected):
    if isinstance(expected, tuple):
        assert metadata_lines.parse(line) == expected
    else:
        with pytest.raises(ValueError, match=expected):
            metadata_lines.parse(line)


GOOD = '{"reviewerID": "u", "asin": "a", "unixReviewTime": 7}'
MORE_REVIEWS = {
    "good": [GOOD, '{"unixReviewTime":-1,"o":{"asin":[{}]},"asin":"é\\u0000\\"","reviewerID":"v"}'],
    "\\r": [GOOD + "\r", GOOD],
    "not a line each": [GOOD + GOOD],
    "over two lines": [GOOD[:20], GOOD[20:]],
    "as many of each, all opened": [GOOD[:-1] + ', "o": [', "{}]}" + GOOD],
    "as many of each, all closed": [GOOD + GOOD[:-1] + ', "o": {}', ', "p": 1}'],
    "cut off": [GOOD, GOOD[:-2]],
    "nothing": [],
}  # fmt: skip


def stage(tmp_path, lines, on_bad_line="error", first_line=1):
    """Number of bad lines, and rows."""
    path, target = tmp_path / "a*[b].json", tmp_path / "reviews.parquet"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    with PreparationSession(MachineOptions(threads=2), tmp_path / "duckdb") as session:
        piece = (path, first_line)
        bad = stage_reviews(session, tmp_path / "the file", piece, target, on_bad_line)
    return bad, [tuple(row.values()) for row in pq.read_table(target).to_pylist()]


@pytest.mark.parametrize("skipped", [[], [b"{"]])
def test_repeated_key(tmp_path, skipped):
    """The first value counts, in files with and without bad lines."""
    line = b'{"reviewerID": "u", "asin": "a", "unixReviewTime": 7, "asin": "b"}'
    assert stage(tmp_path, [line, *skipped], "skip") == (len(skipped), [("u", "a", 7)])


@pytest.mark.parametrize("name", MORE_REVIEWS)
def test_review_lines(tmp_path, name):
    """Rows of good lines; the first bad line is named and explained."""
    lines = [line.encode() for line in MORE_REVIEWS[name]]
    if name in ("good", "\\r", "nothing"):
        expected = [review_lines.parse(line) for line in MORE_REVIEWS[name]]
        assert stage(tmp_path, [b"", *lines, b" "]) == (0, expected)
        return
    with pytest.raises(ValueError, match=r"the file, line 1[45]: .*--on_bad_line skip"):
        stage(tmp_path, [GOOD.encode(), b"", *lines], first_line=12)
    num_bad, rows = stage(tmp_path, [*lines, GOOD.encode()], "skip")
    assert num_bad == len(lines) - lines.count(GOOD.encode())
    assert rows == [("u", "a", 7)] * (1 + len(lines) - num_bad)


@pytest.mark.parametrize(("line", "message"), BAD_REVIEWS.items())
def test_bad_review_files(tmp_path, line, message):
    lines = [REVIEW.encode(), line.encode(errors="surrogateescape")]
    with pytest.raises(ValueError, match=f"the file, line 2: .*{message}"):
        stage(tmp_path, lines)
    assert stage(tmp_path, lines, "skip") == (1, [("A1", "B1", 5)])


def test_accepted_lines(tmp_path):
    lines = [(REVIEW[:-1] + end).encode() for end in ACCEPTED]
    assert stage(tmp_path, lines) == (0, [("A1", "B1", 5)] * len(lines))


def test_byte_order_mark(tmp_path):
    file = tmp_path / "reviews.json"
    file.write_bytes(b"\xef\xbb\xbf" + REVIEW.encode())
    assert [(path.read_text(), first) for path, first in pieces(file, tmp_path)] == [(REVIEW, 1)]


def test_long_lines(tmp_path):
    line = REVIEW[:-1] + ', "x": "%s"}'
    lines = [REVIEW.encode(), (line % ("a" * (9 << 20))).encode()]
    assert stage(tmp_path, lines) == (0, [("A1", "B1", 5)] * 2)
    lines[1] = (line % ("a" * (40 << 20))).encode()
    with pytest.raises(ValueError, match="the file: .* 16 MiB"):
        stage(tmp_path, lines, "skip")


@pytest.mark.parametrize("packed", [False, True])
def test_metadata_files(tmp_path, monkeypatch, packed):
    monkeypatch.setattr(metadata_lines, "_BATCH_ROWS", 2)
    lines = [b"\xef\xbb\xbf" + next(iter(METADATA)).encode(), b"", *map(str.encode, METADATA)]
    lines += [next(iter(LITERALS)).encode() + b"\r", b"[]", b"\xff"]
    text = b"\n".join(lines)
    file, target = tmp_path / "meta", tmp_path / "meta.parquet"
    file.write_bytes(gzip.compress(text) if packed else text)
    assert stage_metadata(file, target, "skip") == 2
    rows = [tuple(row.values()) for row in pq.read_table(target).to_pylist()]
    values = list(METADATA.values())
    assert rows == [values[0], *values, ("B1", "Children's")]
    with pytest.raises(ValueError, match=rf"meta, line {len(lines) - 1}: .*skip"):
        stage_metadata(file, target, "error")
    file.write_bytes(lines[-1])
    with pytest.raises(ValueError, match="line 1: .* 0xff"):
        stage_metadata(file, target, "error")
    file.write_bytes(b"")
    assert stage_metadata(file, target, "error") == 0
    assert pq.read_metadata(target).num_rows == 0


def test_gzip_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(line_files, "_PIECE_BYTES", 100)
    monkeypatch.setattr(line_files, "_BLOCK_BYTES", 30)
    lines = [json.dumps({"n": i, "text": "x" * (i * 7 % 60)}) for i in range(50)]
    for end in ("", "\n"):
        text = ("\n".join(lines) + end).encode()
        file = tmp_path / "lines.json.gz"
        file.write_bytes(gzip.compress(text))
        parts = [(first, path.read_bytes()) for path, first in pieces(file, tmp_path)]
        assert b"".join(part for _, part in parts) == text
        assert len(parts) > 10
        for first, part in parts:
            here = part.decode().splitlines()
            assert here == lines[first - 1 :][: len(here)]
        assert [path.name for path in tmp_path.iterdir()] == ["lines.json.gz"]
    file.write_bytes(gzip.compress(text)[:-9])
    with pytest.raises(ValueError, match="lines.json.gz: the gzip data"):
        list(pieces(file, tmp_path))
    file.write_bytes(gzip.compress(b""))
    assert [first for _, first in pieces(file, tmp_path)] == [1]


def test_finding_files(tmp_path):
    for name in ("reviews_b.json.gz", "reviews_a.json", "meta_a.json", "reviews_c.txt"):
        (tmp_path / name).touch()
    (tmp_path / "reviews_d.json").mkdir()
    result = find_files(tmp_path, "reviews_")
    assert [path.name for path in result] == ["reviews_a.json", "reviews_b.json.gz"]
    with pytest.raises(ValueError, match="--amazon_dataset_path"):
        find_files(tmp_path / "reviews_a.json", "reviews_")
    (tmp_path / "reviews_b.json").touch()
    with pytest.raises(ValueError, match="reviews_b.json and reviews_b.json.gz"):
        find_files(tmp_path, "reviews_")
