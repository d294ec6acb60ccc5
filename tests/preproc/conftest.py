"""Fixtures of the preparations."""

import pytest

from tests.preproc import shared_spark


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
