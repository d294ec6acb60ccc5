"""Raw rows have the scores of training over HTTP and gRPC; files, Python and Spark are in
tests/deployment/test_equal_scores.py. Bad rows get an error alone."""

import json
import re
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput

from deployment.client import __main__ as client
from deployment.client.client import Client
from deployment.evaluate_accuracy import __main__ as evaluate_accuracy
from deployment.serve.server import running
from deployment.serve.serving_environment import ENVIRONMENT
from tests import raw_shop
from tests.deployment.test_equal_scores import ATOL, EVENTS, trained
from tests.serving.test_json import asked

SHOPS = ["dlrm", "dcnv2_grown"]
MODELS = [*SHOPS, *EVENTS]
# Columns as tensors; a missing text is empty, and a missing number NaN.
DATATYPES = {
    **dict.fromkeys(("city", "shelf", "user", "tags"), "BYTES"),
    "member": "BOOL",
    "quantity": "INT64",
    **dict.fromkeys(("stock", "price", "age"), "FP64"),
    "person": "BYTES",
    "movie": "INT64",
    "shopper": "INT64",
    "book": "BYTES",
    "item_id_pos": "BYTES",
}
LISTS = ("tags", "item_id_pos")
DTYPES = {"BYTES": object, "BOOL": bool, "INT64": np.int64, "FP64": np.float64}
MISSING = {"BYTES": "", "FP64": float("nan")}
# Other forms of the model `dlrm`, and how much scores may differ in some.
FORMS = {
    "dlrm_bf16": ("--precision=bf16", "--check_rows=0"),
    "dlrm_int8": ("--quantize_tables=int8", "--check_rows=0"),
    "dlrm_waits": ("--max_queue_delay_us=300000",),
    "dlrm_encoded": ("--inputs=encoded",),
}
TOLERANCE = {"dlrm_bf16": 2e-2, "dlrm_int8": 1e-2}
PARTS = [f"{shop}_parts" for shop in SHOPS]


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, raw_shop.RawModel]:
    if not (ENVIRONMENT / "installed").exists():
        pytest.skip("there is no serving environment: run `make serve-setup`")
    return {name: trained(name, tmp_path_factory.mktemp(name)) for name in MODELS}


@pytest.fixture(scope="module")
def shop_server(models, tmp_path_factory):
    """A server of the models, of their ensembles (`_parts`), and of `FORMS`."""
    folder = tmp_path_factory.mktemp("shop")
    for name, model in models.items():
        assert model.trained.deploy(folder, f"--model_name={name}", "--monolithic") == 0
        if name in SHOPS:
            assert model.trained.deploy(folder, f"--model_name={name}_parts") == 0
    for name, flags in FORMS.items():
        named = (f"--model_name={name}", "--monolithic", *flags)
        assert models["dlrm"].trained.deploy(folder, *named) == 0
    with running(folder, folder.with_name("log")) as server:
        yield server


def tensors(rows) -> dict[str, np.ndarray]:
    """Returns rows as a client sends them, lists padded with empty texts."""
    arrays = {}
    for name in rows[0]:
        values, datatype = [row[name] for row in rows], DATATYPES[name]
        if name in LISTS:
            width = max(len(value or ()) for value in values)
            lists = [[*(value or ()), *[""] * width][:width] for value in values]
            arrays[name] = np.array(lists, object)
        else:
            values = [MISSING[datatype] if value is None else value for value in values]
            arrays[name] = np.array(values, DTYPES[datatype])[:, None]
    return arrays


