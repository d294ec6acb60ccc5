"""DuckDB engine of the preparation of histories: error messages and memory use."""

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preproc.amazon_books.engines import open_engine
from preproc.amazon_books.engines.duckdb_engine import AmazonDuckDBEngine
from preproc.amazon_books.engines.interface import StagedLog
from preproc.amazon_books.options import AmazonOptions


def engine(folder, **more):
    return open_engine(AmazonOptions(folder / "out", folder, threads=2, **more), folder)


@pytest.mark.parametrize(
    ("error", "text", "expected", "message"),
    [
        (duckdb.OutOfMemoryException, "no room", ValueError, "--memory_limit 512 MiB .*: no room"),
        (duckdb.IOException, "disk", OSError, "disk"),
        (duckdb.InterruptException, "stop", KeyboardInterrupt, "^$"),
        (RuntimeError, "Query interrupted", KeyboardInterrupt, "^$"),
        (RuntimeError, "other", RuntimeError, "other"),
    ],
)
def test_translated_errors(tmp_path, error, text, expected, message):
    with (
        pytest.raises(expected, match=message),
        engine(tmp_path, memory_limit_bytes=512 << 20) as duck,
        duck.explained_errors(),
    ):
        raise error(text)


def test_log_larger_than_memory(tmp_path, monkeypatch):
    """Two million events, 60 MB of numbers alone, with 24 MiB for DuckDB."""
    num_users, num_events = 50_000, 40
    draw = np.random.default_rng(0)
    users = np.repeat(np.arange(num_users, dtype=np.int64) * 7, num_events)
    order = draw.permutation(len(users))
    times = np.tile(np.arange(num_events, dtype=np.int64), num_users)
    items = (users + times * 31) % 40_009
    path = tmp_path / "log.parquet"
    log = pa.table({"user": users[order], "item": items[order], "time": times[order]})
    pq.write_table(log, path, compression="none")
    monkeypatch.setattr("preproc.engines.duckdb_session._RESERVED_BYTES", 360 << 20)
    (tmp_path / "scratch").mkdir()
    with AmazonDuckDBEngine(
        AmazonOptions(tmp_path / "out", tmp_path, memory_limit_bytes=384 << 20),
        tmp_path / "scratch",
    ) as duck:
        spilled = []
        write = duck._write_events

        def watched(target):
            write(target)
            spilled.extend((tmp_path / "scratch").iterdir())

        monkeypatch.setattr(duck, "_write_events", watched)
        result = duck.number(StagedLog((path,), (), (), (), ()), 20, tmp_path)
    assert spilled
    assert (result.num_events == num_events).all()
    assert result.num_users == num_users
    values = np.unique(items)
    assert result.num_items == len(values)
    expected = np.searchsorted(values, items) + 1
    assert (np.fromfile(result.events, np.int32) == expected).all()
