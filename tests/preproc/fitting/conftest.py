"""An engine of DuckDB for all tests of a file, and tables in it."""

import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preproc.engines.open_engine import open_engine
from preproc.sources.part_files import find_table


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory):
    scratch = tmp_path_factory.mktemp("scratch")
    with open_engine("duckdb", scratch, memory_limit_bytes=512 << 20, threads=2) as engine:
        yield engine


@pytest.fixture
def read(duckdb, tmp_path):
    """Returns a table of the engine, from lines of CSV or the columns of an Arrow table."""
    numbers = itertools.count()

    def read_rows(rows: str | dict):
        if isinstance(rows, str):
            path = tmp_path / f"{next(numbers)}.csv"
            path.write_text(rows)
        else:
            path = tmp_path / f"{next(numbers)}.parquet"
            pq.write_table(pa.table(rows), path)
        return duckdb.read([find_table(path)])

    return read_rows
