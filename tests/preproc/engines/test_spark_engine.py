"""Spark of all tests; its tasks are tested in test_staged_rows.py."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ibis import _

from preproc.engines.open_engine import open_engine
from preproc.sources.part_files import find_table
from tests.preproc import shared_spark
from tests.preproc.engines import text_cases
from tests.preproc.engines.tables import check_row_numbers, numbered, row_numbers, rows, write

pytest.importorskip("pyspark", reason="needs pyspark: run .venv-engines/bin/python")
pytestmark = pytest.mark.engines("pyspark")
# Files of these sizes are divided.
CONF = {"spark.sql.files.maxPartitionBytes": "200000", "spark.sql.files.openCostInBytes": "1000"}


@pytest.fixture(scope="module")
def spark(spark_session, tmp_path_factory):
    scratch = tmp_path_factory.mktemp("scratch of k=1")
    before = {name: spark_session.conf.get(name) for name in CONF}
    for name, value in CONF.items():
        spark_session.conf.set(name, value)
    with (
        shared_spark.used(spark_session),
        open_engine("spark", scratch, memory_limit_bytes=3 << 30, threads=2) as engine,
    ):
        yield engine
    for name, value in before.items():
        spark_session.conf.set(name, value)


def test_divided_files(tmp_path, spark):
    """Parts, numbers of rows, folders' values, and queries that keep the order or do not."""
    for i in range(2):
        content = b"\xef\xbb\xbfn,m\r\n" + numbered(50_000, i * 50_000).replace(b"\n", b"\r\n")
        write(tmp_path, f"t/day={i}/part[0].csv", content)
    write(tmp_path, "t/day=10/part[0].csv.gz", gzip.compress(b"n,m\n" + numbered(9, 100_000)))
    table = spark.read([find_table(tmp_path / "t", spark.store)])
    assert rows(spark, table.filter(_.__row % 1000 == 0).mutate(__row=_.__row // 1000)) == [
        (str(i), str(i % 7), str(i // 50_000).replace("2", "10")) for i in range(0, 100_001, 1000)
    ]
    assert "day=1/part[0].csv, row 6 (" in spark.place(table, 50_005)
    assert check_row_numbers(spark.map_batches(table, row_numbers), 100_009) > 4
    counts = table.group_by("m").agg(count=_.count())
    joined = table.join(counts, "m")[["count", "__part", "__row"]]
    check_row_numbers(spark.map_batches(joined, row_numbers), 100_009)
    stored = spark.store_table(joined, "joined rows")
    kept = stored.mutate(double=_["count"] * 2)
    check_row_numbers(spark.map_batches(kept, row_numbers), 100_009)
    most = spark.fetch(counts.order_by([_["count"].desc(), "m"]).limit(2))
    assert most.to_pydict() == {"m": ["0", "1"], "count": [14287, 14287]}
    backward = stored.order_by(_.__row.desc())
    for ordered in (backward, spark.store_table(backward, "backward")):
        batches = list(spark.batches(ordered))
        assert len(batches) < 20
    assert pa.Table.from_batches(spark.batches(backward))["__row"].to_pylist() == list(
        range(100_008, -1, -1)
    )


def test_line_breaks_across_splits(tmp_path, spark):
    lines = [f'"{i}\r\n{"x" * 1000}",{i}\n' for i in range(1000)]
    path = write(tmp_path, "t.csv", ("a,b\n" + "".join(lines)).encode())
    result = spark.fetch(spark.read([find_table(path)]))
    assert result["b"].to_pylist() == [str(i) for i in range(1000)]
    assert set(result["a"].to_pylist()) == {f"{i}\r\n{'x' * 1000}" for i in range(1000)}


def test_bad_lines(tmp_path, spark, capsys):
    """The line is that of the file, also behind its first split."""
    lines = [b"%d,x" % i for i in range(60_000)]
    lines[7], lines[50_000] = b'"x"y', b"1,2,3"
    path = write(tmp_path, "t.csv", b"a,b\n" + b"\n".join(lines))
    with pytest.raises(ValueError, match=r"t.csv, line 9: expected quotation .*--on_bad_line skip"):
        spark.read([find_table(path)])
    table = spark.read([find_table(path)], "skip")
    assert "skipped 2 of 60,000 lines (0.00%)" in capsys.readouterr().err
    assert spark.fetch(table.agg(n=_.count()))["n"].to_pylist() == [59_998]
    assert "row 50000 (" in spark.place(table, 49_998)
    assert "row 50002 (" in spark.place(table, 49_999)
    lines[7] = b"7,x"
    path.write_bytes(b"a,b\n" + b"\n".join(lines))
    with pytest.raises(ValueError, match=r"t.csv, line 50002: expected 2 fields .*got 3"):
        spark.read([find_table(path)])


def test_json(tmp_path, spark):
    content, names, expected = text_cases.JSON["values"]
    path = write(tmp_path, "t.jsonl", content)
    table = spark.read([find_table(path)])
    assert table.columns[2:] == names
    assert rows(spark, table) == expected


def test_compressed(tmp_path, spark):
    content = b"a,b\n" + numbered(10_000)
    write(tmp_path, "t/2.csv.zst", pa.compress(content, codec="zstd", asbytes=True))
    write(tmp_path, "t/1.csv", content)
    table = spark.read([find_table(tmp_path / "t")])
    assert rows(spark, table) == [(str(i), str(i % 7)) for i in range(10_000)] * 2
    cut = write(tmp_path, "cut.csv.gz", gzip.compress(content)[:-2000])
    with pytest.raises((ValueError, OSError), match="cut.csv.gz: the compressed file is cut"):
        spark.read([find_table(cut)])


def test_parquet(tmp_path, spark):
    columns = {
        "text": (["x", None, "y"], pa.dictionary(pa.int32(), pa.string())),
        "a list": ([[1, 2], None, []], pa.list_(pa.int64())),
        "decimal.2": ([1, None, 2], pa.decimal128(9, 2)),
        "time": ([1, None, 2], pa.timestamp("us", "UTC")),
        "nothing": ([None] * 3, pa.null()),
        "small": ([1, None, 2], pa.int8()),
    }
    content = pa.table({name: pa.array(*column) for name, column in columns.items()})
    for i in range(2):
        write(tmp_path, f"k={i}/x.parquet", b"")
        pq.write_table(content, tmp_path / f"k={i}/x.parquet", row_group_size=2)
    table = spark.read([find_table(tmp_path)])
    result = spark.fetch(table)
    assert result["__row"].to_pylist() == list(range(6))
    assert result["k"].to_pylist() == ["0"] * 3 + ["1"] * 3
    for name, column in columns.items():
        assert result[name].to_pylist() == pa.array(*column).to_pylist() * 2, name
    assert result.schema.field("text").type == result.schema.field("nothing").type == pa.string()


def test_several_chunks(tmp_path, spark):
    left = write(tmp_path, "l.csv", b"a,b\n" + numbered(50_000))
    pq.write_table(pa.table({"c": range(50_000)}), tmp_path / "r.parquet")
    table = spark.read([find_table(left), find_table(tmp_path / "r.parquet")])
    result = spark.fetch(table)
    assert result["__row"].to_pylist() == result["c"].to_pylist() == list(range(50_000))
    assert result["a"].to_pylist() == list(map(str, range(50_000)))
    check_row_numbers(spark.map_batches(table, row_numbers), 50_000)
    assert "r.parquet, row 8 (" in spark.place(table, 7, "c")
