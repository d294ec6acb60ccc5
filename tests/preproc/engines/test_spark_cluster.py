import os
import signal
import threading
import time
import types

import pytest
from ibis import _

from preproc.engines.open_engine import open_engine
from preproc.sources.part_files import find_table
from tests.preproc.engines.tables import check_row_numbers, numbered, row_numbers, write
from tests.spark_cluster import spark_cluster

pytest.importorskip("pyspark", reason="needs pyspark: run .venv-engines/bin/python")
pytestmark = pytest.mark.engines("pyspark")


def nested_row_numbers():
    """Returns `row_numbers` as workers get it that cannot import tests."""
    return types.FunctionType(row_numbers.__code__, {"__name__": "__main__"})


@pytest.mark.long
def test_killed_worker(tmp_path):
    """A cluster loses one of two workers while it reads: the same rows in the same order."""
    path = write(tmp_path, "t.csv", b"a,b\n" + numbered(600_000))
    staging = tmp_path / "staging"
    staging.mkdir()
    (tmp_path / "cluster").mkdir()
    with spark_cluster(tmp_path / "cluster") as (master, pids):

        def kill():
            while len(list(staging.glob("table_0/new-*"))) < 5:
                time.sleep(0.05)
            os.kill(pids[-1], signal.SIGKILL)

        settings = {
            "staging": staging,
            "master": master,
            "spark_conf": ["spark.sql.files.maxPartitionBytes=200000"],
        }
        with open_engine("spark", tmp_path, memory_limit_bytes=3 << 30, **settings) as engine:
            killer = threading.Thread(target=kill, daemon=True)
            killer.start()
            table = engine.read([find_table(path)])
            killer.join()
            reports = engine.map_batches(table, nested_row_numbers())
            assert check_row_numbers(reports, 600_000) > 20
            last = engine.fetch(table.filter(_.__row == 599_999))
            assert last["a"].to_pylist() == ["599999"]
