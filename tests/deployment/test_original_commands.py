"""Commands of the two deployment guides of NVIDIA's DLRM recipe, with other paths and line breaks.

The server is `RepositoryStandIn`, on a free port in place of the default one.
"""

import csv
import json
import os
import re
import shlex
import string
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from deployment.client import perf_analyzer
from deployment.client.closed_loop import ClosedLoop
from deployment.serve import __main__ as serve
from nn.metrics.classification import ExactMetrics
from tests.deployment.client.stand_in_server import serving
from tests.deployment.repository_stand_in import RepositoryStandIn

# doc/tensorflow_inference.md and doc/merlin_hps_inference.md. Both have a quotation mark too many
# after the last command, at which a shell would wait.
DEPLOY = {
    "tf-savedmodel": r"""
horovodrun -np 1 --mpi-args=--oversubscribe numactl --interleave=all \
  python -m deployment.deploy --checkpoint-dir $checkpoint_path \
  --model-repository-path $deploy_path --num_gpus 1 --fused_embedding \
  --model-name dlrm --model-precision fp16 --dense-format trt \
  --sparse-format tf-savedmodel --memory-threshold-gb 60
""",
    "hps": r"""
horovodrun -np 1 --mpi-args=--oversubscribe numactl --interleave=all \
  python -m deployment.deploy --hps_gpucacheper 0.1 \
  --checkpoint-dir $checkpoint_path --model-repository-path $deploy_path --num_gpus 1\
  --fused_embedding --model-name dlrm --model-precision fp16 --dense-format trt\
  --sparse-format hps
""",
}
SERVE = {
    "tf-savedmodel": r"""
tritonserver --model-repository=${deploy_path} \
  --pinned-memory-pool-byte-size=4000000000 --cuda-memory-pool-byte-size=0:2000000000
""",
    "hps": r"""
tritonserver --model-repository=${deploy_path} \
  --backend-config=hps,ps=${deploy_path}/sparse/sparse.json\
  --pinned-memory-pool-byte-size=4000000000 --cuda-memory-pool-byte-size=0:2000000000
""",
}
LATENCY = {
    "tf-savedmodel": r"""
python -u -m deployment.evaluate_latency --sparse-format tf-savedmodel --model-name dlrm \
    --dataset_path $dataset_path --fused-embedding \
    --measurement-request-count 50 --measurement-interval 5000 --num-benchmark-samples 262144
""",
    "hps": r"""
python -u -m deployment.evaluate_latency --sparse-format hps --model-name dlrm \
    --dataset_path $dataset_path --fused-embedding \
    --measurement-request-count 50 --measurement-interval 5000 \
    --batch-sizes 4096 --num-benchmark-samples 262144
""",
}
WARM_UP = r"""
python -u -m deployment.evaluate_accuracy --max_steps 1000 --dataset_path $dataset_path \
    --fused_embedding --model_name dlrm --test_on_train --batch_size 16384 --sparse_input_format hps
"""
ACCURACY = r"""
python -u -m deployment.evaluate_accuracy --dataset_path $dataset_path --fused_embedding \
    --model_name dlrm --batch_size 16384 --sparse_input_format {sparse_format}
"""


def words(command: str, variables: dict[str, str]) -> list[str]:
    """Words of a command as a shell splits it."""
    text = string.Template(command.replace("\\\n", "")).substitute(variables)
    return shlex.split(text)


def run(command: str, variables: dict[str, str], *more: str) -> int:
    """Runs a module in this process, without launchers before it."""
    arguments = words(command, variables)
    at = arguments.index("-m")
    if "server" in variables:
        more += ("--server-url", variables["server"])
    return import_module(f"{arguments[at + 1]}.__main__").main([*arguments[at + 2 :], *more])


