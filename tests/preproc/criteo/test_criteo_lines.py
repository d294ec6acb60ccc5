"""Malformed lines, line ends, gzip: each is counted, named or refused, and nothing is lost."""

import gzip
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from preproc.criteo import raw_lines
from preproc.criteo.engines.single_machine import CriteoDuckDBEngine
from preproc.criteo.options import CriteoOptions
from preproc.criteo.raw_lines import (
    MAX_LINE_BYTES,
    explain,
    line_counts,
    line_ranges,
    read_line,
    write_plain_copy,
)
from tests.preproc.criteo import criteo_reference as reference

GOOD = reference.line(1, {0: 4, 5: -2}, {0: "aa", 25: "bb"}).encode()
ALSO_GOOD = reference.line(0, {12: 77}, {3: "cc"}).encode()
TOO_LONG = reference.line(0, {}, {0: "x" * (MAX_LINE_BYTES + 1)}).encode()
LENGTH = f"it is {len(TOO_LONG):,} "
MALFORMED = {
    "empty": (b"", "it is empty; a line has 40"),
    "one field": (b"hello", "it has 1 fields; a line has 40"),
    "39 fields": (GOOD.rsplit(b"\t", 1)[0], "it has 39 fields"),
    "41 fields": (GOOD + b"\t", "it has 41 fields"),
    "label 2": (b"2" + GOOD[1:], "its label is '2'; a label is 0 or 1"),
    "fraction": (GOOD.replace(b"-2", b"-2.0"), "num_5 is '-2.0'; a numerical is an integer"),
    "19 digits": (GOOD.replace(b"-2", b"1" * 19), "num_5 is '1111111111111111111'"),
    "text": (GOOD.replace(b"-2", b"x" * 50), "num_5 is 'x{40}\\.\\.\\.'"),
    "other digits": (GOOD.replace(b"-2", "٣".encode()), "num_5 is '٣'"),
    "control character": (GOOD.replace(b"aa", b"a\x01"), "cat_0 is 'a.x01'; a categorical has no"),
    "lone return": (GOOD.replace(b"aa", b"a\ra"), "cat_0 is 'a.ra'"),
    "return twice": (GOOD + b"\r\r", "cat_25 is 'bb.r"),
    "not UTF-8": (GOOD.replace(b"aa", b"a\xff"), "it is not UTF-8 text .byte .* is 0xff"),
    "too long": (TOO_LONG, "bytes long; a line has 1,048,576 at most"),
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("temp")
    options = CriteoOptions(
        input=folder, output=folder / "out", memory_limit_bytes=1 << 30, threads=2
    )
    with CriteoDuckDBEngine(options, folder) as engine:
        yield engine


def parse(engine, folder, data):
    source, target = folder / "raw", folder / "day.parquet"
    source.write_bytes(data)
    counts = engine.parse_day(source, target, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["day.parquet", "raw"]
    return counts, target


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_line(engine, tmp_path, name):
    """Lines 3 and 5 are malformed; the four good ones stay. Every second kind is compressed."""
    bad, reason = MALFORMED[name]
    zipped = [*MALFORMED].index(name) % 2
    lines, line_end = [GOOD, ALSO_GOOD, bad, GOOD, bad, ALSO_GOOD], b"\r\n" if zipped else b"\n"
    data = line_end.join(lines) + line_end
    counts, target = parse(engine, tmp_path, gzip.compress(data, 1) if zipped else data)
    assert counts == {"rows": 4, "bad_lines": 2, "first_bad_line": 3}
    rows = pq.read_table(target).to_pydict()
    assert rows["label"] == [1, 0, 1, 0]
    assert rows["num_0"] == [4, None, 4, None]
    assert rows["num_12"] == [None, 77, None, 77]
    assert re.match(reason, explain(read_line(tmp_path / "raw", 3)).removeprefix(LENGTH))
    if name != "too long":
        assert reference.read_rows(tmp_path / "raw")[1] == [3, 5]


LINE_ENDS = {
    "empty": (b"", 0, 0),
    "one line end": (b"\n", 0, 0),
    "no line end at the end": (GOOD + b"\n" + GOOD, 2, 0),
    "blank lines at the end": (GOOD + b"\n  \n\t\t\r\n \n", 1, 0),
    "empty lines in front": (b"\n\n" + GOOD, 1, 1),
    "returns": (GOOD + b"\r\n" + GOOD + b"\r\n", 2, 0),
    "mixed line ends, bad line": (GOOD + b"\r\n" + GOOD + b"\nx\r\n" + GOOD, 3, 3),
    "only returns": (GOOD + b"\r" + GOOD + b"\r", 0, 1),
    "byte order mark, mixed": (b"\xef\xbb\xbf" + GOOD + b"\r\n" + GOOD + b"\n", 2, 0),
    "last line bad, empty lines behind": (GOOD + b"\nx\n\n\n", 1, 2),
    "a huge line": (GOOD + b"\n" + b"z" * 20_000_000 + b"\n" + GOOD, 2, 2),
    "two-byte text": (GOOD.replace(b"aa", "ß漢".encode()) + b"\r\n" + GOOD + b"\n", 2, 0),
}


@pytest.mark.parametrize(("data", "num_rows", "first_bad_line"), LINE_ENDS.values(), ids=LINE_ENDS)
def test_line_ends(engine, tmp_path, data, num_rows, first_bad_line):
    """Rows and numbers of lines, by hand, of gzip, and of ranges of the file, one by one."""
    counts_of_gzip, target = parse(engine, tmp_path, gzip.compress(data, 1))
    target.unlink()
    counts, target = parse(engine, tmp_path, data)
    assert (counts["rows"], counts["first_bad_line"]) == (num_rows, first_bad_line)
    assert counts["bad_lines"] == len(reference.read_rows(tmp_path / "raw")[1])
    assert counts_of_gzip == counts
    rows = pq.read_table(target).to_pylist()
    for num_bytes in (1, len(GOOD) + 1, 1 << 30):
        if len(data) > 1000 * num_bytes:
            continue
        ranges = line_ranges(tmp_path / "raw", num_bytes)
        assert b"".join(data[start:stop] for start, stop in ranges) == data
        assert all(data[start - 1 : start] in (b"", b"\n") for start, _ in ranges)
        lines, rows_of_ranges = [], []
        for start, stop in ranges:
            part = tmp_path / f"{start}.parquet"
            lines.append(engine.parse_range(tmp_path / "raw", start, stop, part, tmp_path))
            rows_of_ranges += pq.read_table(part).to_pylist()
            part.unlink()
        assert line_counts(lines) == counts
        assert rows_of_ranges == rows


def test_mark_within_a_file(engine, tmp_path):
    """A byte order mark belongs to the first line, not to the first one of a range."""
    data = GOOD + b"\n\xef\xbb\xbf" + GOOD + b"\n"
    counts, _ = parse(engine, tmp_path, data)
    assert counts == {"rows": 1, "bad_lines": 1, "first_bad_line": 2}
    part = tmp_path / "part.parquet"
    lines = engine.parse_range(tmp_path / "raw", len(GOOD) + 1, len(data), part, tmp_path)
    assert (lines.lines, lines.rows, lines.first_bad) == (1, 0, 1)


def test_copy_across_blocks(tmp_path, monkeypatch):
    """Lines that begin in one block and end in a later one."""
    monkeypatch.setattr(raw_lines, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(raw_lines, "MAX_LINE_BYTES", 300)
    source, target = tmp_path / "raw", tmp_path / "copy"
    bad_text = GOOD.replace(b"aa", b"\xff")
    source.write_bytes(b"\n".join([GOOD, bad_text, b"y" * 1000, ALSO_GOOD + b"\r", b"", GOOD]))
    write_plain_copy(source, target)
    assert target.read_bytes().split(b"\n") == [GOOD, b"!", b"!", ALSO_GOOD, b"", GOOD, b""]


@pytest.mark.parametrize("damage", ["cut", "cut in the checksum", "flipped bit", "rubbish behind"])
def test_damaged_gzip(engine, tmp_path, damage):
    random = np.random.default_rng(0)
    lines = [
        reference.line(0, {0: x}, {0: f"{x:x}"}).encode() for x in random.integers(1e9, size=999)
    ]
    members = [gzip.compress(b"\n".join(part) + b"\n") for part in (lines[:500], lines[500:])]
    data = bytearray(b"".join(members))
    assert parse(engine, tmp_path, data)[0]["rows"] == 999
    (tmp_path / "day.parquet").unlink()
    if damage == "cut":
        del data[len(data) // 2 :]
    elif damage == "cut in the checksum":
        del data[-3:]
    elif damage == "flipped bit":
        data[len(data) // 2] ^= 4
    else:
        data += b"rubbish"
    with pytest.raises(ValueError, match="raw: the gzip data"):
        parse(engine, tmp_path, bytes(data))
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_lines_by_number(tmp_path):
    assert explain(GOOD) is None
    (tmp_path / "raw").write_bytes(b"a\nb\n")
    assert read_line(tmp_path / "raw", 2) == b"b"
    with pytest.raises(ValueError, match="raw has no line 3"):
        read_line(tmp_path / "raw", 3)
