"""Arrow's parser against the rules of a raw line: the lines of test_criteo_lines.py, and values."""

import gzip

import pyarrow.parquet as pq
import pytest

from preproc.criteo.engines import arrow_lines
from preproc.criteo.engines.arrow_lines import STAGED_SCHEMA, stage_lines
from preproc.criteo.raw_lines import write_plain_copy
from tests.preproc.criteo import criteo_reference as reference
from tests.preproc.criteo.test_criteo_lines import ALSO_GOOD, GOOD, LINE_ENDS, MALFORMED


def stage(folder, data):
    """Returns the counts and the columns, as lists."""
    folder.joinpath("raw").write_bytes(data)
    write_plain_copy(folder / "raw", folder / "plain")
    counts = stage_lines(folder / "plain", folder / "staged.parquet")
    table = pq.read_table(folder / "staged.parquet")
    assert table.schema == STAGED_SCHEMA
    assert table.num_rows == counts["rows"]
    return counts, table.to_pydict()


BLOCKS = pytest.mark.parametrize("block_bytes", [8 << 20, 16], ids=["one block", "a block a line"])


@BLOCKS
def test_malformed_lines(tmp_path, monkeypatch, block_bytes):
    """Each of them alone between good lines, with both line ends, plain and as gzip."""
    monkeypatch.setattr(arrow_lines, "_BLOCK_BYTES", block_bytes)
    for name, (bad, _) in MALFORMED.items():
        for line_end in (b"\n", b"\r\n"):
            data = line_end.join([GOOD, ALSO_GOOD, bad, GOOD, bad, ALSO_GOOD]) + line_end
            for content in (data, gzip.compress(data, 1)):
                counts, columns = stage(tmp_path, content)
                assert counts == {"rows": 4, "bad_lines": 2, "first_bad_line": 3}, name
                assert columns["label"] == [1, 0, 1, 0]
                assert columns["num_0"] == [7, 0, 7, 0]
                assert columns["num_12"] == [0, 80, 0, 80]
                assert columns["cat_25"] == ["bb", None, "bb", None]


@BLOCKS
def test_line_ends(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(arrow_lines, "_BLOCK_BYTES", block_bytes)
    for name, (data, rows, first_bad_line) in LINE_ENDS.items():
        counts, _ = stage(tmp_path, data)
        assert (counts["rows"], counts["first_bad_line"]) == (rows, first_bad_line), name
        assert counts["bad_lines"] == len(reference.read_rows(tmp_path / "raw")[1]), name


def test_numericals(tmp_path):
    """x + 3, and 0 where x is missing or below -2; leading zeros are digits as any."""
    texts = ["", "-3", "-2", "-1", "0", "7", "-0", "007", "-007", "9" * 18, "-" + "9" * 18]
    lines = [reference.line(0, {12: text}) for text in texts]
    _, columns = stage(tmp_path, "\n".join(lines).encode())
    assert columns["num_12"] == [0, 0, 1, 2, 3, 10, 3, 10, 0, 10**18 + 2, 0]
    assert columns["num_11"] == [0] * len(texts)


def test_values_are_taken_literally(tmp_path):
    values = ['"', '"a', "'a'", "NULL", "nan", "\\N", "a b", " a ", "#", "007", "1e5", "é", "漢"]
    values += ["\x80", "\x85", "\u2028", "\ufeff", "\U0001f600", "x" * 100_000]
    lines = [reference.line(1, {}, {0: value, 25: value}) for value in values]
    counts, columns = stage(tmp_path, "\n".join(lines).encode())
    assert counts["bad_lines"] == 0
    assert columns["cat_0"] == columns["cat_25"] == values
    assert columns["cat_1"] == [None] * len(values)
