"""Latency measurements without Triton's server."""

import itertools
import re
import time

import grpc
import numpy as np
import pytest

from deployment.client import perf_analyzer
from deployment.client.closed_loop import ClosedLoop
from deployment.client.latency_statistics import Measurement, write_original_csv
from deployment.evaluate_latency import __main__ as evaluate_latency
from deployment.serving import interface as interfaces
from deployment.triton import model_folders
from deployment.triton.repository import write_origin
from tests.deployment.client.stand_in_server import StandIn, answer_to, serving
from tests.deployment.evaluate.latency_csv import read_csv
from tests.deployment.serving.made_models import CLICKS

ROWS = {"x": np.arange(300, dtype=np.int32).reshape(100, 3)}


def test_csv_of_the_original(tmp_path):
    client = (64, 2, 10, 0, 0.5, 1280.0, 2.0, 1.0, 3.0, 4.0, 5.0, 64.0)
    measured = Measurement("a", "own", "dynamic", *client, 0.25, 0.125, 1.0)
    write_original_csv(tmp_path / "new/file.csv", [measured])
    header, line = (tmp_path / "new/file.csv").read_text().splitlines()
    assert header == (
        "Batch,Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,"
        "Server Compute Input,Server Compute Infer,Server Compute Output,Client Recv,"
        "p50 latency,p90 latency,p95 latency,p99 latency,avg latency"
    )
    # In microseconds; the parts add up to the mean of 2 ms.
    assert line == "64,2,1280,0,625,250,125,1000,0,0,1000,3000,4000,5000,2000"


def test_interface_of_repository_model(tmp_path):
    for model, role in (("one", "scorer"), ("two_sparse", "sparse"), ("two_dense", "dense")):
        (tmp_path / model / "1").mkdir(parents=True)
        interfaces.write(CLICKS._replace(role=role), tmp_path / model / "1")
    (tmp_path / "two").mkdir()
    write_origin(tmp_path / "two", {}, ["two_sparse", "two_dense", "two"])
    assert model_folders.entry_interface(tmp_path, "one")[1].role == "scorer"
    assert model_folders.entry_interface(tmp_path, "two")[1].role == "sparse"
    # Other backends have the interface in other parts; the highest version is served.
    for model, role in (("three_checks", "checks"), ("four_keys", "keys")):
        for version, largest in (("9", 9), ("10", 10), ("old", 11)):
            (tmp_path / model / version).mkdir(parents=True)
            written = CLICKS._replace(role=role, max_batch_size=largest)
            interfaces.write(written, tmp_path / model / version)
        name = model.partition("_")[0]
        (tmp_path / name).mkdir()
        write_origin(tmp_path / name, {}, [model, name])
        _, result = model_folders.entry_interface(tmp_path, name)
        assert (result.role, result.max_batch_size) == (role, 10)
    with pytest.raises(ValueError, match="has no interface.json of five, which describes"):
        model_folders.entry_interface(tmp_path, "five")
    with pytest.raises(ValueError, match="has no interface.json of two_dense"):
        model_folders.entry_interface(tmp_path, "two_dense")


def test_closed_loop_counts():
    sent, numbers = [], itertools.count(1)

    def infer(message, context):
        sent.append(message)
        if next(numbers) % 5 == 0:  # len(sent) may include other threads
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")
        return answer_to(message)

    with (
        serving(StandIn(infer)) as url,
        ClosedLoop(url, "sums", ROWS, batch_size=40, concurrency=3) as loop,
    ):
        result = loop.run(0, min_requests=50)
    assert result.requests + result.errors == len(sent)
    assert 50 <= len(sent) <= 53  # each thread ends after its current request
    assert result.errors == len(sent) // 5
    assert 0 < result.percentiles_ms[0] <= result.percentiles_ms[3] < 1e3 * result.elapsed_s
    # Two requests of 40 neighbouring rows are in the 100.
    values = {np.frombuffer(m.raw_input_contents[0], np.int32).tobytes() for m in sent}
    assert values == {ROWS["x"][:40].tobytes(), ROWS["x"][40:80].tobytes()}


