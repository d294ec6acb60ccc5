"""Traffic of 10,000 requests from 16 clients; the server is killed once and stopped once."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from deployment.client.client import Client

CLIENTS, REQUESTS, MAX_ROWS = 16, 625, 12  # of each client, and of each request
MODEL = "dlrm_mono"


def use(url, entry, seed) -> int:
    """Sends requests of random rows and checks each answer; returns how many were sent again."""
    rng = np.random.default_rng(seed)
    sizes, num_rows = rng.integers(1, MAX_ROWS + 1, REQUESTS), len(entry.expected)
    drawn = [rng.integers(0, num_rows, size) for size in sizes]
    requests = ({name: array[rows] for name, array in entry.arrays.items()} for rows in drawn)
    with Client(url, MODEL, in_flight=2, patience_s=120) as client:
        for rows, scores in zip(drawn, client.scores(requests), strict=True):
            np.testing.assert_allclose(scores, entry.expected[rows], rtol=0, atol=1e-6)
        return client.resent


def wait_for(server, rows):
    """Waits until the server has scored this number of rows since its start."""
    deadline = time.monotonic() + 100
    with Client(server.url, MODEL) as client:
        while client.statistics().inference_count < rows:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_traffic_with_lost_servers(server, served):
    entry = served["dlrm"]
    # Scores of other rows would be noticed: hardly any two are as close as the tolerance.
    apart = np.diff(np.sort(entry.expected[:, 0]))
    assert (apart > 1e-5).mean() > 0.75
    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(use, server.url, entry, seed) for seed in range(CLIENTS)]
        of_all = CLIENTS * REQUESTS * (1 + MAX_ROWS) / 2
        for end in (server.kill, server.stop):
            wait_for(server, of_all / 5)
            end()
            server.start()
        # Both ends met requests that were in flight, or sent in vain.
        assert sum(client.result() for client in clients) >= 16
