"""Bad requests: the sender alone gets an error."""

import threading
import time

import numpy as np
import pytest

from deployment.client.client import Client, RequestRefused
from deployment.triton.repository import models_of

BAD_FEATURES = 5  # rows that each of the cases below has before it is made bad


def changed(name, change):
    """A request in which one tensor is changed."""

    def change_one(arrays):
        actual = arrays[name].copy()
        return arrays | {name: change(actual)}

    return change_one


def put(row, column, value):
    def change(array):
        array[row, column] = value
        return array

    return change


IDS, NUMBERS = "categorical_features", "numerical_features"
CASES = {
    "an id too large": (changed(IDS, put(2, 1, 300)), "300"),
    "a negative id": (changed(IDS, put(0, 0, -1)), "-1"),
    "NaN": (changed(NUMBERS, put(4, 2, np.nan)), "nan"),
    "infinity": (changed(NUMBERS, put(4, 2, -np.inf)), "inf"),
    "another dtype": (changed(IDS, lambda a: a.astype(np.int32)), "INT32"),
    "a column less": (changed(IDS, lambda a: a[:, 1:]), "shape"),
    "a dimension more": (changed(NUMBERS, lambda a: a[:, :, None]), "shape"),
    "fewer rows in one": (changed(NUMBERS, lambda a: a[:3]), "batch"),
    "no rows": (lambda arrays: {k: v[:0] for k, v in arrays.items()}, "size|batch|rows"),
    "too many rows": (
        lambda arrays: {k: np.repeat(v, 410, axis=0) for k, v in arrays.items()},
        "batch-size must be <= 2048",
    ),
    "a tensor missing": (lambda arrays: {IDS: arrays[IDS]}, "numerical_features|expected 2 inputs"),
    "a tensor more": (lambda arrays: arrays | {"more": arrays[IDS]}, "more"),
}


@pytest.fixture
def good_requests(server, served):
    """Sends good requests to a model during a test; each must get its answer."""
    stop = threading.Event()
    results: list[object] = []

    def run(model, of):
        def requests():
            number = 0
            while not stop.is_set():
                number = (number + 7) % (len(of.expected) - 5)
                starts.append(number)
                yield of.rows(number, number + 5)

        starts: list[int] = []
        try:
            with Client(server.url, model, in_flight=4) as client:
                for number, scores in enumerate(client.scores(requests())):
                    start = starts[number]
                    right = of.expected[start : start + 5]
                    np.testing.assert_allclose(scores, right, rtol=0, atol=1e-6)
                    results.append(True)
        except BaseException as error:
            results.append(error)

    threads = []

    def begin(model, of):
        threads.append(threading.Thread(target=run, args=(model, of)))
        threads[-1].start()

    yield begin
    before = len(results)
    while len(results) < before + 20 and threads[-1].is_alive():
        stop.wait(0.01)  # the server continues to answer
    stop.set()
    for thread in threads:
        thread.join()
    assert results and all(result is True for result in results), results[-1]


@pytest.mark.parametrize("model", ["dlrm", "dlrm_mono", "dcnv2"])
def test_errors_of_bad_requests(server, served, good_requests, model):
    entry = served[model.removesuffix("_mono")]
    good_requests(model, entry)
    arrays = entry.rows(0, BAD_FEATURES)
    with Client(server.url, model) as client:
        for _ in range(3):
            for case, (make_bad, message) in CASES.items():
                with pytest.raises(RequestRefused, match=message):
                    client.ask(client.prepare(make_bad(arrays), case))
        actual = client.ask(client.prepare(arrays, "good"))
    np.testing.assert_allclose(actual, entry.expected[:BAD_FEATURES], rtol=0, atol=1e-6)
    server.check_alive()


@pytest.mark.parametrize("model", ["dlrm_patient", "dlrm_patient_mono"])
def test_bad_and_good_requests_in_batch(server, repository, served, model):
    """Requests that wait together run together; a bad one among them gets its own answer."""
    entry = served["dlrm"]
    # An ensemble has no executions of its own.
    first = models_of(repository / model)[0]
    with Client(server.url, model, timeout_s=60) as client, Client(server.url, first) as runs:
        before = runs.statistics()
        messages = []
        for number in range(60):
            arrays = entry.rows(number, number + 3)
            if number % 3 == 1:
                arrays = changed(IDS, put(1, 5, 40_000 + number))(arrays)
            messages.append(client.prepare(arrays, str(number)))
        answers = list(zip(range(60), map(client.send, messages), strict=True))
        for number, answer in answers:
            if number % 3 == 1:
                with pytest.raises(RequestRefused, match=f"{40_000 + number}"):
                    client.receive(messages[number], answer)
                continue
            actual = client.receive(messages[number], answer)
            right = entry.expected[number : number + 3]
            np.testing.assert_allclose(actual, right, rtol=0, atol=1e-6)
        # Fewer than there are good ones: bad ones were among those of an execution.
        deadline = time.monotonic() + 30  # the server counts after it has answered
        while (after := runs.statistics()).inference_count < before.inference_count + 40 * 3:
            assert time.monotonic() < deadline, (before, after)
            time.sleep(0.05)
        assert 0 < after.execution_count - before.execution_count < 40
