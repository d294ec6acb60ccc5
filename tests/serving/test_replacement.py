"""A model of a running server is replaced again and again while 16 clients use it.

`LOAD_S=1800` in the environment makes it a test of half an hour for each kind of model.
"""

import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from deployment.client.client import Client
from deployment.deploy import __main__ as deploy
from deployment.serve.server import running
from deployment.triton.repository import models_of

CLIENTS, ROWS, NAME = 16, 4, "m"
LOAD_S = float(os.environ.get("LOAD_S", "0"))
INTERVAL_S = 5.0  # between starts of deployments, if one takes less
PAUSE_S = 0.02  # of a client between an answer and its next request


def use(url, number, arrays, expected, ended) -> Counter:
    """Sends requests until the end; returns the numbers of answers by model and of other ones."""
    counts, rng = Counter(), np.random.default_rng(number)
    with Client(url, NAME, patience_s=0) as client:
        while not ended.wait(PAUSE_S):
            start = int(rng.integers(len(arrays["numerical_features"]) - ROWS))
            rows = slice(start, start + ROWS)
            request = {tensor: array[rows] for tensor, array in arrays.items()}
            try:
                scores = client.ask(client.prepare(request, "a"))
            except Exception as error:
                counts[f"failed: {error}"] += 1
                continue
            near = [np.abs(scores - model[rows]).max() <= 1e-6 for model in expected.values()]
            counts["mixed" if sum(near) != 1 else [*expected][near.index(True)]] += 1
    return counts


def watch(server, ended) -> None:
    while not ended.wait(0.2):
        server.check_alive()


@pytest.mark.quick("ensemble")
@pytest.mark.parametrize("kind", ["single", "ensemble"])
def test_redeployments(kind, trained, served, tmp_path):
    """Each answer is that of one of two models of different width; none fails or is a mix."""
    expected = {name: served[name].expected for name in ("dlrm", "dcnv2")}
    arrays, repository = served["dlrm"].arrays, tmp_path / "repository"
    flags = [f"--model_repository={repository}", f"--model_name={NAME}", "--overwrite"]
    flags += ["--monolithic"] * (kind == "single")

    def deployed(number, *more) -> None:
        checkpoint = trained[[*expected][number % 2]].checkpoint
        assert deploy.main([f"--checkpoint_dir={checkpoint}", *flags, *more]) == 0

    deployed(0)
    first_parts = models_of(repository / NAME)[:-1]
    ended, number = threading.Event(), 0
    with running(repository, tmp_path / "log") as server, ThreadPoolExecutor(CLIENTS + 1) as pool:
        load = ("--load_model", f"--server_url={server.url}")
        clients = [
            pool.submit(use, server.url, client, arrays, expected, ended)
            for client in range(CLIENTS)
        ]
        watcher = pool.submit(watch, server, ended)
        try:
            deadline = time.monotonic() + LOAD_S
            while number < 2 or time.monotonic() < deadline:
                started, number = time.monotonic(), number + 1
                deployed(number, *load)
                time.sleep(max(0, started + INTERVAL_S - time.monotonic()))
        finally:
            ended.set()
        counts = sum((client.result() for client in clients), Counter())
        print(f"{kind}: {number} redeployments; answers: {dict(counts)}")
        watcher.result()
        names = models_of(repository / NAME)
        assert sorted(os.listdir(repository)) == sorted(names)
        deadline = time.monotonic() + 30
        while len(server.stubs()) > max(1, len(names) - 1):  # of previous models
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert counts.keys() == set(expected), counts
    assert number % 2 or names[:-1] == first_parts, "parts are named by their content"
