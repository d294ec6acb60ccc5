"""Latency measurements without Triton's server."""

import base64
import itertools
import json
import re
import sys
import time

import grpc
import numpy as np
import pytest

from deployment.client import perf_analyzer
from deployment.client.closed_loop import ClosedLoop
from deployment.client.latency_statistics import (
    Measurement,
    medians,
    table,
    timing,
    write_csv,
    write_original_csv,
)
from deployment.client.perf_analyzer import PerfAnalyzerOptions
from deployment.client.served_tensors import KeysOfRequests, ServedTensors
from deployment.evaluate_latency import __main__ as evaluate_latency
from deployment.evaluate_latency.plot import draw
from deployment.serving import interface as interfaces
from deployment.serving.interface import (
    Interface,
    ServedFeature,
    ServedLookup,
    ServedTable,
    ServedTensor,
)
from deployment.triton import model_folders
from tests.deployment.client.stand_in_server import StandIn, answer_to, serving
from tests.deployment.evaluate.latency_csv import read_csv

ROWS = {"x": np.arange(300, dtype=np.int32).reshape(100, 3)}


def measurement(**changes):
    result = Measurement(
        *("a", "own", "dynamic", 64, 2, 1, 10, 0, 0.5, 1280.0, 2.0, 1.0, 3.0, 4.0, 5.0, 64.0)
    )
    return result._replace(**changes)


def test_statistics_by_hand():
    result = timing([0.001 * n for n in range(1, 102)], 3, 2.0)
    assert result[:4] == pytest.approx((101, 3, 2.0, 51.0))
    assert result.percentiles_ms == pytest.approx((51, 91, 96, 100))


def test_csv_round_trip(tmp_path):
    result = [measurement(), measurement(model="b", p99_ms=7.25)]
    write_csv(tmp_path / "new/file.csv", result)
    assert read_csv(tmp_path / "new/file.csv") == result
    first, *_ = (tmp_path / "new/file.csv").read_text().splitlines()
    assert first == ",".join(Measurement._fields)


def test_csv_of_the_original(tmp_path):
    in_server = {"queue_ms": 0.25, "compute_input_ms": 0.125, "compute_infer_ms": 1.0}
    write_original_csv(tmp_path / "new/file.csv", [measurement(**in_server)])
    header, line = (tmp_path / "new/file.csv").read_text().splitlines()
    assert header == (
        "Batch,Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,"
        "Server Compute Input,Server Compute Infer,Server Compute Output,Client Recv,"
        "p50 latency,p90 latency,p95 latency,p99 latency,avg latency"
    )
    # In microseconds; the parts add up to the mean of 2 ms.
    assert line == "64,2,1280,0,625,250,125,1000,0,0,1000,3000,4000,5000,2000"


def test_medians_of_repeats():
    repeats = [
        measurement(
            repeat=n, p50_ms=float(p50), errors=1, rows_per_s=float(rate), requests=requests
        )
        for n, p50, rate, requests in ((1, 1, 30, 10), (2, 9, 10, 20), (3, 2, 20, 40))
    ]
    other = measurement(batch_size=1)
    first, second = medians([repeats[0], other, *repeats[1:]])
    assert first == repeats[0]._replace(
        repeat=3, p50_ms=2.0, rows_per_s=20.0, errors=3, requests=20
    )
    assert second == other


def test_table():
    lines = table([measurement(), measurement(model="another", batch_size=2048)]).splitlines()
    assert lines[0].split() == [
        *(
            "model",
            "client",
            "batching",
            "batch",
            "in",
            "flight",
            "rows/s",
            "p50",
            "ms",
            "p90",
            "p95",
            "p99",
        ),
        *("errors", "rows/execution"),
    ]
    assert lines[2].split() == [
        *(
            "another",
            "own",
            "dynamic",
            "2,048",
            "2",
            "1,280",
            "1.00",
            "3.00",
            "4.00",
            "5.00",
            "0",
            "64.0",
        )
    ]
    assert len({len(line) for line in lines}) == 1


def test_plot(tmp_path):
    draw(tmp_path / "new/a.png", [measurement(), measurement(batch_size=1), measurement(model="b")])
    assert (tmp_path / "new/a.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.png"]


