"""A model with NVIDIA's tensors on the real server, and the commands of NVIDIA's guides for it."""

import csv

import numpy as np
import pytest

from deployment.client import __main__ as client_tool
from deployment.client import perf_analyzer
from deployment.client.client import Client
from deployment.evaluate_latency import __main__ as evaluate_latency
from deployment.serve.server import running


@pytest.fixture(scope="module")
def original(trained, tmp_path_factory):
    """The server of DLRM with NVIDIA's tensors on the local backend, in version 3."""
    folder = tmp_path_factory.mktemp("original")
    flags = ["--sparse-model-name=sparse", "--dense-model-name=dense", "--model-version=3"]
    flags += ["--tensors=nvidia", "--max_batch_size=32768"]
    assert trained["dlrm"].deploy(folder, *flags) == 0
    with running(folder, tmp_path_factory.mktemp("log") / "log") as server:
        yield server


def test_answer_of_the_original(original, served):
    """int32 ids, and logits as the answer, without our client's conversion."""
    arrays = dict(served["dlrm"].arrays)
    arrays["categorical_features"] = arrays["categorical_features"].astype(np.int32)
    with Client(original.url, "dlrm", version="3") as client:
        config = client.config()
        scores = client.ask(client.prepare(arrays, "a"))
        message = client.prepare(arrays, "b")
        reply = client.send(message).result()
    inputs = {tensor.name: tensor.data_type for tensor in config.input}
    assert inputs == {"numerical_features": 11, "categorical_features": 8}
    (output,) = reply.outputs
    assert (output.name, output.datatype, reply.model_version) == ("DENSE_OUTPUT", "FP32", "3")
    logits = np.frombuffer(reply.raw_output_contents[0], np.float32)
    assert logits.min() < 0, "no probabilities"
    expected = served["dlrm"].expected
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(1 / (1 + np.exp(-logits)), expected[:, 0], rtol=0, atol=1e-6)


def test_models_of_a_server(original, capsys):
    assert client_tool.main(["--server-url", f"grpc://{original.url}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "dense: python, up to 32,768 rows",
        "dlrm: ensemble, up to 32,768 rows",
        "sparse: python, up to 32,768 rows",
    ]
    at = lines.index("dlrm: ensemble, up to 32,768 rows")
    assert sorted(lines[at + 1 : at + 4]) == [
        "  input   categorical_features  INT32 [6]",
        "  input   numerical_features  FP32 [3]",
        "  output  DENSE_OUTPUT  FP32 [1]",
    ]
    assert client_tool.main([f"--url={original.url}", "--model_name=none"]) == 2
    assert "served are dense, dlrm, sparse" in capsys.readouterr().err


@pytest.mark.parametrize("client", ["own", "perf_analyzer"])
def test_latency_of_the_original_command(original, served, client, tmp_path, monkeypatch, capsys):
    assert perf_analyzer.works()
    monkeypatch.chdir(tmp_path)
    command = ["--sparse-format", "tf-savedmodel", "--model-name", "dlrm", "--fused-embedding"]
    command += ["--dataset_path", str(served["dlrm"].trained.data), "--model-version", "3"]
    command += ["--measurement-request-count", "20", "--measurement-interval", "200"]
    command += ["--batch-sizes", "64", "256", "--result-path", "results.csv", "--timeout", "60"]
    command += ["--server-url", f"grpc://{original.url}", "--client", client]
    assert evaluate_latency.main(command) == 0, capsys.readouterr().err
    with open("results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["Batch"]) for row in rows] == [64, 256]
    for row in rows:
        assert 0 < int(row["p50 latency"]) <= int(row["p99 latency"])
        server = sum(int(value) for name, value in row.items() if name.startswith("Server"))
        # perf_analyzer averages the server's times and its own over windows that differ by some
        # requests, so that only the magnitude (the unit) can be compared.
        assert 0 < int(row["Server Compute Infer"]) < server < 10 * int(row["avg latency"])
