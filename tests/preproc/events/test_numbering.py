"""Ids of users and items: order of values, ties, memory."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preproc.engines.engine import ROW
from preproc.engines.open_engine import open_engine
from preproc.events.numbering import number
from preproc.sources.column_chunk import SourceChunk


def numbered(folder, columns, min_events, memory_limit_bytes=1 << 30):
    path = folder / "log.parquet"
    pq.write_table(pa.table(columns), path)
    with open_engine("duckdb", folder, memory_limit_bytes=memory_limit_bytes, threads=2) as engine:
        log = engine.read([SourceChunk("parquet", (str(path),))])
        log = log.select("user", "item", "time", tie_order=-log[ROW])
        result = number(engine, log, min_events, 1, f"--min {min_events} events", folder)
        users, items = (np.concatenate(ids) for ids in zip(*result.pairs(), strict=True))
    values = [pq.read_table(file).to_pylist() for file in result.vocabularies.values()]
    assert result.num_of_users().tolist() == [row["count"] for row in values[0]]
    return users, items, *([row["value"] for row in rows] for rows in values)


def test_order_of_values(tmp_path):
    """Text by its bytes; events by user, time and tie order, which is that of the rows backwards;
    the user "b" has too few events."""
    log = {"user": ["é", "Z", "Z", "b", "é"], "item": ["y", "x", "y", "w", "x"]}
    users, items, *values = numbered(tmp_path, log | {"time": [2, 1, 1, 5, 3]}, 2)
    assert values == [["Z", "é"], ["x", "y"]]
    assert users.dtype == items.dtype == np.int32
    assert (users.tolist(), items.tolist()) == ([1, 1, 2, 2], [2, 1, 2, 1])


def test_order_of_numbers(tmp_path):
    log = {"user": [10, 9, 10, 9], "item": [7, -8, 70, 7], "time": [1.5, 0.0, 1.25, 0.5]}
    users, items, *values = numbered(tmp_path, log, 1)
    assert values == [[9, 10], [-8, 7, 70]]
    assert (users.tolist(), items.tolist()) == ([1, 1, 2, 2], [1, 2, 3, 2])


def test_too_few_events(tmp_path):
    log = {"user": ["a", "a", "b"], "item": ["x", "y", "x"], "time": [1, 2, 3]}
    with pytest.raises(ValueError, match="no user has --min 3 events or more; .* is 2"):
        numbered(tmp_path, log, 3)


def test_log_larger_than_memory(tmp_path):
    """Two million events, 48 MB of numbers alone, with 64 MiB for DuckDB."""
    num_users, num_events = 50_000, 40
    order = np.random.default_rng(0).permutation(num_users * num_events)
    users = np.repeat(np.arange(num_users) * 7, num_events)
    times = np.tile(np.arange(num_events), num_users)
    items = (users + times * 31) % 40_009
    log = {"user": users[order], "item": items[order], "time": times[order]}
    result = numbered(tmp_path, log, 20, (128 + 64) << 20)
    values = np.unique(items)
    assert result[3] == values.tolist()
    assert np.array_equal(result[0], users // 7 + 1)
    assert np.array_equal(result[1], np.searchsorted(values, items) + 1)
