"""Choice of an engine by its name."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from preproc.engines import environment
from preproc.engines.engine import Engine

DUCKDB, SPARK = "duckdb", "spark"


def open_engine(
    name: str,
    scratch: Path,
    *,
    memory_limit_bytes: int,
    threads: int | None = None,
    staging: Path | None = None,
    master: str | None = None,
    spark_conf: Sequence[str] = (),
) -> contextlib.AbstractContextManager[Engine]:
    """Returns an engine to enter.

    Args:
        name: `duckdb` or `spark`.
        scratch: folder for temporary files of this machine.
        memory_limit_bytes: `--memory_limit`; Spark: of a local master.
        threads: None for one per core.
        staging: folder that all workers of Spark see; None: `scratch`.
        master, spark_conf: of Spark.
    """
    if name == DUCKDB:
        from preproc.engines.duckdb_engine import DuckDBBackend

        return DuckDBBackend(scratch, memory_limit_bytes, threads)
    environment.require_spark()
    from preproc.engines.spark.backend import SparkBackend

    return SparkBackend(
        scratch, staging or scratch, memory_limit_bytes, threads, master, tuple(spark_conf)
    )
