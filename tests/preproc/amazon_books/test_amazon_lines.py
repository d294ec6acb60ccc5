"""Review and metadata lines: the rules, and the files that they are in."""

import gzip
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from preproc.engines.open_engine import open_engine
from preproc.histories.logs import metadata_lines
from preproc.histories.logs.metadata_lines import stage_metadata
from preproc.histories.logs.reviews import find_files, read_reviews
from tests.preproc.amazon_books.amazon_reference import parse

REVIEW = '{"reviewerID": "A1", "asin": "B1", "unixReviewTime": 5}'
BAD_REVIEWS = {
    '{"asin": "B1", "unixReviewTime": 5}': "row 2 .*: no reviewerID",
    '{"reviewerID": "A", "asin": "None", "unixReviewTime": 5}': r"no asin \('None' is a spelling",
    '{"reviewerID": "A", "asin": "B", "unixReviewTime": 5.5}': "unixReviewTime is '5.5'",
    '{"reviewerID": "A", "asin": "B", "unixReviewTime": null}': "no unixReviewTime",
    '{"reviewerID": "A", "asin": "B", "unixReviewTime": 9223372036854775808}': "integer of 64 bits",
    '{"reviewerID": "A", "asin": "B"': "line 2: expected a JSON object",
    "[1]": "line 2: expected a JSON object",
    '{"reviewerID": "A\udcff", "asin": "B", "unixReviewTime": 5}': "line 2: expected UTF-8",
}
METADATA = {
    '{"asin": "B1", "categories": [["Books", "X"], ["Books", "Y"]]}': ("B1", "Y"),
    '{"asin": "B1", "categories": [["Books"], []]}': ("B1", None),
    '{"asin": "B1", "categories": [[""]]}': ("B1", None),
    '{"asin": "B1"}': ("B1", None),
    '{"asin": "B1", "categories": ["Books", "Y"]}': ("B1", "Y"),  # 2023
    '{"asin": "B1", "category": ["Books", "Y"]}': ("B1", "Y"),  # 2018
    '{"price": 1.5, "categories": [["x"], ["y", "caf\\u00e9 \\"null\\""]], "asin": "B\\/1"}': (
        "B/1",
        'café "null"',
    ),
}
LITERALS = {
    "{'asin': 'B1', 'categories': [['Books', 'Children\\'s']]}": ("B1", "Children's"),
    "{'asin': 'B1', 'categories': [['Books', \"Children's\"]], 'price': 9.5}": ("B1", "Children's"),
    "{'categories': [['a'], ['b', 'c']], 'related': {'x': ['y', 'z']}, 'asin': 'B1'}": ("B1", "c"),
    "{'asin': 'B1', 'title': \"'asin': 'no'\", 'also': {'asin': 'no'}}": ("B1", None),
    "{'asin': 'B1', 'categories': [['\\u00e9\\N{BULLET}']]}": ("B1", "é•"),
    "{'asin': 'B1', 'categories': [['caf\\xe9']], 'rank': {}, 'x': -1.}": ("B1", "café"),
    "{ 'asin' :'B1','categories':[['x',],], 'd': {'a': [['deep', [None]]]}}": ("B1", "x"),
    "{'asin': 'B1', 'asin': 'B2', 'categories': [['x']]}": ("B2", "x"),
    "{'asin': 'B1', 'price': 007}": "neither JSON",
    "{'asin': 'B1', 'price': 1": "neither JSON",
    "{'asin': 'B1', 'x': " + "[" * 5000 + "]" * 5000 + "}": "neither JSON",
    "{'asin': 'B1', {}: 1}": "neither JSON",
    "['asin']": "a Python literal, but no object",
    "{'asin': ''}": "asin is ''",
    "{'title': 'asin'}": "asin is missing",
}
BAD_METADATA = {
    f'{{"asin": "B1", "categories": {value}}}': "categories is "
    for value in ('"x"', '["x", 1]', '[["a", null]]', '[["a"], null]', '[[["a"]]]')
}


