"""One local Spark for all tests of a process, because each start takes seconds."""

import contextlib

import pytest

from tests.preproc.criteo.test_spark_runs import QUICK_JAVA

QUICK = (QUICK_JAVA, "spark.python.daemon.module=tests.preproc.spark_daemon")


@contextlib.contextmanager
def started(folder):
    """Yields a session of a few tasks."""
    from preproc.engines.spark import session as spark_session

    options = spark_session.SessionOptions(None, QUICK, 2, 3 << 30)
    session = spark_session.start(options, folder, "tests")
    # Fixed partitions: even a small vocabulary has several parts.
    session.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", 3)
    yield session
    spark_session.stop(session)


@contextlib.contextmanager
def used(session):
    """Gives preparations this session; it stays open after them."""
    from preproc.engines.spark import session as spark_session

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_session, "start", lambda *_: session)
        patch.setattr(spark_session, "stop", lambda _: None)
        yield
