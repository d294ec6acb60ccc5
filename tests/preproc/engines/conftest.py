"""An engine of each kind; tests of Spark run in `.venv-engines` in one session."""

import pytest

from preproc.engines.open_engine import open_engine


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory):
    scratch = tmp_path_factory.mktemp("scratch of 'DuckDB'")
    with open_engine("duckdb", scratch, memory_limit_bytes=512 << 20, threads=2) as engine:
        yield engine
