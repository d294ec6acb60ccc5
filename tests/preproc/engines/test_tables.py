"""Files of all types, by each engine."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preproc.sources.column_chunk import SourceChunk
from preproc.sources.part_files import find_table
from tests.preproc.engines import text_cases
from tests.preproc.engines.tables import numbered, rows, write


@pytest.mark.parametrize("name", text_cases.JSON)
def test_json(name, tmp_path, engine):
    content, names, expected = text_cases.JSON[name]
    path = write(tmp_path, "t.jsonl", content)
    chunk = find_table(path) if content else SourceChunk("json", (str(path),))
    table = engine.read([chunk])
    assert table.columns[2:] == names
    assert rows(engine, table) == expected if names else engine.fetch(table).num_rows == 0


@pytest.mark.parametrize("extension", ["gz", "zst"])
def test_compressed(extension, tmp_path, engine):
    content = b"a,b\n" + numbered(10_000)
    if extension == "gz":
        content = gzip.compress(content[:999]) + gzip.compress(content[999:])
    else:
        content = pa.compress(content, codec="zstd", asbytes=True)
    path = write(tmp_path, f"t.csv.{extension}", content)
    table = engine.read([find_table(path)])
    assert rows(engine, table) == [(str(i), str(i % 7)) for i in range(10_000)]
    cut = write(tmp_path, f"cut.csv.{extension}", content[: len(content) // 2])
    message = f"cut.csv.{extension}: the compressed file is cut"
    with pytest.raises((ValueError, OSError), match=message):
        engine.read([find_table(cut)])


def test_several_chunks(tmp_path, engine):
    left, right = tmp_path / "l.csv", tmp_path / "r.parquet"
    left.write_bytes(b"a\n" + b"".join(b"%d\n" % i for i in range(300_000)))
    pq.write_table(pa.table({"b": range(300_000), "c": [None] * 300_000}), right)
    chunks = [find_table(left), find_table(right)]
    table = engine.read(chunks)
    result = engine.fetch(table)
    assert result["__row"].to_pylist() == result["b"].to_pylist() == list(range(300_000))
    assert result["a"].to_pylist() == list(map(str, range(300_000)))
    assert "r.parquet, row 8 (" in engine.place(table, 7, "b")
    right.unlink()
    pq.write_table(pa.table({"b": [1]}), right)
    with pytest.raises(ValueError, match="equally many rows .*l.csv: 300,000, .*r.parquet: 1"):
        engine.read([find_table(left), find_table(right)])


def test_parquet(tmp_path, engine):
    columns = {
        "text": (["x", None, "y"], pa.dictionary(pa.int32(), pa.string())),
        "large": (["x", None, "y"], pa.large_string()),
        "a list": ([[1, 2], None, []], pa.list_(pa.int64())),
        "decimal.2": ([1, None, 2], pa.decimal128(9, 2)),
        "time": ([1, None, 2], pa.timestamp("us", "UTC")),
        "nothing": ([None] * 3, pa.null()),
        "small": ([1, None, 2], pa.int8()),
        "bool": ([True, None, False], pa.bool_()),
    }
    content = pa.table({name: pa.array(*column) for name, column in columns.items()})
    for i in range(2):
        (tmp_path / f"k={i}").mkdir()
        pq.write_table(content, tmp_path / f"k={i}/x.parquet", row_group_size=2)
    table = engine.read([find_table(tmp_path)])
    result = engine.fetch(table)
    assert result["__row"].to_pylist() == list(range(6))
    assert result["k"].to_pylist() == ["0"] * 3 + ["1"] * 3
    for name, column in columns.items():
        assert result[name].to_pylist() == pa.array(*column).to_pylist() * 2, name
    assert {result.schema.field(n).type for n in ("text", "large", "nothing")} == {pa.string()}
    assert result.schema.field("decimal.2").type == pa.decimal128(9, 2)
    assert "k=1/x.parquet, row 2 (" in engine.place(table, 4)
