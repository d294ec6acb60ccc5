"""Models that take raw rows on a real server, over gRPC and HTTP."""

import csv
import json
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

from deployment.client.__main__ import main as client_main
from deployment.client.client import Client, RequestRefused
from deployment.serve.server import running
from deployment.serve.serving_environment import ENVIRONMENT
from tests.deployment.conftest import trained_of_texts  # noqa: F401

MODELS = {
    "shop": ["--monolithic"],
    "shop_parts": [],
    "shop_bf16": ["--monolithic", "--precision=bf16", "--check_rows=0"],
    "shop_int8": ["--monolithic", "--quantize_tables=int8", "--check_rows=0"],
    "shop_waits": ["--monolithic", "--max_queue_delay_us=300000"],
    "shop_encoded": ["--monolithic", "--inputs=encoded"],
}
TOLERANCE = {"shop_bf16": 2e-2, "shop_int8": 1e-2}


@pytest.fixture(scope="module")
def models(trained_of_texts, tmp_path_factory):  # noqa: F811
    if not (ENVIRONMENT / "installed").exists():
        pytest.skip("there is no serving environment: run `make serve-setup`")
    repository = tmp_path_factory.mktemp("shop") / "models"
    for name, flags in MODELS.items():
        assert trained_of_texts.deploy(repository, f"--model_name={name}", *flags) == 0
    return repository


@pytest.fixture(scope="module")
def server(models, tmp_path_factory):
    with running(models, tmp_path_factory.mktemp("server") / "log") as server:
        yield server


@pytest.fixture(scope="module")
def rows(trained_of_texts):  # noqa: F811
    """The rows of the split test as tensors."""
    with open(trained_of_texts.data.parent / "raw/test.csv", newline="") as file:
        table = list(csv.DictReader(file))

    def texts(name):
        return np.array([[row[name].encode()] for row in table], object)

    price = np.array([[float(row["price"])] for row in table])
    return {"price": price} | {name: texts(name) for name in ("city", "user", "tags")}


@pytest.fixture(scope="module")
def expected(trained_of_texts, tmp_path_factory):  # noqa: F811
    """Scores of `--mode predict` of the prepared split."""
    return trained_of_texts.scores(tmp_path_factory.mktemp("predict"))[:, None]


def scores(server, model, arrays):
    with Client(server.url, model) as client:
        return client.ask(client.prepare(arrays, "0"))


def posted(server, path, content):
    """(status, answer) of a request over HTTP."""
    url = f"http://127.0.0.1:{server.http}/v2/models/{path}"
    try:
        request = urllib.request.Request(url, json.dumps(content).encode())
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]


def one(price=1.5, **texts):
    """A request of one row."""
    arrays = {name: np.array([[text.encode()]], object) for name, text in texts.items()}
    return arrays | ({} if price is None else {"price": np.array([[price]])})


@pytest.mark.parametrize("model", ["shop", *TOLERANCE])
def test_scores_over_grpc(server, rows, expected, model):
    tolerance = TOLERANCE.get(model, 1e-6)
    np.testing.assert_allclose(scores(server, model, rows), expected, rtol=0, atol=tolerance)


ENCODED = {
    "numerical_features": np.zeros((1, 1), np.float32),
    "categorical_features": np.zeros((1, 4), np.int64),
}
BAD = {
    "unknown_column": (one(town="Bern"), "unexpected inference input 'town'"),
    "missing_column": (
        one(None, city="Bern"),
        "expected the column price, got city; needed: price",
    ),
    "missing_value": (one(np.nan), "column 'price', row 0 .*: expected a value"),
    "wrong_type": (one() | {"city": np.ones((1, 1), np.int64)}, "'city' data-type is 'INT64'"),
    "text_for_number": (
        one() | {"price": np.array([[b"1.5"]], object)},
        "'price' data-type is 'BYTES', but .* 'FP64'",
    ),
    "not_utf8": (one() | {"city": np.array([[b"\xff"]], object)}, "column 'city', row 0 .*UTF-8"),
    "encoded": (ENCODED, "expected raw rows, got the tensor .*; needed: price; optional: city"),
}


@pytest.mark.parametrize("model", ["shop", "shop_parts"])
@pytest.mark.parametrize("case", BAD)
def test_bad_requests(server, model, case):
    arrays, message = BAD[case]
    with pytest.raises(RequestRefused, match=message):
        scores(server, model, arrays)
    assert scores(server, model, one()).shape == (1, 1)


def test_raw_rows_for_a_model_of_encoded_requests(server):
    arrays = one(city="Bern", user="user3", tags="new")
    with pytest.raises(
        RequestRefused, match=r"missing required input\(s\) \['.*features','.*features'\]"
    ):
        scores(server, "shop_encoded", arrays)
    assert scores(server, "shop_encoded", ENCODED).shape == (1, 1)


def test_requests_that_are_computed_together(server, rows, expected):
    """A bad row, and a request with other columns, do not change those of others."""
    requests = [{name: array[n : n + 1] for name, array in rows.items()} for n in range(6)]
    requests[2] = one(np.nan)
    requests[4] = {name: array for name, array in requests[4].items() if name != "city"}
    answers = [None] * len(requests)
    with Client(server.url, "shop_waits") as client:
        before = client.statistics()

    def ask(number):
        try:
            answers[number] = float(scores(server, "shop_waits", requests[number])[0, 0])
        except RequestRefused as error:
            answers[number] = str(error)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Client(server.url, "shop_waits") as client:
        after = client.statistics()
    assert after.execution_count - before.execution_count < len(requests)
    assert "column 'price', row 0" in answers[2]
    alone = float(scores(server, "shop", requests[4])[0, 0])
    expected = [*expected[:4, 0], alone, expected[5, 0]]
    for number in (0, 1, 3, 4, 5):
        assert abs(answers[number] - expected[number]) < 1e-6


def test_client_commands(server, trained_of_texts, expected, capsys):  # noqa: F811
    flags = ["--url", server.url, "--model", "shop_parts"]
    assert client_main([*flags, "--describe"]) == 0
    text = capsys.readouterr().out
    assert "  column  price  number          required  " in text
    command, _, row = text.splitlines()[-1].strip().rpartition(" --data ")
    assert command == "curl http://127.0.0.1:HTTP_PORT/v2/models/shop_parts/generate"
    assert posted(server, "shop_parts/generate", json.loads(row.strip("'")))[0] == 200
    path = trained_of_texts.data.parent / "raw/test.csv"
    assert client_main([*flags, "--rows", str(path)]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header == "row,score" and [line.split(",")[0] for line in lines] == [
        str(n) for n in range(100)
    ]
    actual = np.array([float(line.split(",")[1]) for line in lines])
    np.testing.assert_allclose(actual, expected[:, 0], rtol=0, atol=1e-6)
    assert client_main([*flags, "--json", '{"city": 3}']) == 2
    assert "expected the column price" in capsys.readouterr().err
