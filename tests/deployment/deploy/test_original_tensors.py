"""Deployments with the tensors of NVIDIA's tools, from their command lines."""

import json
import os

import numpy as np
import pytest

from deployment.deploy import __main__ as tool
from deployment.serving import interface as interfaces
from deployment.serving.scorer import RequestScorer, sigmoid
from deployment.triton.repository import models_of
from tests.deployment.client.stand_in_server import StandIn, serving
from tests.deployment.deploy.test_deploy import score_by_saved_model
from tests.deployment.triton.hps_stand_in import HpsStandIn
from tests.deployment.triton.written_config import read_config

FP32, INT32, INT64 = 11, 8, 9  # Triton's numbers of types


@pytest.fixture(scope="module")
def rows(trained_dlrm, tmp_path_factory) -> tuple[dict, np.ndarray]:
    """The test rows with the original's tensors, and scores of `--mode predict`."""
    arrays, _ = trained_dlrm.requests()
    arrays["categorical_features"] = arrays["categorical_features"].astype(np.int32)
    return arrays, trained_dlrm.scores(tmp_path_factory.mktemp("predicted"))


def deploy(model, repository, *flags):
    """Runs NVIDIA's command with its required flags and others."""
    command = ["--checkpoint-dir", str(model.checkpoint), "--model-name", "dlrm"]
    command += ["--model-repository-path", str(repository), "--model-precision", "fp32", *flags]
    assert tool.main(command) == 0


def tensors(stated) -> list[tuple]:
    return [(t.name, t.data_type, list(t.dims)) for t in stated]


def steps(config) -> list[str]:
    return [step.model_name for step in config.ensemble_scheduling.step]


def assert_scores(logits, expected):
    np.testing.assert_allclose(sigmoid(logits)[:, 0], expected, rtol=0, atol=1e-6)


def test_local_backend(trained_dlrm, rows, tmp_path):
    names = ["--sparse-model-name=a", "--dense-model-name=b", "--model-version=12"]
    assert trained_dlrm.deploy(tmp_path, "--tensors=nvidia", *names) == 0
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "dlrm"] and (tmp_path / "dlrm/12").is_dir()
    config = read_config(tmp_path / "dlrm/config.pbtxt")
    assert steps(config) == ["a", "b"]
    assert tensors(config.input) == [
        ("numerical_features", FP32, [3]),
        ("categorical_features", INT32, [6]),
    ]
    assert tensors(config.output) == [("DENSE_OUTPUT", FP32, [1])]
    sparse, dense = (tmp_path / name / "1" for name in "ab")
    assert interfaces.read(dense).output == "DENSE_OUTPUT"
    scorer = RequestScorer(sparse, 1, dense)
    arrays, expected = rows
    np.testing.assert_allclose(scorer.score(arrays)[:, 0], expected, rtol=0, atol=1e-6)


def test_tensorflow_ensemble(trained_dlrm, rows, tmp_path):
    """test_original_commands.py has the scores with an ONNX model."""
    flags = ["--sparse-format", "tf-savedmodel", "--dense-format", "tf-savedmodel"]
    deploy(trained_dlrm, tmp_path, *flags, "--memory-threshold-gb", "60", "--fused_embedding")
    assert sorted(os.listdir(tmp_path)) == ["dense", "dlrm", "sparse"]
    config = read_config(tmp_path / "dlrm/config.pbtxt")
    assert (config.platform, config.max_batch_size) == ("ensemble", 32768)
    assert sorted(tensors(config.input)) == [
        ("categorical_features", INT32, [6]),
        ("numerical_features", FP32, [3]),
    ]
    assert tensors(config.output) == [("DENSE_OUTPUT", FP32, [1])]
    assert steps(config) == ["sparse", "dense"]
    arrays, expected = rows
    ids = {"categorical_features": arrays["categorical_features"]}
    inputs = score_by_saved_model(tmp_path / "sparse/1/model.savedmodel", ids)
    inputs["numerical_features"] = arrays["numerical_features"]
    dense = read_config(tmp_path / "dense/config.pbtxt")
    assert dense.platform == "tensorflow_savedmodel"
    answer = score_by_saved_model(tmp_path / "dense/1/model.savedmodel", inputs)
    assert list(answer) == ["DENSE_OUTPUT"]
    assert_scores(answer["DENSE_OUTPUT"], expected)


