"""Closed-loop latency client in Python: each thread waits for its scores before the next request.

Threads share an interpreter: beyond some thousand requests per second they wait for each other, and
the latencies are not the server's. perf_analyzer has no such limit.
"""

import contextlib
import itertools
import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from deployment.client.client import Client, RequestRefused, ServerLost
from deployment.client.latency_statistics import Timing, timing

_MAX_PREPARED = 64  # requests that are sent in turn


class ClosedLoop(contextlib.AbstractContextManager):
    """Prepared requests of one size to one model, by `concurrency` threads with a connection each.

    `rows` has at least `batch_size` rows per tensor. `client_options` are those of `Client`.
    """

    def __init__(
        self,
        url: str,
        model_name: str,
        rows: Mapping[str, np.ndarray],
        batch_size: int,
        concurrency: int,
        **client_options,
    ):
        self._clients = [Client(url, model_name, **client_options) for _ in range(concurrency)]
        num_rows = len(next(iter(rows.values())))
        self._messages = []
        for number in range(min(num_rows // batch_size, _MAX_PREPARED)):
            part = slice(number * batch_size, (number + 1) * batch_size)
            arrays = {name: array[part] for name, array in rows.items()}
            self._messages.append(self._clients[0].prepare(arrays, str(number)))

    def __exit__(self, *exception):
        for client in self._clients:
            client.close()

    def run(self, seconds: float, min_requests: int = 1, timeout_s: float | None = None) -> Timing:
        """Sends requests for a time, and at least a number of them before `timeout_s`.

        Raises ValueError without an answer.
        """
        latencies, errors = [], []  # whose append is safe among threads
        numbers = itertools.count()
        started = time.perf_counter()
        until, deadline = started + seconds, started + (timeout_s or math.inf)

        def work(client: Client) -> None:
            for number in numbers:
                sent = time.perf_counter()
                if sent > deadline or (sent > until and number >= min_requests):
                    return
                try:
                    client.ask(self._messages[number % len(self._messages)])
                    latencies.append(time.perf_counter() - sent)
                except (RequestRefused, ServerLost) as error:
                    errors.append(error)

        with ThreadPoolExecutor(len(self._clients)) as pool:
            list(pool.map(work, self._clients))  # raises other errors
        elapsed_s = time.perf_counter() - started
        if not latencies:
            raise ValueError(f"none of {len(errors):,} requests was answered: {errors[0]}")
        return timing(latencies, len(errors), elapsed_s)
