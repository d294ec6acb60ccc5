"""Some clients of a process, each with its share of requests, whose every answer is checked.

traffic_worker.py URL MODEL ROWS.npz CLIENTS REQUESTS SEED; prints a JSON object.
"""

import json
import sys
import threading

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
    result = {"answered": 0, "resent": 0, "failures": []}

    def run(number: int) -> None:
        with Client(url, model, in_flight=2, patience_s=PATIENCE_S) as client:
            try:
                work(client, rows, expected, int(requests), int(seed) + number)
                result["answered"] += int(requests)
            except Exception as error:
                result["failures"].append(f"{type(error).__name__}: {error}")
            result["resent"] += client.resent

    threads = [threading.Thread(target=run, args=(n,)) for n in range(int(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return result


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
