"""Fields of lines of JSON, by compiled code, against Python's parser."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from preproc.amazon_books.lines import review_lines
from preproc.amazon_books.lines.field_scanner import ANY, INTEGER, TEXT, FieldScanner

pytestmark = pytest.mark.skipif(
    not FieldScanner.is_available(), reason="dataloading-kernels is not installed: run `make op`"
)
FIELDS = {"user": TEXT, "time": INTEGER, "lists": ANY}
GOOD = '{"user": "u", "time": 7}'


def scan(*lines, begin=0, stop=None):
    text = "\n".join(lines).encode(errors="surrogateescape")
    content = np.frombuffer(text, np.uint8)
    arrays = FieldScanner(FIELDS).scan(content, begin, len(content) if stop is None else stop)
    if arrays is not None:
        user, time, lists = (array.to_pylist() for array in arrays)
        return list(zip(user, time, lists, strict=True))
    return None


def test_fields_by_hand():
    lines = [
        GOOD,
        " \t\r",
        "",
        '\t{ "x" : [1 , {"user": "v"}, [] , {} ] , "time" :\t-0 , "user" : "\u00e9\U0001f600" } \r',
        '{"time": -9223372036854775808, "lists": [["a", "\\"b"], []], "user": "c"}',
        '{"user":"w","time":9223372036854775807,"lists":null,"x":-1.5e+3,"y":0.1E9,"z":true}',
        '{"user":"' + "long " * 50 + '","time":0,"x":"\\u00e9\\ud83d\\ude00\\/\\n"}',
    ]
    assert scan(*lines) == [
        ("u", 7, b""),
        ("\u00e9\U0001f600", 0, b""),
        ("c", -(1 << 63), b'[["a", "\\"b"], []]'),
        ("w", (1 << 63) - 1, b"null"),
        ("long " * 50, 0, b""),
    ]
    assert scan("") == scan(" ", "") == []
    assert scan(GOOD, GOOD, "") == [("u", 7, b"")] * 2


def test_part_of_lines():
    lines = [GOOD.replace("7", str(number)) for number in range(100, 110)]
    length = len(lines[0]) + 1
    for begin, stop in [(0, 1), (length, length + 1), (length, 3 * length), (9 * length, 249)]:
        times = [time for _, time, _ in scan(*lines, begin=begin, stop=stop)]
        assert times == list(range(100 + begin // length, 100 + -(-stop // length)))


@pytest.mark.parametrize(
    "line",
    [
        "x",
        "[]",
        "null",
        "{}",
        GOOD + GOOD,
        GOOD[:-1],
        GOOD[:-1] + ",}",
        GOOD[:-1] + ', "user": "v"}',
        GOOD[:-1] + ', "a\\u0062": 1}',
        GOOD.replace('"u"', '""'),
        GOOD.replace('"u"', '"\\n"'),
        GOOD.replace('"u"', "'u'"),
        GOOD.replace("7", "7.0"),
        GOOD.replace("7", "07"),
        GOOD.replace("7", "+7"),
        GOOD.replace("7", "-"),
        GOOD.replace("7", "9223372036854775808"),
        GOOD.replace("7", "-9223372036854775809"),
        GOOD.replace("7", "18446744073709551617"),
        GOOD.replace("7", "NaN"),
        GOOD.replace("7", "7 7"),
        *(
            GOOD[:-1] + f', "x": {value}}}'
            for value in (
                *("nan", "Infinity", "-inf", "01", "1.", ".5", "1e", "1e+", "tru", "nulls", "[1,]"),
                *("[1 2]", '{"a"}', '{"a":}', "{1:2}", '{"a":1,}', "[", "{", "]", "", "'a'"),
                *('"\t"', '"\\x"', '"\\u12"', '"\\ud800"', '"\\ud800\\u0041"', '"\\udc00"', '"'),
                *('"\udcff"', '"\udcc0\udc80"', '"\udced\udca0\udc80"', '"\udce2\udc82"'),
                *('"\udcf4\udc90\udc80\udc80"', '"\udc80"', "[" * 300 + "]" * 300),
            )
        ),
    ],
)
def test_odd_lines(line):
    assert scan(line) is scan(GOOD, line) is scan(line, GOOD) is None


def test_random_changes():
    """Python's parser finds the same in every line that is accepted."""
    random, num_accepted = np.random.default_rng(0), 0
    lines = [
        '{"user": "A\u00e9", "x": [1.5, {"y": "\\ud83d\\ude00 t"}], "time": -12, "lists": [["a"]]}',
        '{"time":5,"user":"u","o":{"user":[{}]},"lists":{"a":null},"t":"\\"quoted\\" \\u00e9"}',
    ]
    pieces = [*'"\\{}[],: 0-.e\u00e9\n', "user"]
    for number in range(6000):
        line = lines[number % 2]
        for _ in range(random.integers(1, 3)):
            start = random.integers(0, len(line) + 1)
            stop = start + random.integers(0, 3)
            line = line[:start] + random.choice(["", *pieces]) + line[stop:]
        fields = scan(line)
        if fields is None:
            continue
        values = [json.loads(text) for text in line.split("\n") if text.strip()]
        lists = [json.loads(text) if text else None for _, _, text in fields]
        assert [(user, time) for user, time, _ in fields] == [
            (v["user"], v["time"]) for v in values
        ]
        assert lists == [value.get("lists") for value in values]
        num_accepted += 1
    assert num_accepted > 500


@pytest.mark.parametrize("threads", [1, 3])
def test_chunks_of_files(tmp_path, monkeypatch, threads):
    """Lines that end in any place of a chunk, also in one far behind."""
    monkeypatch.setattr(review_lines, "_TAIL_BYTES", 8)
    monkeypatch.setattr(review_lines, "_GROUP_ROWS", 7)
    line = '{{"reviewerID": "u{0}", "asin": "a", "unixReviewTime": {0}, "x": "{1}"}}'
    lines = [line.format(number, "x" * (number * 37 % 150)) for number in range(60)]
    path, target = tmp_path / "reviews", tmp_path / "events"
    for end in ("", "\n", "\n\n"):
        path.write_text("\n".join(lines) + end)
        for size in (50, 64, 97, 1000, 100_000):
            monkeypatch.setattr(review_lines, "_CHUNK_BYTES", size)
            assert review_lines._scan(path, target, threads)
            table = pq.read_table(target)
            assert table["time"].to_pylist() == list(range(60))
            assert table["user"].to_pylist() == [f"u{number}" for number in range(60)]
    path.write_text("\n".join([*lines, "x"]))
    target.unlink()
    assert not review_lines._scan(path, target, threads) and not target.exists()
