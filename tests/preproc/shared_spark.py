"""One local Spark for all tests of a module, because each start takes seconds."""

import contextlib

import pytest

from preproc.engines.spark import session as spark_session


@contextlib.contextmanager
def started(options, folder):
    """Yields a session of a few tasks."""
    session = spark_session.start(options, folder, "tests")
    # Fixed partitions: even a small vocabulary has several parts.
    session.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", 3)
    yield session
    spark_session.stop(session)


@contextlib.contextmanager
def used(session):
    """Gives preparations this session; it stays open after them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_session, "start", lambda *_: session)
        patch.setattr(spark_session, "stop", lambda _: None)
        yield
