import os
import signal
import threading
import time

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ibis import _

from preproc.engines.engine import PART, ROW, has_row_order
from preproc.sources.column_chunk import SourceChunk
from preproc.sources.part_files import find_table
from tests.preproc.engines import text_cases
from tests.preproc.engines.tables import numbered, rows, write


@pytest.mark.parametrize("name", text_cases.CSV)
def test_csv(name, tmp_path, duckdb):
    content, expected = text_cases.CSV[name]
    table = duckdb.read([find_table(write(tmp_path, "t [1].csv", content))])
    assert rows(duckdb, table) == expected


@pytest.mark.parametrize("name", [*text_cases.BAD_CSV, *text_cases.BAD_JSON])
def test_bad_line(name, tmp_path, duckdb):
    content, line, rule = (text_cases.BAD_CSV | text_cases.BAD_JSON)[name]
    path = write(tmp_path, "t.csv" if name in text_cases.BAD_CSV else "t.json", content)
    with pytest.raises(ValueError, match="--on_bad_line skip") as error:
        duckdb.read([find_table(path)])
    assert f"{path}, line {line}: " in str(error.value)
    assert rule in str(error.value)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_skipped_lines(kind, tmp_path, duckdb, capsys):
    if kind == "csv":
        lines = [b"%d,x" % i for i in range(300)]
        lines[150], lines[200], header = b"3", b"3,4,5", b"a,b\n"
    else:
        lines = [b'{"a": %d, "b": "x"}' % i for i in range(300)]
        lines[150], lines[200], header = b"{", b"5", b""
    path = write(tmp_path, f"t.{kind}", header + b"\n".join(lines))
    table = duckdb.read([find_table(path)], "skip")
    expected = [(str(i), "x") for i in range(300) if i not in (150, 200)]
    assert rows(duckdb, table) == expected
    assert "skipped 2 of 300 lines (0.67%)" in (message := capsys.readouterr().err)
    assert f"line {152 if kind == 'csv' else 151}: " in message
    assert "row 150 (" in duckdb.place(table, 149)
    assert "row 152 (" in duckdb.place(table, 150)
    assert "row 300 (" in duckdb.place(table, 297)
    stored = duckdb.store_table(table.mutate(c=table.b).filter(table.a != "0"), "again")
    assert "row 152 (" in duckdb.place(stored.mutate(d=stored.c), 150)


def test_too_many_bad_lines(tmp_path, duckdb):
    path = write(tmp_path, "t.csv", b"a,b\n" + b"1,2\n" * 98 + b"3\n" * 2)
    with pytest.raises(ValueError, match=r"at most 1% bad lines, got 2 of 100 lines \(2.00%\)"):
        duckdb.read([find_table(path)], "skip")


def test_bad_line_of_many(tmp_path, duckdb):
    """The first bad line of several files, far behind their starts."""
    for i in range(2):
        write(tmp_path, f"t/part-{i}.csv", b"a,b\n" + numbered(300_000) + b"x\n" + numbered(9))
    with pytest.raises(ValueError, match=r"part-0.csv, line 300002: .* got 1: 'x'"):
        duckdb.read([find_table(tmp_path / "t")])


def test_part_files(tmp_path, duckdb):
    for i in (10, 2, 1):
        write(tmp_path, f"t/day={i}/part-0.csv", b"a,b\n" + numbered(2, i))
    write(tmp_path, "t/day=__HIVE_DEFAULT_PARTITION__/part-0.csv", b"")
    write(tmp_path, "t/_SUCCESS", b"")
    table = duckdb.read([find_table(tmp_path / "t")])
    numbers = [(str(i + j), str((i + j) % 7), str(i)) for i in (1, 2, 10) for j in range(2)]
    assert rows(duckdb, table) == numbers
    assert "day=10/part-0.csv, row 2 (" in duckdb.place(table, 5)


def test_without_header(tmp_path, duckdb):
    path = write(tmp_path, "t.txt", b'1|"x"\n2|y\n')
    chunk = SourceChunk("csv", (str(path),), ("n", "v"), header=False, delimiter="|", quoting=False)
    assert rows(duckdb, duckdb.read([chunk])) == [("1", '"x"'), ("2", "y")]


def test_wanted_columns(tmp_path, duckdb):
    path = write(tmp_path, "t.csv", b"a,b,c\n1,2,3\n")
    assert rows(duckdb, duckdb.read([SourceChunk("csv", (str(path),), ("c", "a"))])) == [("3", "1")]
    with pytest.raises(ValueError, match="expected a column 'd', got a, b, c"):
        duckdb.read([SourceChunk("csv", (str(path),), ("d",))])