def post(server, model, row) -> dict:
    """Returns the answer to a row as JSON, or raises ValueError with the server's error."""
    url = f"http://127.0.0.1:{server.http}/v2/models/{model}/generate"
    request = urllib.request.Request(url, json.dumps(row).encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        raise ValueError(json.load(error)["error"]) from None


def infer(server, name, arrays) -> np.ndarray:
    """Returns the scores of a request of tensors over HTTP, [rows]."""
    status, answer = asked(server, name, arrays)
    if status != 200:
        raise ValueError(answer)
    return np.array(answer["outputs"][0]["data"])


@pytest.mark.parametrize("name", [*MODELS, *PARTS, *TOLERANCE])
def test_scores(models, shop_server, name):
    model = models["dlrm" if name in FORMS else name.removesuffix("_parts")]
    arrays, atol = tensors(model.rows), TOLERANCE.get(name, ATOL)
    scores = infer(shop_server, name, arrays)
    np.testing.assert_allclose(scores, model.expected, rtol=0, atol=atol)

    inputs = [InferInput(n, a.shape, DATATYPES[n]) for n, a in arrays.items()]
    for tensor, array in zip(inputs, arrays.values(), strict=True):
        tensor.set_data_from_numpy(array)
    connection = InferenceServerClient(f"127.0.0.1:{shop_server.grpc}")
    scores = connection.infer(name, inputs).as_numpy("scores")
    np.testing.assert_allclose(scores[:, 0], model.expected, rtol=0, atol=atol)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_of_the_client(models, shop_server, kind, capsys):
    """`deployment.client --rows` prints the scores of a file."""
    model, url = models["dcnv2_grown"], f"--url=127.0.0.1:{shop_server.grpc}"
    flags = [url, "--model=dcnv2_grown", f"--rows={model.folder / f'rows.{kind}'}"]
    assert client.main(flags) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header == "row,score"
    scores = np.array([line.split(",")[1] for line in lines], float)
    np.testing.assert_allclose(scores, model.expected, rtol=0, atol=ATOL)


def test_file_with_another_column(models, shop_server, tmp_path, capsys):
    """A misspelt column is not one whose values are missing, though it is optional."""
    rows = [{"City": row.pop("city"), **row} for row in map(dict, models["dlrm"].rows)]
    path = raw_shop.write_csv(tmp_path / "rows.csv", rows)
    flags = [f"--url=127.0.0.1:{shop_server.grpc}", "--model=dlrm", f"--rows={path}"]
    assert client.main(flags) == 2
    output, error = capsys.readouterr()
    assert output == "" and "expected the columns city, got City, shelf" in error


def one_row(row) -> dict:
    """Returns a row as one JSON object: no missing values, lists with `;`."""
    texts = {name: ";".join(v) if isinstance(v, list) else v for name, v in row.items()}
    return {name: value for name, value in texts.items() if value is not None}


@pytest.mark.parametrize("name", MODELS)
def test_single_rows(models, shop_server, name):
    """`/generate` takes a row as one JSON object."""
    model = models[name]
    for number in range(28, 40):
        answer = post(shop_server, name, one_row(model.rows[number]))
        assert abs(answer["scores"] - model.expected[number]) < ATOL, model.rows[number]


@pytest.mark.parametrize("kind", ["", "_parts"])
def test_evaluation_of_encoded_rows(models, shop_server, kind, capsys):
    """`evaluate_accuracy` states that its requests are encoded."""
    trained, url = models["dlrm"].trained, f"127.0.0.1:{shop_server.grpc}"
    flags = [f"--checkpoint_dir={trained.checkpoint}", f"--model_name=dlrm{kind}", f"--url={url}"]
    flags += ["--trained", "--eval_mapping=validation"]
    assert evaluate_accuracy.main(flags) == 0
    assert "difference  auc +0.00e+00" in capsys.readouterr().out


@pytest.mark.parametrize("model", ["dlrm", "dlrm_parts"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"town": "Bern"}, "unknown column town; needed: .*city"),
        ({"price": "cheap"}, "non-number"),
        ({"city": 3}, "non-string"),
    ],
)
def test_bad_rows(models, shop_server, model, changes, message):
    good = models["dlrm"].rows[0]
    with pytest.raises(ValueError, match=message):
        post(shop_server, model, one_row(good | changes))
    assert post(shop_server, model, one_row(good))


def test_encoded_and_raw_requests_to_the_wrong_model(models, shop_server):
    encoded, _ = models["dlrm"].trained.requests()
    with pytest.raises(ValueError, match="expected raw rows, got the tensor .*; needed: .*city"):
        infer(shop_server, "dlrm", {name: array[:1] for name, array in encoded.items()})
    with pytest.raises(ValueError, match=r"missing required input\(s\) \['.*feat.*','.*feat.*'\]"):
        infer(shop_server, "dlrm_encoded", tensors(models["dlrm"].rows[:1]))


def test_requests_that_are_computed_together(models, shop_server):
    """A bad row, and a request with other columns, do not change those of others.

    All lists have one width: a request of another width would end the batch that waits.
    """
    arrays, expected = tensors(models["dlrm"].rows[:6]), models["dlrm"].expected[:6].copy()
    requests = [{name: array[[i]] for name, array in arrays.items()} for i in range(6)]
    requests[2]["stock"][:] = np.inf
    del requests[4]["city"]
    expected[4] = infer(shop_server, "dlrm", requests[4])[0]

    def answer(request):
        try:
            return infer(shop_server, "dlrm_waits", request)[0]
        except ValueError as error:
            return str(error)

    with Client(shop_server.url, "dlrm_waits") as served, ThreadPoolExecutor(6) as pool:
        before = served.statistics()
        answers = list(pool.map(answer, requests))
        after = served.statistics()
    assert after.execution_count - before.execution_count < len(requests)
    assert "column 'stock', row 0" in answers.pop(2)
    np.testing.assert_allclose(answers, np.delete(expected, 2), rtol=0, atol=ATOL)


def test_description_of_columns(shop_server, capsys):
    """It has a row that the server takes."""
    flags = ["--url", shop_server.url, "--model", "dlrm_parts"]
    assert client.main([*flags, "--describe"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"\n  column  stock +number +optional  ", text)
    command, _, row = text.splitlines()[-1].strip().rpartition(" --data ")
    assert command == "curl http://127.0.0.1:HTTP_PORT/v2/models/dlrm_parts/generate"
    assert post(shop_server, "dlrm_parts", json.loads(row.strip("'")))
