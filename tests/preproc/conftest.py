"""Fixtures of the preparations."""

import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preproc.encoding.arrow_columns import MISSING_VALUES
from preproc.engines.open_engine import open_engine
from preproc.fitting.infer import column_facts, count_values
from preproc.sources.part_files import find_table
from tests.preproc import shared_spark

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory):
    """Spark, which starts once in each process of the tests."""
    with shared_spark.started(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def one_spark(spark_session):
    """Gives the preparations of a test the session of all tests."""
    with shared_spark.used(spark_session):
        yield


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory):
    scratch = tmp_path_factory.mktemp("scratch of 'DuckDB'")
    with open_engine("duckdb", scratch, memory_limit_bytes=512 << 20, threads=2) as engine:
        yield engine


@pytest.fixture
def read(duckdb, tmp_path):
    """Returns a table of the engine, from lines of CSV or the columns of an Arrow table."""

    def read_rows(rows: str | dict):
        if isinstance(rows, str):
            path = tmp_path / f"{next(NUMBERS)}.csv"
            path.write_text(rows)
        else:
            path = tmp_path / f"{next(NUMBERS)}.parquet"
            pq.write_table(pa.table(rows), path)
        return duckdb.read([find_table(path)])

    return read_rows


@pytest.fixture
def count(duckdb):
    """Returns the counts of a column's values, and its facts."""

    def count_column(table, column="x", missing=MISSING_VALUES, is_list=None):
        counts = count_values(duckdb, table, column, missing, f"counts_{next(NUMBERS)}")
        return counts, column_facts(duckdb, counts, missing, is_list)

    return count_column