@pytest.mark.parametrize(
    ("line", "expected"), [*METADATA.items(), *LITERALS.items(), *BAD_METADATA.items()]
)
def test_metadata(line, expected):
    if isinstance(expected, tuple):
        assert metadata_lines.parse(line) == expected
    else:
        with pytest.raises(ValueError, match=expected):
            metadata_lines.parse(line)


def read(folder, lines, *flags):
    path = folder / "reviews.json"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    inputs = ["--reviews", path, "--no_metadata", "--output_path", folder / "out"]
    options = parse([*map(str, inputs), *flags, "--engine", "duckdb"])
    scratch = Path(tempfile.mkdtemp(dir=folder))
    with open_engine("duckdb", scratch, **options.engine_settings()) as engine:
        log = read_reviews(options, engine, scratch)
        events = engine.fetch(log.events.select("user", "item", "time"))
        return log.num_bad, [tuple(row.values()) for row in events.to_pylist()]


def test_reviews(tmp_path):
    """Empty lines mean nothing; names within other fields do not count."""
    other = '{"x": {"asin": 1}, "reviewerID": "\\u00e9\\n", "asin": "B", "unixReviewTime": -5}'
    lines = [b"", REVIEW.encode(), other.encode() + b"\r"]
    assert read(tmp_path, lines) == (0, [("A1", "B1", 5), ("é\n", "B", -5)])


@pytest.mark.parametrize(("line", "message"), BAD_REVIEWS.items())
def test_bad_reviews(tmp_path, line, message):
    lines = [REVIEW.encode(), line.encode(errors="surrogateescape")]
    with pytest.raises(ValueError, match=f"reviews.json, .*{message}.*--on_bad_line skip"):
        read(tmp_path, lines)
    skipped = read(tmp_path, [*lines, *[REVIEW.encode()] * 198], "--on_bad_line", "skip")
    assert skipped == (1, [("A1", "B1", 5)] * 199)


@pytest.mark.parametrize("packed", [False, True])
def test_metadata_files(tmp_path, monkeypatch, packed):
    monkeypatch.setattr(metadata_lines, "_BATCH_ROWS", 2)
    lines = [b"\xef\xbb\xbf" + next(iter(METADATA)).encode(), b"", *map(str.encode, METADATA)]
    lines += [next(iter(LITERALS)).encode() + b"\r", b"[]", b"\xff"]
    good = [b'{"asin": "G"}'] * 200
    text = b"\n".join(lines + good)
    file, target = tmp_path / "meta", tmp_path / "meta.parquet"
    file.write_bytes(gzip.compress(text) if packed else text)
    assert stage_metadata(file, target, "skip") == (2, True)
    rows = [tuple(row.values()) for row in pq.read_table(target).to_pylist()]
    values = list(METADATA.values())
    assert rows == [values[0], *values, ("B1", "Children's"), *[("G", None)] * len(good)]
    with pytest.raises(ValueError, match=rf"meta, line {len(lines) - 1}: .*skip"):
        stage_metadata(file, target, "fail")
    file.write_bytes(lines[-1])
    with pytest.raises(ValueError, match="line 1: .* 0xff"):
        stage_metadata(file, target, "fail")
    missing = b'{"asin": "-"}'
    file.write_bytes(b"\n".join([b'{"asin": "B1", "categories": [["NULL"]]}', missing, *good]))
    with pytest.raises(ValueError, match=r"line 2: no asin \('-' is a spelling"):
        stage_metadata(file, target, "fail")
    assert stage_metadata(file, target, "skip", missing=("", "-")) == (1, True)
    assert pq.read_table(target).to_pylist()[0] == {"item": "B1", "item_0": "NULL"}
    assert stage_metadata(file, target, "skip") == (1, False)
    assert pq.read_table(target).to_pylist()[0] == {"item": "B1", "item_0": None}
    file.write_bytes(b"\n".join([*good[:98], missing]))
    with pytest.raises(ValueError, match=r"at most 1% bad lines, got 1 of 99 .*line 99: no asin"):
        stage_metadata(file, target, "skip")
    file.write_bytes(b"")
    assert stage_metadata(file, target, "fail") == (0, False)
    assert pq.read_metadata(target).num_rows == 0


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