@pytest.fixture(params=["tf-savedmodel", "hps"], scope="module")
def sparse_format(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def deployed(trained_dlrm, sparse_format, tmp_path_factory) -> dict[str, str]:
    """Variables of the guides, after the deployment."""
    variables = {
        "checkpoint_path": str(trained_dlrm.checkpoint),
        "deploy_path": str(tmp_path_factory.mktemp("original") / "models"),
        "dataset_path": str(trained_dlrm.data),
    }
    assert run(DEPLOY[sparse_format], variables) == 0
    return variables


@pytest.fixture
def variables(deployed, tmp_path, monkeypatch) -> dict[str, str]:
    """The working folder is an empty one."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return {**deployed}


@pytest.fixture
def server(variables, capsys):
    """The deployed repository, on a free port."""
    stand_in = RepositoryStandIn(Path(variables["deploy_path"]))
    with serving(stand_in) as url:
        variables["server"] = f"grpc://{url}"
        yield stand_in


def test_evaluation_of_the_accuracy(
    server, variables, sparse_format, trained_dlrm, tmp_path, capsys
):
    if sparse_format == "hps":
        assert run(WARM_UP, variables) == 0
        assert server.batches == [1000]
        assert "rows of train: 1,000 rows in 1 requests" in capsys.readouterr().out
    assert run(ACCURACY.format(sparse_format=sparse_format), variables) == 0
    message = capsys.readouterr().out
    (tmp_path / "predict").mkdir()
    labels = np.fromfile(trained_dlrm.data / "test/label.bin", np.bool_)
    metrics = ExactMetrics()
    metrics.update(labels, trained_dlrm.scores(tmp_path / "predict"))
    expected = metrics.result().auc
    assert float(re.search(r"^served +auc (\S+)", message, re.MULTILINE)[1]) == pytest.approx(
        expected, abs=1e-6
    )
    (line,) = re.findall(r"^DLL \S+ \S+ - \(\) (.*)$", message, re.MULTILINE)
    assert re.findall(r"(\w+) : \S+", line) == [
        "mean_inference_throughput",
        "mean_inference_latency",
        "auc",
        "test_loss",
    ]
    assert message.endswith("\nDONE\n")
    (line,) = (tmp_path / "work/dlrm_tf_log.json").read_text().splitlines()
    data = json.loads(line.removeprefix("DLLL "))["data"]
    assert data["auc"] == pytest.approx(expected, abs=1e-6)
    assert data["mean_inference_throughput"] == pytest.approx(
        16384 / data["mean_inference_latency"]
    )


def test_progress_and_approximate_auc(server, variables, sparse_format, capsys):
    command = ACCURACY.format(sparse_format=sparse_format).replace("16384", "50")
    more = ["--print_freq", "2", "--auc_thresholds", "1000", "--log_path", "other.json"]
    assert run(command, variables, *more) == 0
    message = capsys.readouterr().out
    assert len(re.findall(r"^requests [246]  latency \d+\.\d{3} ms$", message, re.MULTILINE)) == 3
    assert server.batches[-6:] == [50] * 6
    approximate = float(re.search(r"served +auc (\S+)", message)[1])
    assert run(command, variables) == 0
    exact = float(re.search(r"served +auc (\S+)", capsys.readouterr().out)[1])
    assert 0 < abs(approximate - exact) < 0.01
    assert os.path.exists("other.json")


def test_evaluation_of_the_latency(server, variables, sparse_format, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(perf_analyzer, "PROGRAM", tmp_path / "absent")
    seconds, run_loop = [], ClosedLoop.run

    def run_shortly(self, duration, min_requests=1, timeout_s=None):
        seconds.append((duration, min_requests))
        return run_loop(self, 0.01, min(min_requests, 2), timeout_s)

    monkeypatch.setattr(ClosedLoop, "run", run_shortly)
    assert run(LATENCY[sparse_format], variables, "--result-path", "results.csv") == 0
    assert seconds[1] == (5.0, 50)
    with open("results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    sizes = [4096] if sparse_format == "hps" else [2**n for n in range(8, 16)]
    assert [int(row["Batch"]) for row in rows] == sizes
    assert set(server.batches) == set(sizes)
    for row in rows:
        times = {name: int(value) for name, value in row.items() if "/Second" not in name}
        assert 0 < times["p50 latency"] <= times["p99 latency"]
        assert 0 < times["Server Compute Infer"] <= times["avg latency"]
    assert sorted(os.listdir("runs")) == ["latency.csv"]
    notes = capsys.readouterr().err
    assert "note: --sparse_format has no effect: the server describes" in notes


def test_files_of_the_server(variables, sparse_format, tmp_path, capsys):
    """Our server lacks the backends of the guides, and reports it."""
    _, *flags = words(SERVE[sparse_format], variables)
    for flag in flags:
        if path := re.search(r"(/.*\.json)", flag):
            assert json.loads(Path(path[1]).read_text())["models"][0]["model"] == "sparse"
    program = tmp_path / "triton/tritonserver"
    (program.parent / "backends/python").mkdir(parents=True)
    program.touch()
    assert serve.main([*flags, f"--tritonserver={program}"]) == 2
    message = capsys.readouterr().err
    assert "note: --pinned_memory_pool_byte_size has no effect: " in message
    assert "dense is for Triton's backend onnxruntime" in message
    assert "or deploy the checkpoint with --backend local, which runs here" in message
