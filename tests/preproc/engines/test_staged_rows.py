"""Tasks of Spark, run here on lines as Spark divides them."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preproc.engines.spark import staged_rows
from preproc.engines.spark.staged_rows import StageResult, StageRows, StageText, split_from_json
from preproc.engines.spark.tasks import RunToken, record_batch
from preproc.sources.column_chunk import SourceChunk
from preproc.sources.part_files import csv_columns, find_table
from tests.preproc.engines import text_cases
from tests.preproc.engines.tables import write


@pytest.fixture
def token(tmp_path):
    result = RunToken(tmp_path / "token", "run")
    result.create()
    return result


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "parts").mkdir()
    return tmp_path / "parts"


def lines_of(content):
    text = content.decode("utf-8-sig", "surrogateescape")
    values = [line.encode("utf-8", "surrogateescape") for line in text.split("\n")]
    return values[:-1] if not values[-1] else values


def batch(path, start, lines):
    """Returns lines of a split as Spark passes them, also invalid UTF-8."""
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    buffers = [None, pa.array(offsets, pa.int32()).buffers()[1], pa.py_buffer(b"".join(lines))]
    values = pa.StringArray.from_buffers(len(lines), *buffers[1:])
    columns = [pa.array([path] * len(lines)), pa.array([start] * len(lines), pa.int64()), values]
    return pa.RecordBatch.from_arrays(columns, ["path", "start", "value"])


def splits_of(reports):
    return [split_from_json(text) for report in reports for text in report[0].to_pylist()]


def rows_of(folder, splits):
    """Returns the rows in the parts of splits; each part has one row group."""
    tables = []
    for part in (part for split in splits for part in split.parts):
        assert pq.read_metadata(folder / part.name).num_row_groups == 1
        tables.append(pq.read_table(folder / part.name))
        assert tables[-1].num_rows == part.num_rows
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def csv_task(path, folder, token):
    chunk = find_table(path)
    return StageText(chunk, tuple(csv_columns(chunk)), folder, token)


@pytest.mark.parametrize("name", text_cases.CSV)
def test_csv(name, tmp_path, folder, token):
    content, expected = text_cases.CSV[name]
    path = write(tmp_path, "a b/t [1].csv", content)
    lines = lines_of(content)
    task = csv_task(path, folder, token)
    splits = splits_of(task([batch(f"file://{tmp_path}/a%20b/t%20[1].csv", 0, lines)]))
    assert rows_of(folder, splits) == expected
    assert [split.num_lines for split in splits] == [len(lines)]


@pytest.mark.parametrize("name", text_cases.BAD_CSV)
def test_bad_csv(name, tmp_path, folder, token):
    content, line, rule = text_cases.BAD_CSV[name]
    path = write(tmp_path, "t.csv", content)
    task = csv_task(path, folder, token)
    (split,) = splits_of(task([batch(str(path), 0, lines_of(content))]))
    assert (split.bad.count, split.bad.first[0].line) == (1, line)
    assert rule in split.bad.first[0].rule


@pytest.mark.parametrize("name", [*text_cases.JSON, *text_cases.BAD_JSON])
def test_json(name, tmp_path, folder, token):
    content, names, expected = text_cases.JSON.get(name) or (
        text_cases.BAD_JSON[name][0],
        ("a",),
        0,
    )
    task = StageText(SourceChunk("json", ("/t.json",)), tuple(names), folder, token)
    splits = splits_of(task([batch("/t.json", 0, lines_of(content))] if content else []))
    if name in text_cases.JSON:
        assert rows_of(folder, splits) == expected
    else:
        assert rows_of(folder, splits) == [("1",)]
        assert splits[0].bad.first[0].line == text_cases.BAD_JSON[name][1]


def test_spilled_rows(tmp_path, folder, token, monkeypatch):
    """DuckDB stores rows on the disk, where they stay until all parts are written."""
    monkeypatch.setattr(staged_rows, "_DUCKDB_BYTES", 80 << 20)
    path = write(tmp_path, "t.csv", b"a\n")
    lines = [b"a", *(b"%0800d" % i for i in range(100_000))]
    splits = splits_of(csv_task(path, folder, token)([batch(str(path), 0, lines)]))
    assert [int(a) for (a,) in rows_of(folder, splits)] == list(range(100_000))


def test_splits(tmp_path, folder, token):
    """Splits and files in one task, in batches that end anywhere; a header only at the start."""
    path = write(tmp_path, "t/k=1/0.csv", b"a\n1\n2\n3\n")
    write(tmp_path, "t/k=2/0.csv", b"a\n5\n")
    task = csv_task(tmp_path / "t", folder, token)
    first, second = f"file:{path}", f"file:{tmp_path}/t/k%3D2/0.csv"
    batches = [
        batch(first, 0, [b"a", b"1"]),
        batch(first, 0, [b"2"]),
        batch(first, 6, [b"3"]),
        batch(second, 0, [b"a", b'"5"', b'"x']),
    ]
    merged = pa.Table.from_batches(batches[1:]).combine_chunks().to_batches()
    splits = splits_of(task([batches[0], *merged]))
    assert [split[:2] for split in splits] == [(0, 0), (0, 6), (1, 0)]
    assert [split.num_lines for split in splits] == [3, 1, 3]
    assert [split.is_open for split in splits] == [False, False, True]
    assert rows_of(folder, splits) == [("1",), ("2",), ("3",), ("5",)]


def test_repeated_task(tmp_path, folder, token):
    """A task that is killed or repeated leaves other files, with equal rows."""
    path = write(tmp_path, "t.csv", b"a\n1\n")
    task = csv_task(path, folder, token)
    once, again = (splits_of(task([batch(str(path), 0, [b"a", b"1"])])) for _ in range(2))
    assert once[0].parts[0].name != again[0].parts[0].name
    assert rows_of(folder, once) == rows_of(folder, again) == [("1",)]
    token.path.unlink()
    with pytest.raises(ValueError, match="does not see"):
        next(task([batch(str(path), 0, [b"a", b"1"])]))


def test_whole_files(tmp_path, folder, token):
    content = pa.compress(b"a\n1\n2\n", codec="zstd", asbytes=True)
    path = write(tmp_path, "t.csv.zst", content)
    task = csv_task(path, folder, token)
    splits = splits_of(task.whole_files([0], [record_batch("id long", [0])]))
    assert rows_of(folder, splits) == [("1",), ("2",)]
    path.write_bytes(content[:-4])
    with pytest.raises(ValueError, match="t.csv.zst: the compressed file is cut"):
        next(task.whole_files([0], [record_batch("id long", [0])]))


def test_parquet_rows(folder, token):
    task = StageRows(("hdfs://name/a b", "hdfs://name/c"), folder, token)
    columns = [["hdfs://name:1/a%20b", "hdfs://name:1/c"], [0, 0], [[1], []]]
    rows = pa.RecordBatch.from_arrays([pa.array(c) for c in columns], ["path", "start", "c0"])
    splits = splits_of(task([rows]))
    assert [split.file for split in splits] == [0, 1]
    assert rows_of(folder, splits) == [([1],), ([],)]


def test_results(folder, token):
    """Parts of the rows of one `__part`, which a batch may divide."""
    schema = "c0 long, c1 long, partition long"
    batches = [
        record_batch(schema, [0, 0, 4], [0, 1, 7], [0, 0, 0]),
        record_batch(schema, [], [], []),
        record_batch(schema, [4, 2], [8, 5], [0, 1]),
    ]
    splits = splits_of(StageResult(folder, token, 0)(batches))
    sizes = [[part.num_rows for part in split.parts] for split in splits]
    assert [split.file for split in splits] == [0, 1]
    assert sizes == [[2, 2], [1]]
    assert rows_of(folder, splits) == [(0, 0), (0, 1), (4, 7), (4, 8), (2, 5)]
    splits = splits_of(StageResult(folder, token)(batches))
    assert [[part.num_rows for part in split.parts] for split in splits] == [[4], [1]]