def test_order_of_stored_rows(tmp_path, duckdb):
    path = write(tmp_path, "t.csv", b"a,b\n" + numbered(300_000))
    table = duckdb.read([find_table(path)])

    def check(batches):
        first = 0
        for batch in batches:
            assert batch["__row"].to_pylist() == list(range(first, first + batch.num_rows))
            first += batch.num_rows
            yield str(first)

    assert duckdb.map_batches(table.mutate(c=_.a + "x"), check)[-1] == "300000"
    texts = [str(i) for i in range(11)]
    listed = table.mutate(c=ibis.ifelse(_.a.strip().isin(texts), ibis.null("string"), _.a))
    assert duckdb.map_batches(listed, check)[-1] == "300000"
    assert "JOIN" not in duckdb.connection.sql(duckdb._sql(listed)).explain().upper()
    counts = table.group_by("b").agg(n=_.count())
    joined = table.join(counts, "b").select("__part", "__row", "n")
    assert not has_row_order(joined)
    assert duckdb.map_batches(joined, check)[-1] == "300000"
    stored = duckdb.store_table(joined, "joined")
    assert duckdb.map_batches(stored.mutate(m=_.n + 1), check)[-1] == "300000"
    kept = table.filter(_.b == "3").select("__row")
    assert has_row_order(kept)
    batches = list(duckdb.batches(kept))
    assert pa.Table.from_batches(batches)["__row"].to_pylist() == list(range(3, 300_000, 7))


def test_stored_table(tmp_path, duckdb):
    table = duckdb.read([find_table(write(tmp_path, "t.csv", b"a,b\n" + numbered(9)))])
    counts = duckdb.store_table(table.group_by("b").agg(n=_.count()), 'counts of "b"')
    ordered = counts.order_by(ibis.desc("b")).limit(2)
    assert duckdb.fetch(ordered).to_pydict() == {"b": ["6", "5"], "n": [1, 1]}
    open_stream = duckdb.batches(counts.order_by("b"))
    assert next(open_stream)["n"].to_pylist() == [2, 2, 1, 1, 1, 1, 1]
    assert duckdb.fetch(counts.agg(n=_.n.sum()))["n"].to_pylist() == [9]


@pytest.mark.parametrize("method", ["fetch", "batches"])
def test_interrupted_query(method, duckdb):
    numbers = [ibis.range(10**5).unnest().name(name).as_table() for name in "ab"]
    long = numbers[0].cross_join(numbers[1]).agg(n=(_.a.cast("string") + _.b.cast("string")).max())
    timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
    # A job in the background of a shell ignores the signal.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    start = time.monotonic()
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            list(getattr(duckdb, method)(long))
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, previous)
    assert time.monotonic() - start < 10


def test_missing_file(tmp_path, duckdb):
    with pytest.raises(ValueError, match="t.csv: the file does not exist"):
        duckdb.read([SourceChunk("csv", (f"{tmp_path}/t.csv",))])
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no Parquet")
    with pytest.raises(ValueError, match="t.parquet: expected a Parquet file"):
        duckdb.read([SourceChunk("parquet", (f"{tmp_path}/t.parquet",))])


def test_sums_and_missing_floats(tmp_path, duckdb):
    """Sums are int64; NaN of a Parquet file is found, which its statistics leave out."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"n": [1, 2], "x": [0.5, float("nan")]}), path)
    table = duckdb.read([find_table(path)])
    total = table.agg(n=table.n.sum(), x=ibis.ifelse(table.x.isnan(), 0, table.x).sum())
    for result in (duckdb.fetch(total), duckdb.fetch(duckdb.store_table(total, "total"))):
        assert result.to_pylist() == [{"n": 3, "x": 0.5}]
        assert result.schema.field("n").type == pa.int64()


def test_rows_out_of_order(duckdb, monkeypatch):
    batches = [pa.record_batch({ROW: [4, 5]}), pa.record_batch({ROW: [0]})]
    monkeypatch.setattr(duckdb, "batches", lambda expression: (batch for batch in batches))
    table = ibis.table({PART: "int64", ROW: "int64"}, name="t")
    with pytest.raises(RuntimeError, match="got row 0 after row 5"):
        duckdb.map_batches(table, lambda rows: (str(batch.num_rows) for batch in rows))
