"""Traffic of 10,000 requests from 16 clients; the server is killed once and stopped once."""

import json
import os
import subprocess
import sys
import time

import numpy as np

from deployment.client.client import Client
from tests.serving.traffic_worker import MAX_ROWS

PROCESSES, CLIENTS = 4, 4  # in each process: threads of 16 clients would share one interpreter
REQUESTS = 625  # per client
MODEL = "dlrm_mono"


def wait_for(server, rows):
    """Waits until the server has scored this number of rows since its start."""
    deadline = time.monotonic() + 100
    with Client(server.url, MODEL) as client:
        while client.statistics().inference_count < rows:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_traffic_with_lost_servers(server, served, root, tmp_path):
    entry = served["dlrm"]
    # Scores of other rows would be noticed: hardly any two are as close as the tolerance.
    apart = np.diff(np.sort(entry.expected[:, 0]))
    assert (apart > 1e-5).mean() > 0.75
    np.savez(tmp_path / "rows.npz", expected=entry.expected, **entry.arrays)
    command = [sys.executable, "tests/serving/traffic_worker.py", server.url, MODEL]
    workers = [
        subprocess.Popen(
            [*command, tmp_path / "rows.npz", str(CLIENTS), str(REQUESTS), str(100 * number)],
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    try:
        of_all = PROCESSES * CLIENTS * REQUESTS * (1 + MAX_ROWS) / 2
        for end in (server.kill, server.stop):
            wait_for(server, of_all / 5)
            end()
            server.start()
        result = [json.loads(worker.communicate(timeout=120)[0]) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [one["failures"] for one in result] == [[]] * PROCESSES
    assert sum(one["answered"] for one in result) == 10_000
    # Both ends met requests that were in flight, or sent in vain.
    assert sum(one["resent"] for one in result) >= 16
