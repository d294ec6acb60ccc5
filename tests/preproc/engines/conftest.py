"""Spark of all tests, in which files of a few hundred kilobytes are divided, and all engines."""

import pytest

from preproc.engines.open_engine import open_engine
from tests.preproc import shared_spark

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


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.engines("pyspark"))])
def engine(request):
    return request.getfixturevalue(request.param)