@pytest.fixture
def interface():
    return Interface(
        recipe="dlrm",
        inputs=(ServedTensor("n", "float32", (2,)), ServedTensor("c", "int64", (2, 2))),
        features=(
            ServedFeature("n", "n", 0, 2, None),
            ServedFeature("few", "c", 0, 1, 2),
            ServedFeature("many", "c", 1, 3, 1000),
        ),
        lookups=(),
        tables=(),
        dense_inputs=(),
        width=0,
    )


def test_interface_of_repository_model(interface, tmp_path):
    for model, role in (("one", "scorer"), ("two_sparse", "sparse"), ("two_dense", "dense")):
        (tmp_path / model / "1").mkdir(parents=True)
        interfaces.write(interface._replace(role=role), tmp_path / model / "1")
    assert model_folders.entry_interface(tmp_path, "one").role == "scorer"
    assert model_folders.entry_interface(tmp_path, "two").role == "sparse"
    # Other backends have the interface in other parts; the highest version is served.
    for model, role in (("three_checks", "checks"), ("four_keys", "keys")):
        for version, largest in (("9", 9), ("10", 10), ("old", 11)):
            (tmp_path / model / version).mkdir(parents=True)
            written = interface._replace(role=role, max_batch_size=largest)
            interfaces.write(written, tmp_path / model / version)
        result = model_folders.entry_interface(tmp_path, model.partition("_")[0])
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


def test_closed_loop_with_wrong_answer():
    with (
        serving(StandIn(lambda message, context: answer_to(message, id="x"))) as url,
        ClosedLoop(url, "sums", ROWS, 4, 2) as loop,
        pytest.raises(RuntimeError, match="is of request x"),
    ):
        loop.run(0)


