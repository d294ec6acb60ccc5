"""Instances of a model are processes; their tables are one copy in memory."""

from pathlib import Path

import numpy as np

from deployment.client.client import Client
from tests.serving.conftest import BIG_DIM, BIG_INSTANCES, BIG_ROWS

MB = 2**20
SIZE_MB = BIG_ROWS * BIG_DIM * 4 / MB  # 198


def memory_of(pid, file_name):
    """Megabytes of a mapped file in a process: resident, its proportional share, and those that no
    other process maps."""
    totals = {"Rss": 0, "Pss": 0, "Private_Clean": 0, "Private_Dirty": 0}
    mine = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        key, _, value = line.partition(":")
        if "-" in key.split(" ")[0]:
            mine = line.endswith(file_name)
        elif mine and key in totals:
            totals[key] += int(value.split()[0]) / 1024
    return totals["Rss"], totals["Pss"], totals["Private_Clean"] + totals["Private_Dirty"]


def test_memory_of_two_instances(server, served):
    rows = served["dlrm"].rows(0, 300)
    arrays = {name: np.resize(array, (2048, array.shape[1])) for name, array in rows.items()}
    rng = np.random.default_rng(0)
    resident, shares, private = [], [], []
    with Client(server.url, "dlrm_big", in_flight=8) as client:

        def requests(number):
            for _ in range(number):
                changed = {name: array.copy() for name, array in arrays.items()}
                changed["categorical_features"][:, 5] = rng.integers(0, BIG_ROWS, 2048)
                yield changed

        for _ in range(10):  # until both instances have seen most pages, 50,781 of 128 rows
            for scores in client.scores(requests(100)):
                assert np.isfinite(scores).all()
            result = [memory_of(pid, "big.npy") for pid in server.stubs()]
            resident, shares, private = zip(*(m for m in result if m[0]), strict=True)
            if len(resident) == BIG_INSTANCES and min(resident) > 0.9 * SIZE_MB:
                break
    print(f"table {SIZE_MB:.0f} MB; resident {resident}, shares {shares}, private {private}")
    assert len(resident) == BIG_INSTANCES and min(resident) > 0.9 * SIZE_MB
    assert sum(shares) < 1.02 * SIZE_MB
    assert max(private) < 0.1 * SIZE_MB