def test_half_precision_saved_model(trained_dlrm, tmp_path, capsys):
    flags = ["--sparse-format", "tf-savedmodel", "--model-precision", "fp16"]
    deploy(trained_dlrm, tmp_path, *flags, "--cpu", "--model-version", "3")
    assert "300 rows: 0." in capsys.readouterr().out
    assert (tmp_path / "dlrm/3").is_dir()
    assert os.readlink(tmp_path / "sparse") == "dlrm/3/sparse"
    for part in ("sparse", "dense"):
        (group,) = read_config(tmp_path / part / "config.pbtxt").instance_group
        assert group.kind == group.KIND_CPU
    deploy(trained_dlrm, tmp_path, *flags, "--overwrite")
    assert os.readlink(tmp_path / "sparse") == "dlrm/1/sparse"
    assert (tmp_path / "sparse/config.pbtxt").exists()


def test_loading_by_a_server(trained_dlrm, tmp_path, capsys):
    flags = ["--load-model", "--load-model-timeout-s", "20", "--overwrite", "--server-url"]
    stand_in = StandIn()
    with serving(stand_in) as url:
        assert trained_dlrm.deploy(tmp_path, *flags, f"grpc://{url}") == 0
    models = models_of(tmp_path / "dlrm")
    assert stand_in.loaded == models and len(models) == 3
    assert f"{url} has loaded {', '.join(models)}" in capsys.readouterr().out
    with serving(StandIn(loads=False)) as url:
        assert trained_dlrm.deploy(tmp_path, *flags, f"grpc://{url}") == 2
    message = capsys.readouterr().err
    assert "explicit model load is not allowed" in message
    assert "needs --model-control-mode=explicit" in message


def sent_keys(arrays, is_fused):
    """EMB_KEY and EMB_N_KEY as NVIDIA's client computes them, for four features, one of three
    ids."""
    ids, counts = arrays["categorical_features"], (1, 1, 3, 1)
    offsets = np.cumsum([0, 10, 300, 7]) if is_fused else np.zeros(4, int)
    columns = np.split(ids, np.cumsum(counts)[:-1], axis=1)
    keys = [c.ravel() + offset for c, offset in zip(columns, offsets, strict=True)]
    numbers = [len(key) for key in keys]
    numbers = [sum(numbers)] if is_fused else numbers
    return np.concatenate(keys).astype(np.int64)[None], np.array([numbers], np.int32)


@pytest.mark.parametrize("is_fused", [False, True])
def test_hps_ensemble(trained_dlrm, rows, tmp_path, is_fused):
    """With an ONNX model and fused tables, test_original_commands.py has the scores."""
    flags = ["--hps_gpucacheper", "0.1", "--num_gpus", "1", "--sparse-format", "hps"]
    flags += ["--dense-format", "tf-savedmodel", *["--fused_embedding"] * is_fused]
    deploy(trained_dlrm, tmp_path, *flags)
    config = read_config(tmp_path / "dlrm/config.pbtxt")
    assert tensors(config.input) == [
        ("EMB_KEY", INT64, [-1]),
        ("EMB_N_KEY", INT32, [-1]),
        ("numerical_features", FP32, [-1]),
    ]
    assert tensors(config.output) == [("DENSE_OUTPUT", FP32, [-1])]
    assert (config.max_batch_size, steps(config)) == (32768, ["sparse", "dense"])
    sparse = read_config(tmp_path / "sparse/config.pbtxt")
    assert (sparse.backend, sparse.max_batch_size) == ("hps", 32768)
    assert tensors(sparse.input) == [("KEYS", INT64, [-1]), ("NUMKEYS", INT32, [-1])]
    written = json.loads((tmp_path / "sparse/sparse.json").read_text())
    assert written["supportlonglong"] is True
    (entry,) = written["models"]
    assert entry["sparse_files"][0] == f"{tmp_path}/sparse/1/table_0"
    assert (entry["gpucacheper"], len(entry["sparse_files"])) == (0.1, 1 if is_fused else 4)
    arrays, expected = rows
    server = HpsStandIn(tmp_path / "sparse/sparse.json", "sparse")
    vectors = server.lookup(*sent_keys(arrays, is_fused))
    inputs = {"OUTPUT0": vectors, "numerical_features": arrays["numerical_features"].ravel()}
    dense = read_config(tmp_path / "dense/config.pbtxt")
    assert dense.max_batch_size == 0
    assert tensors(dense.input) == [("OUTPUT0", FP32, [-1]), ("numerical_features", FP32, [-1])]
    assert tensors(dense.output) == [("DENSE_OUTPUT", FP32, [-1, 1])]
    answer = score_by_saved_model(tmp_path / "dense/1/model.savedmodel", inputs)
    assert_scores(answer["DENSE_OUTPUT"], expected)


def test_other_recipes(trained_ncf, tmp_path, capsys):
    assert trained_ncf.deploy(tmp_path / "r", "--tensors=nvidia", "--monolithic") == 2
    assert "--tensors nvidia: NVIDIA's deployments are of dlrm and" in capsys.readouterr().err
