"""Ensembles for GPU servers in a real server, with stand-ins for what needs a GPU.

Configurations, the models in Python in front, the ONNX files and what passes between all of them
are those that were deployed; SavedModels, TensorRT and HPS are played by `stand_in_model.py`.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from deployment.client.client import Client, RequestRefused
from deployment.deploy import __main__ as deploy
from deployment.serve.server import running
from deployment.serving.scorer import RequestScorer
from deployment.triton.config import CPU
from tests.deployment.triton.written_config import read_config

pytestmark = pytest.mark.long

HERE = Path(__file__).parent

# Name of the model -> (recipe, flags of the deployment).
DEPLOYED = {
    "tensorflow": ("dlrm", ["--backend=tensorflow", "--max_queue_delay_us=100"]),
    "whole": ("dlrm", ["--backend=tensorflow", "--monolithic", "--unknown_ids=zero"]),
    "hps": ("dlrm", ["--backend=hps", "--max_batch_size=512"]),
    "second_hps": ("dlrm", ["--backend=hps", "--max_batch_size=512"]),  # one ps.json for both
    "history": ("sim", ["--backend=tensorflow"]),
    "whole_history": ("sim", ["--backend=tensorflow", "--monolithic"]),
}


def replace_what_needs_a_gpu(repository: Path, local: Path) -> None:
    """Replaces models of other backends than Python's by stand-ins.

    Args:
      repository: as deployed.
      local: the same recipes for the local backend, as ensembles.
    """
    for file in sorted(repository.glob("*/config.pbtxt")):
        model, config = file.parent, read_config(file)
        if config.platform == "ensemble" or config.backend == "python":
            continue
        if config.platform == "tensorflow_savedmodel":
            name, _, part = model.name.rpartition("_")
            recipe = DEPLOYED[name][0]
            shutil.rmtree(model / "1")
            shutil.copytree(local / f"{recipe}_sparse/1", model / "1")
            if part == "model":
                shutil.copytree(local / f"{recipe}_dense/1", model / "1/dense")
        if config.backend == "hps":
            shutil.copy(HERE.parent / "deployment/triton/hps_stand_in.py", model / "1")
        shutil.copy(HERE / "stand_in_model.py", model / "1/model.py")
        config.ClearField("platform")
        config.ClearField("default_model_filename")
        config.ClearField("optimization")
        config.backend = "python"
        (group,) = config.instance_group
        group.kind = group.Kind.Value(CPU)
        del group.gpus[:]
        (model / "config.pbtxt").write_text(text_format.MessageToString(config))


@pytest.fixture(scope="module")
def local(trained, tmp_path_factory) -> Path:
    """The local deployments."""
    folder = tmp_path_factory.mktemp("local")
    for recipe in ("dlrm", "sim"):
        command_line = [f"--checkpoint_dir={trained[recipe].checkpoint}"]
        assert deploy.main([*command_line, f"--model_repository={folder}"]) == 0
    return folder


@pytest.fixture(scope="module")
def stand_ins(trained, local, tmp_path_factory):
    """(the server, its repository)."""
    folder = tmp_path_factory.mktemp("stand_ins")
    for name, (recipe, flags) in DEPLOYED.items():
        command_line = [f"--checkpoint_dir={trained[recipe].checkpoint}", f"--model_name={name}"]
        assert deploy.main([*command_line, f"--model_repository={folder}", *flags]) == 0
    replace_what_needs_a_gpu(folder, local)
    with running(folder, tmp_path_factory.mktemp("log") / "log") as server:
        yield server, folder


@pytest.mark.parametrize("name", DEPLOYED)
def test_scores_of_stand_ins(stand_ins, served, local, name):
    server, _ = stand_ins
    recipe = DEPLOYED[name][0]
    entry, scorer = (
        served[recipe],
        RequestScorer(local / f"{recipe}_sparse/1", 1, local / f"{recipe}_dense/1"),
    )
    rows = min(300, len(entry.expected))
    with Client(server.url, name) as client:
        for start, stop in ((0, 1), (7, 8), (0, rows)):
            arrays = entry.rows(start, stop)
            result = client.ask(client.prepare(arrays, "rows"))
            np.testing.assert_allclose(result, scorer.score(arrays), rtol=0, atol=1e-6)
            np.testing.assert_allclose(result, entry.expected[start:stop], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["tensorflow", "whole", "hps"])
def test_errors_of_bad_requests(stand_ins, served, name):
    """The checks let none of the bad requests pass among requests that wait together."""
    server, _ = stand_ins
    entry = served["dlrm"]
    with Client(server.url, name, timeout_s=30) as client:
        messages = []
        for number in range(40):
            arrays = {
                tensor: array.copy() for tensor, array in entry.rows(number, number + 3).items()
            }
            if number % 3 == 1:
                arrays["categorical_features"][1, 5] = -1
            messages.append(client.prepare(arrays, str(number)))
        answers = [client.send(message) for message in messages]
        for number, (message, answer) in enumerate(zip(messages, answers, strict=True)):
            if number % 3 == 1:
                with pytest.raises(RequestRefused, match="'cat_3', row .*: -1"):
                    client.receive(message, answer)
                continue
            right = entry.expected[number : number + 3]
            np.testing.assert_allclose(client.receive(message, answer), right, rtol=0, atol=1e-6)


def test_unknown_ids_as_zero(stand_ins, served):
    server, _ = stand_ins
    unknown, zero = (served["dlrm"].rows(0, 8) for _ in range(2))
    unknown, zero = ({k: v.copy() for k, v in entry.items()} for entry in (unknown, zero))
    unknown["categorical_features"][:, 5], zero["categorical_features"][:, 5] = 40_000, 0
    with Client(server.url, "whole") as client:
        result = [client.ask(client.prepare(arrays, "a")) for arrays in (unknown, zero)]
    np.testing.assert_array_equal(*result)
    with Client(server.url, "tensorflow") as client, pytest.raises(RequestRefused, match="40000"):
        client.ask(client.prepare(unknown, "a"))


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        ("tensorflow_sparse", ["1", "2048"]),
        ("hps_dense", ["1", "512"]),
        ("whole_history_model", ["1", "2048"]),
    ],
)
def test_warm_up(stand_ins, model, rows):
    """Models get one row and a full batch before the first request."""
    _, repository = stand_ins
    assert (repository / model / "1/asked").read_text().split()[:2] == rows