def test_closed_loop_without_answers():
    def infer(message, context):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "never")

    with (
        serving(StandIn(infer)) as url,
        ClosedLoop(url, "sums", ROWS, 4, 1) as loop,
        pytest.raises(ValueError, match="none of 3 requests was answered: sums at .* never"),
    ):
        loop.run(0, min_requests=3)


def test_measurement_tool(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(evaluate_latency, "entry_interface", lambda *_: (tmp_path, CLICKS))
    monkeypatch.setattr(evaluate_latency, "drawn_request", lambda *_: ROWS)
    for dynamic, word in ((False, "static"), (True, "dynamic")):
        with serving(StandIn(dynamic=dynamic)) as url:
            flags = [
                *(f"--url={url}", "--model_name=sums", f"--model_repository={tmp_path}"),
                *("--batch_sizes=2,8", "--concurrency=1,2", "--client=own"),
                *("--seconds=0.001", "--warmup_seconds=0", "--requests=5", "--wait_s=9"),
                f"--output={tmp_path}/v1.5",
            ]
            assert evaluate_latency.main(flags) == 0
        result = read_csv(tmp_path / "v1.5.csv")
        settings = [(m.batch_size, m.concurrency) for m in result]
        assert settings == [(b, c) for b in (2, 8) for c in (1, 2)]
        assert {(m.batching, m.client, m.errors) for m in result} == {(word, "own", 0)}
        assert all(m.rows_per_execution == m.batch_size and m.requests >= 5 for m in result)
    assert f"wrote {tmp_path}/v1.5.csv" in capsys.readouterr().out


# Flags of which the first is invalid; a message about a missing flag names that.
INVALID = """
--batch_sizes=0
--concurrency=1,1025
--model_name=a,a
--output=.
--result_path=results
--client=perf_analyzer
"""


@pytest.mark.parametrize("flag", INVALID.split())
def test_invalid_flags(flag, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(perf_analyzer, "PROGRAM", tmp_path / "absent")
    start = ["--model_name=sums", "--url=127.0.0.1:1", f"--output={tmp_path}/l"]
    assert evaluate_latency.main([*start, flag]) == 2
    assert capsys.readouterr().err.startswith(f"error: {flag.partition('=')[0]}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ([], "--model_repository"),
        (["--dataset_path=absent"], "absent: the file or folder does not exist"),
        (["--output=folder"], "--output: folder.csv"),
    ],
)
def test_missing_rows_and_unwritable_file(flags, name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    start = ["--model_name=sums", "--url=127.0.0.1:1", "--output=l"]
    assert evaluate_latency.main([*start, *flags]) == 2
    assert name in capsys.readouterr().err


def test_models_never_ready(tmp_path, monkeypatch, capsys):
    """Both models together may take `--wait_s`."""

    class SlowToSay(StandIn):
        def ModelReady(self, request, context):
            time.sleep(0.2 if request.name == "sums" else 0)
            return super().ModelReady(request, context)

    monkeypatch.setattr(evaluate_latency, "entry_interface", lambda *_: (tmp_path, CLICKS))
    monkeypatch.setattr(evaluate_latency, "drawn_request", lambda *_: ROWS)
    with serving(SlowToSay()) as url:
        flags = [f"--url={url}", "--model_name=sums,other", f"--model_repository={tmp_path}"]
        started = time.monotonic()
        output = f"--output={tmp_path}/l"
        assert evaluate_latency.main([*flags, "--client=own", "--wait_s=0.3", output]) == 2
    assert 0.3 < time.monotonic() - started < 60
    text = re.search(r"other at .* was not ready within (\S+) s", capsys.readouterr().err)
    assert 0 <= float(text[1]) <= 0.1  # the time that the other model left
