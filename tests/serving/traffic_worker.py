"""Some clients of a process, each with its share of requests, whose every answer is checked.

traffic_worker.py URL MODEL ROWS.npz CLIENTS REQUESTS SEED; prints a JSON object.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from deployment.client.client import Client

PATIENCE_S = 120
MAX_ROWS = 12  # per request


def work(client: Client, rows, expected, requests: int, seed: int) -> None:
    """Sends requests of random rows, and raises at an answer that is not its own."""
    rng = np.random.default_rng(seed)
    drawn_rows = []

    def drawn():
        for _ in range(requests):
            picked = rng.integers(0, len(expected), rng.integers(1, MAX_ROWS + 1))
            drawn_rows.append(picked)
            yield {name: array[picked] for name, array in rows.items()}

    number = -1
    for number, scores in enumerate(client.scores(drawn())):
        np.testing.assert_allclose(scores, expected[drawn_rows[number]], rtol=0, atol=1e-6)
    assert number == requests - 1


def main(url, model, path, clients, requests, seed) -> dict:
    with np.load(path) as file:
        rows = dict(file)
    expected = rows.pop("expected")

    def run(number: int) -> dict:
        result = {"answered": 0, "failures": []}
        with Client(url, model, in_flight=2, patience_s=PATIENCE_S) as client:
            try:
                work(client, rows, expected, int(requests), int(seed) + number)
                result["answered"] = int(requests)
            except Exception as error:
                result["failures"] = [f"{type(error).__name__}: {error}"]
            return result | {"resent": client.resent}

    with ThreadPoolExecutor(int(clients)) as threads:
        results = list(threads.map(run, range(int(clients))))
    return {
        "answered": sum(result["answered"] for result in results),
        "resent": sum(result["resent"] for result in results),
        "failures": [failure for result in results for failure in result["failures"]],
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
