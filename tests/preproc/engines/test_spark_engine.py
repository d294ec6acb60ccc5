"""Divided files; tasks of Spark are in test_staged_rows.py, other files in test_tables.py."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from ibis import _

from preproc.sources.part_files import find_table
from tests.preproc.engines.tables import check_row_numbers, numbered, row_numbers, rows, write

pytest.importorskip("pyspark", reason="needs pyspark: run .venv-engines/bin/python")
pytestmark = pytest.mark.engines("pyspark")


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


def test_sources_of_the_workers(tmp_path):
    """The archive that a cluster gets has all that the modules of tasks import."""
    from preproc.engines.spark.session import pack_sources

    root = Path(__file__).parents[3]
    files = [f.relative_to(root).with_suffix("") for f in root.glob("preproc/**/spark/*.py")]
    modules = [".".join(f.parts) for f in files if f.name != "__init__"]
    assert len(modules) > 5
    modules.append("deployment.predict.spark_scores")
    pack_sources(tmp_path / "sources.zip")
    code = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "sources.zip")}
    command = [sys.executable, "-c", code, *modules]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