def test_measurement_tool(interface, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(evaluate_latency, "entry_interface", lambda *_: interface)
    monkeypatch.setattr(evaluate_latency, "drawn_request", lambda *_: ROWS)
    for dynamic, word in ((False, "static"), (True, "dynamic")):
        with serving(StandIn(dynamic=dynamic)) as url:
            flags = [
                *(f"--url={url}", "--model_name=sums", f"--model_repository={tmp_path}"),
                *("--batch_sizes=2,8", "--concurrency=1,2", "--repeats=2", "--client=own"),
                *("--seconds=0.001", "--warmup_seconds=0", "--requests=5", "--wait_s=9"),
                f"--output={tmp_path}/v1.5",
            ]
            assert evaluate_latency.main(flags) == 0
        result = read_csv(tmp_path / "v1.5.csv")
        settings = [(m.repeat, m.batch_size, m.concurrency) for m in result]
        assert settings == [(r, b, c) for r in (1, 2) for b in (2, 8) for c in (1, 2)]
        assert {(m.batching, m.client, m.errors) for m in result} == {(word, "own", 0)}
        assert all(m.rows_per_execution == m.batch_size and m.requests >= 5 for m in result)
        assert (tmp_path / "v1.5.png").exists()
    assert f"wrote {tmp_path}/v1.5.csv and {tmp_path}/v1.5.png" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--batch_sizes=0"], "--batch_sizes: expected 1 or more, got 0"),
        (["--concurrency=1,1025"], "--concurrency: expected 1 to 1024, got 1025"),
        (["--seconds=0"], "--seconds: expected 1e-06 or more and finite, got 0.0"),
        (["--seconds=inf"], "--seconds: expected 1e-06 or more and finite, got inf"),
        (["--warmup_seconds=-1"], "--warmup_seconds: expected 0 or more and finite, got -1.0"),
        (["--wait_s=nan"], "--wait_s: expected 0 or more and finite, got nan"),
        (
            ["--model_name=a,a"],
            "--model_name: expected a name, or different ones like a,b, got a,a",
        ),
        (["--model_name=a,"], "--model_name: expected a name, or different ones like a,b, got a,"),
        (["--output=."], "--output: expected a path of files like runs/latency, got ."),
        (["--requests=0"], "--requests: expected 1 or more, got 0"),
        (["--repeats=0"], "--repeats: expected 1 or more, got 0"),
        ([], "a server does not report the allowed ids: give --model_repository"),
        (["--dataset_path=absent"], "absent/feature_spec.yaml"),
        (["--result_path=results"], "--result_path: expected a CSV file like results.csv, got"),
        (["--timeout_s=0"], "--timeout_s: expected 1e-06 or more and finite, got 0.0"),
        (["--client=perf_analyzer"], "is not there or does not start: run `make serve-setup`"),
    ],
)
def test_invalid_flags(flags, text, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(perf_analyzer, "PROGRAM", tmp_path / "absent")
    start = ["--model_name=sums", "--url=127.0.0.1:1", f"--output={tmp_path}/l"]
    assert evaluate_latency.main([*start, *flags]) == 2
    assert text in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("flag", ["--batch_sizes=1,x", "--concurrency=2,2"])
def test_invalid_lists(flag, capsys):
    with pytest.raises(SystemExit) as ended:
        evaluate_latency.main(["--model_name=sums", flag])
    assert ended.value.code == 2
    assert "invalid distinct_integers value" in capsys.readouterr().err


@pytest.mark.parametrize("end", [".csv", ".png"])
def test_unwritable_files(end, tmp_path, capsys):
    (tmp_path / f"l{end}").mkdir()
    flags = ["--model_name=sums", "--url=127.0.0.1:1", f"--output={tmp_path}/l"]
    assert evaluate_latency.main(flags) == 2
    wanted = f"--output: {tmp_path}/l{end} cannot be written (Is a directory): choose"
    assert wanted in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [f"l{end}"]


def test_models_never_ready(interface, tmp_path, monkeypatch, capsys):
    """Both models together may take `--wait_s`."""

    class SlowToSay(StandIn):
        def ModelReady(self, request, context):
            time.sleep(0.2 if request.name == "sums" else 0)
            return super().ModelReady(request, context)

    monkeypatch.setattr(evaluate_latency, "entry_interface", lambda *_: interface)
    monkeypatch.setattr(evaluate_latency, "drawn_request", lambda *_: ROWS)
    with serving(SlowToSay()) as url:
        flags = [f"--url={url}", "--model_name=sums,other", f"--model_repository={tmp_path}"]
        started = time.monotonic()
        output = f"--output={tmp_path}/l"
        assert evaluate_latency.main([*flags, "--client=own", "--wait_s=0.3", output]) == 2
    assert 0.3 < time.monotonic() - started < 60
    text = re.search(r"other at .* was not ready within (\S+) s", capsys.readouterr().err)
    assert 0 <= float(text[1]) <= 0.1  # the time that the other model left


PROGRAM = """#!/bin/sh
''''exec "{python}" "$0" "$@" #'''
import json, sys
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if "-m" not in flags:
    sys.exit(0)
if flags["-m"] == "bad":
    print("words\\nThread [0] had error: negative", file=sys.stderr)
    sys.exit(1)
with open(flags["--input-data"]) as file:
    data = json.load(file)
with open({folder!r} + "/seen.json", "w") as file:
    json.dump([flags, data], file)
if flags["-m"] == "silent":
    sys.exit(0)
requests = [{{"timestamp": n * 10**6, "response_timestamps": [n * 10**6 + 2 * 10**6]}}
            for n in range(int(flags["--request-count"]))]
with open(flags["--profile-export-file"], "w") as file:
    json.dump({{"experiments": [{{"requests": requests}}]}}, file)
"""


@pytest.fixture
def stand_in_program(tmp_path, monkeypatch):
    """Stand-in for perf_analyzer: requests of 2 ms, one per ms."""
    (tmp_path / "lib/python3.11/site-packages/nvidia_pytriton.libs").mkdir(parents=True)
    program = tmp_path / "perf_analyzer"
    program.write_text(PROGRAM.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(0o755)
    monkeypatch.setattr(perf_analyzer, "PROGRAM", program)
    monkeypatch.setattr(perf_analyzer, "ENVIRONMENT", tmp_path)
    return tmp_path / "seen.json"


def test_perf_analyzer(stand_in_program):
    assert perf_analyzer.works()
    result = perf_analyzer.measure("127.0.0.1:1", "sums", ROWS, 4, 2, 11, PerfAnalyzerOptions())
    assert result[:4] == pytest.approx((11, 0, 0.012, 2.0))
    assert result.percentiles_ms == pytest.approx((2, 2, 2, 2))
    flags, data = json.loads(stand_in_program.read_text())
    wanted = {"-m": "sums", "-u": "127.0.0.1:1", "-b": "4", "--concurrency-range": "2"}
    assert wanted.items() <= flags.items()
    assert len(data["data"]) == 100 and data["data"][1] == {"x": {"b64": "AwAAAAQAAAAFAAAA"}}
    # The number of rows that it prepares in seconds, different ones within a request.
    perf_analyzer.measure("127.0.0.1:1", "sums", ROWS, 50, 2**15, 11, PerfAnalyzerOptions())
    assert len(json.loads(stand_in_program.read_text())[1]["data"]) == 50
    assert perf_analyzer.is_quick(2048, 2) and not perf_analyzer.is_quick(2048, 3)


def test_perf_analyzer_with_keys_and_shared_memory(stand_in_program):
    ids = {
        "ids": np.arange(12, dtype=np.int64).reshape(6, 2),
        "n": np.zeros((6, 1), np.float32),
    }
    interface = Interface(
        recipe="dlrm",
        inputs=(ServedTensor("n", "float32", (1,)), ServedTensor("ids", "int64", (2,))),
        features=(),
        lookups=(
            ServedLookup("a", "ids", 0, 1, "sum"),
            ServedLookup("b", "ids", 1, 1, "sum"),
        ),
        tables=(
            ServedTable("a", 20, 4, "float32", ""),
            ServedTable("b", 20, 4, "float32", ""),
        ),
        dense_inputs=("n",),
        width=8,
    )
    options = PerfAnalyzerOptions(
        tensors=ServedTensors(keys=KeysOfRequests(interface, is_fused=True)),
        version="3",
        shared_memory="system",
        output_shared_memory_size=99,
    )
    perf_analyzer.measure("127.0.0.1:1", "sums", ids, 2, 1, 11, options)
    flags, data = json.loads(stand_in_program.read_text())
    wanted = {"-b": "1", "-x": "3", "--shared-memory": "system", "--shape": "n:2"}
    assert (wanted | {"--output-shared-memory-size": "99"}).items() <= flags.items()
    assert len(data["data"]) == 3
    keys = np.frombuffer(base64.b64decode(data["data"][1]["EMB_KEY"]["b64"]), np.int64)
    assert keys.tolist() == [4, 6, 25, 27]  # of table a, then of b, which follows 20 rows of a
    counts = np.frombuffer(base64.b64decode(data["data"][1]["EMB_N_KEY"]["b64"]), np.int32)
    assert counts.tolist() == [4]


def test_timeouts(stand_in_program):
    stand_in_program.parent.joinpath("perf_analyzer").write_text("#!/bin/sh\nexec sleep 60\n")
    options = PerfAnalyzerOptions(timeout_s=0.2)
    with pytest.raises(ValueError, match=r"--timeout_s 0\.2: perf_analyzer did not end before"):
        perf_analyzer.measure("127.0.0.1:1", "sums", ROWS, 4, 2, 11, options)
    with serving(StandIn()) as url, ClosedLoop(url, "sums", ROWS, 4, 1) as loop:
        started = time.monotonic()
        assert loop.run(60, 10**9, timeout_s=0.2).requests >= 1
        assert time.monotonic() - started < 30


@pytest.mark.parametrize(("model", "text"), [("bad", "had error: negative"), ("silent", "")])
def test_perf_analyzer_failure(stand_in_program, model, text):
    with pytest.raises(ValueError, match=f"perf_analyzer could not measure {model}: .*{text}"):
        perf_analyzer.measure("127.0.0.1:1", model, ROWS, 4, 2, 11, PerfAnalyzerOptions())


def test_choice_of_client(stand_in_program, interface, tmp_path, monkeypatch):
    """The default client is perf_analyzer, here a stand-in without a server, and the own client for
    large requests."""
    monkeypatch.setattr(evaluate_latency, "entry_interface", lambda *_: interface)
    monkeypatch.setattr(evaluate_latency, "drawn_request", lambda *_: ROWS)
    monkeypatch.setattr(perf_analyzer, "is_quick", lambda batch_size, concurrency: batch_size < 8)
    with serving(StandIn()) as url:
        flags = [
            *(f"--url={url}", "--model_name=sums", f"--model_repository={tmp_path}"),
            *("--batch_sizes=2,8", "--seconds=0.001", "--warmup_seconds=0", "--requests=5"),
        ]
        assert evaluate_latency.main([*flags, f"--output={tmp_path}/l"]) == 0
    result = read_csv(tmp_path / "l.csv")
    assert [(m.batch_size, m.client) for m in result] == [(2, "perf_analyzer"), (8, "own")]
    assert result[0].p50_ms == 2.0
