"""Deployments of trained models: their scores equal those of `--mode predict`."""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import roc_auc_score

from deployment.artifacts import quantization_check
from deployment.deploy import __main__ as tool
from deployment.deploy import deployer
from deployment.deploy.deploy_options import LocalOptions
from deployment.serving import interface as interfaces
from deployment.serving.checks import BadRequest
from deployment.serving.dense import open_session
from deployment.serving.hps_keys import keys_of
from deployment.serving.interface import Interface
from deployment.serving.scorer import RequestScorer
from tests.deployment.trained import TrainedFixture
from tests.deployment.triton.hps_stand_in import HpsStandIn
from tests.deployment.triton.written_config import read_config


def deploy(capsys, model: TrainedFixture, repository: Path, *flags: str) -> str:
    """Deploys in this process; returns what was printed."""
    assert model.deploy(repository, *flags) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys, *flags: str) -> str:
    """Deploys with invalid flags, which ends with status 2; returns the error message."""
    capsys.readouterr()
    assert tool.main(list(flags)) == 2
    message = capsys.readouterr()
    assert message.out == ""
    return message.err


@pytest.fixture(scope="module")
def expected(trained_dlrm, tmp_path_factory) -> np.ndarray:
    """Scores that `--mode predict` gives to the test rows of DLRM."""
    return trained_dlrm.scores(tmp_path_factory.mktemp("predicted"))


def score_by_saved_model(folder: Path, arrays: dict) -> dict[str, np.ndarray]:
    """Outputs of a SavedModel, which takes all of these tensors and no other."""
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    answer = signature(**{name: tf.constant(value) for name, value in arrays.items()})
    return {name: value.numpy() for name, value in answer.items()}


def part(repository: Path, name: str) -> Path:
    """The folder of a part, whose name ends in a hash of its content."""
    (folder,) = repository.glob(f"{name}_[0-9a-f]*")
    return folder


def stems(folder: Path) -> list[str]:
    """Names of models without the hash of their content."""
    return sorted(re.sub("_[0-9a-f]{8}$", "", path.name) for path in folder.iterdir())


def names(tensors) -> list[str]:
    """Names of the tensors of a configuration."""
    return [tensor.name for tensor in tensors]


def on_gpus(config) -> tuple[int, list[int]]:
    """Number of instances of a model, and their GPUs."""
    (group,) = config.instance_group
    return group.count, list(group.gpus)


def accelerators(config) -> list[str]:
    """Names of the GPU accelerators that a model requests from its backend."""
    execution = config.optimization.execution_accelerators
    return [accelerator.name for accelerator in execution.gpu_execution_accelerator]


def test_local_ensemble(trained_dlrm, expected, tmp_path, capsys):
    """An ensemble of lookups and dense part, with all files that a server needs."""
    message = deploy(capsys, trained_dlrm, tmp_path, "--threads_per_instance=1", "--instances=2")
    assert stems(tmp_path) == ["dlrm", "dlrm_dense", "dlrm_sparse"]
    assert re.search(r"the dense part in ONNX: scores within \d\.\de-\d\d of TensorFlow's", message)
    sparse, dense = part(tmp_path, "dlrm_sparse") / "1", part(tmp_path, "dlrm_dense") / "1"
    scorer = RequestScorer(sparse, 1, dense)
    arrays, _ = trained_dlrm.requests()
    np.testing.assert_allclose(scorer.score(arrays)[:, 0], expected, rtol=0, atol=1e-6)
    for version in (sparse, dense):
        assert (version / "model.py").read_text().startswith('"""A model of Triton\'s Python back')
        assert (version / "deployment/serving/scorer.py").is_file()
    config = read_config(part(tmp_path, "dlrm_sparse") / "config.pbtxt")
    assert (config.backend, config.max_batch_size) == ("python", 2048)
    assert names(config.input) == ["categorical_features"]
    assert names(config.output) == ["embeddings"]
    assert config.instance_group[0].count == 2
    assert config.parameters["threads"].string_value == "1"
    assert "EXECUTION_ENV_PATH" not in config.parameters
    assert config.HasField("dynamic_batching")
    config = read_config(part(tmp_path, "dlrm_dense") / "config.pbtxt")
    assert names(config.input) == ["embeddings", "numerical_features"]
    config = read_config(tmp_path / "dlrm/config.pbtxt")
    assert names(config.input) == ["numerical_features", "categorical_features"]
    assert names(config.output) == ["scores"]
    parts = [part(tmp_path, name).name for name in ("dlrm_sparse", "dlrm_dense")]
    assert [step.model_name for step in config.ensemble_scheduling.step] == parts
    marker = json.loads((tmp_path / "dlrm/deployed.json").read_text())
    assert marker["models"] == [*parts, "dlrm"]
    assert (marker["recipe"], marker["step"], marker["backend"]) == ("dlrm", 4, "local")


def test_monolithic_local_model_with_quantized_tables(
    trained_dlrm, expected, tmp_path, capsys, monkeypatch, rows=100
):
    """The reported AUCs are those of the exact scores and of the served scores."""
    monkeypatch.setattr(quantization_check, "_BATCH_ROWS", 64)
    flags = ["--monolithic", "--quantize_tables=int8", "--model_name=small"]
    flags += ["--no-dynamic_batching", "--max_batch_size=512", "--execution_env=/env"]
    flags.append(f"--check_rows={rows}")
    message = deploy(capsys, trained_dlrm, tmp_path, *flags)
    assert os.listdir(tmp_path) == ["small"]
    result = re.search(
        rf"AUC over {rows} rows: (0\.\d+) as trained, (0\.\d+) as served, difference (.0\.\d+)",
        message,
    )
    trained, quantized, change = map(float, result.groups())
    arrays, labels = trained_dlrm.requests()
    served = RequestScorer(tmp_path / "small/1", 1).score(arrays)[:, 0]
    assert abs(trained - roc_auc_score(labels[:rows], expected[:rows])) < 1e-6
    # A few pairs: onnxruntime and TensorFlow order nearly equal scores differently.
    assert abs(quantized - roc_auc_score(labels[:rows], served[:rows])) < 1e-3
    assert abs(change - (quantized - trained)) < 2e-6
    off = np.abs(served - expected).max()
    assert 0 < off < 0.01, "rounded, and not by much"
    config = read_config(tmp_path / "small/config.pbtxt")
    assert not config.HasField("dynamic_batching")
    assert config.max_batch_size == 512
    assert config.parameters["EXECUTION_ENV_PATH"].string_value == "/env"
    assert config.parameters["threads"].string_value == "0"


def test_tensorflow_ensemble(trained_dlrm, expected, tmp_path, capsys):
    """The ensemble runs checks, a SavedModel and an ONNX model in turn."""
    # Bytes of the tables: 320, 9600, 224, 1280000.
    flags = ("--backend=tensorflow", "--device_memory_gb=0.00001", "--precision=fp16")
    message = deploy(capsys, trained_dlrm, tmp_path, *flags)
    assert "2 tables on the device (0.000 GB), 2 on the host (0.001 GB)" in message
    arrays, _ = trained_dlrm.requests()
    ids = {"categorical_features": arrays["categorical_features"]}
    (embeddings,) = score_by_saved_model(
        part(tmp_path, "dlrm_sparse") / "1/model.savedmodel", ids
    ).values()
    session = open_session(part(tmp_path, "dlrm_dense") / "1/model.onnx")
    inputs = {"embeddings": embeddings, "numerical_features": arrays["numerical_features"]}
    (result,) = session.run(["scores"], inputs)
    np.testing.assert_allclose(result[:, 0], expected, rtol=0, atol=1e-6)
    config = read_config(part(tmp_path, "dlrm_sparse") / "config.pbtxt")
    assert (config.platform, config.default_model_filename) == (
        "tensorflow_savedmodel",
        "model.savedmodel",
    )
    assert config.instance_group[0].kind == config.instance_group[0].KIND_GPU
    assert on_gpus(config) == (1, [0])
    assert config.parameters["MAX_SESSION_SHARE_COUNT"].string_value == "1"
    assert accelerators(config) == ["gpu_io"], "the embeddings stay on the GPU"
    config = read_config(part(tmp_path, "dlrm_dense") / "config.pbtxt")
    assert on_gpus(config) == (1, [0])
    assert sorted(names(config.input)) == sorted(node.name for node in session.get_inputs())
    interface = interfaces.read(part(tmp_path, "dlrm_checks") / "1")
    assert (interface.role, interface.unknown_ids) == ("checks", "error")
    steps = read_config(tmp_path / "dlrm/config.pbtxt").ensemble_scheduling.step
    assert [(step.model_name, dict(step.input_map), dict(step.output_map)) for step in steps] == [
        (
            part(tmp_path, "dlrm_checks").name,
            {name: name for name in ("numerical_features", "categorical_features")},
            {name: f"checks_{name}" for name in ("numerical_features", "categorical_features")},
        ),
        (
            part(tmp_path, "dlrm_sparse").name,
            {"categorical_features": "checks_categorical_features"},
            {"embeddings": "embeddings"},
        ),
        (
            part(tmp_path, "dlrm_dense").name,
            {"embeddings": "embeddings", "numerical_features": "checks_numerical_features"},
            {"scores": "scores"},
        ),
    ]


def test_monolithic_tensorflow_model(trained_sim, tmp_path, capsys):
    """Checks before a SavedModel whose tensors all have one rank."""
    model = trained_sim
    flags = ("--backend=tensorflow", "--monolithic", "--model_name=m", "--max_queue_delay_us=9")
    message = deploy(capsys, model, tmp_path, *flags, "--instances=3", "--gpus=1,2")
    assert "AUC" not in message
    assert re.search("ensemble of m_checks_[0-9a-f]{8}, m_model_", message)
    assert stems(tmp_path) == ["m", "m_checks", "m_model"]
    arrays, _ = model.requests()
    flat = {name: array.reshape(len(array), -1) for name, array in arrays.items()}
    result = score_by_saved_model(part(tmp_path, "m_model") / "1/model.savedmodel", flat)["scores"]
    wanted = model.scores(tmp_path / "predicted")
    np.testing.assert_allclose(result[:, 0], wanted, rtol=0, atol=1e-6)
    checks, whole = (
        read_config(part(tmp_path, name) / "config.pbtxt") for name in ("m_checks", "m_model")
    )
    for config in (checks, whole):
        assert config.dynamic_batching.max_queue_delay_microseconds == 9
    assert {t.name: [-1, *t.dims] for t in whole.input} == {
        name: [-1, array.shape[1]] for name, array in flat.items()
    }
    assert on_gpus(whole) == (3, [1, 2]), "and none on other GPUs"
    assert whole.parameters["MAX_SESSION_SHARE_COUNT"].string_value == "3"
    assert accelerators(whole) == []
    assert on_gpus(checks) == (3, [])
    for tensor in checks.output:
        array = arrays[tensor.name]
        assert list(tensor.reshape.shape) == [*array.shape[1:]] * (array.ndim > 2)


def test_half_precision_of_monolithic_tensorflow(trained_dlrm, expected, tmp_path, capsys):
    """The reported AUC is that of tables and dense part as they are served."""
    flags = ("--backend=tensorflow", "--monolithic", "--precision=bf16")
    flags += ("--quantize_tables=int8", "--unknown_ids=zero")
    message = deploy(capsys, trained_dlrm, tmp_path, *flags)
    assert interfaces.read(part(tmp_path, "dlrm_checks") / "1").unknown_ids == "zero"
    arrays, labels = trained_dlrm.requests()
    result = score_by_saved_model(part(tmp_path, "dlrm_model") / "1/model.savedmodel", arrays)[
        "scores"
    ][:, 0]
    off = np.abs(result - expected).max()
    assert 1e-6 < off < 0.02, "bfloat16, and not far off"
    reported = re.search(r"300 rows: (0\.\d+) as trained, (0\.\d+) as served, difference", message)
    assert abs(float(reported[1]) - roc_auc_score(labels, expected)) < 1e-6
    assert abs(float(reported[2]) - roc_auc_score(labels, result)) < 1e-6
    assert reported[1] != reported[2]


def test_auc_without_precision_of_plan(trained_dlrm, tmp_path, capsys):
    """The reported AUC leaves out the precision of TensorRT, which runs on the server alone."""
    flags = ("--backend=tensorflow", "--precision=fp16", "--quantize_tables=int8")
    message = deploy(capsys, trained_dlrm, tmp_path, *flags, "--check_rows=100")
    assert re.search(
        r"100 rows: 0\.\d+ as trained, 0\.\d+ with the tables as served and the dense part in "
        r"fp32, difference",
        message,
    )
    config = read_config(part(tmp_path, "dlrm_sparse") / "config.pbtxt")
    assert config.instance_group[0].kind == config.instance_group[0].KIND_CPU
    assert accelerators(config) == []


def test_quantized_tables_without_test_rows(trained_dlrm, tmp_path, capsys):
    """A checkpoint that was copied with its feature spec alone."""
    (tmp_path / "spec").mkdir()
    shutil.copy(trained_dlrm.data / "feature_spec.yaml", tmp_path / "spec")
    flags = (f"--dataset_path={tmp_path / 'spec'}", "--monolithic", "--quantize_tables=int8")
    where = (f"--checkpoint_dir={trained_dlrm.checkpoint}", f"--model_repository={tmp_path / 'r'}")
    message = refused(capsys, *where, *flags)
    assert re.match(
        r"error: .*test/.* is not there.* or deploy without comparing .*_rows 0", message
    )
    message = deploy(capsys, trained_dlrm, tmp_path / "r", *flags, "--check_rows=0")
    assert "AUC as served: not compared with that as trained (--check_rows 0)" in message


@pytest.mark.parametrize(
    ("model", "unknown_ids"),
    [("trained_dlrm", "zero"), pytest.param("trained_sim", "error", marks=pytest.mark.long)],
)
def test_hps_ensemble(model, unknown_ids, request, tmp_path, capsys):
    """Runs keys, the documented lookup and ONNX, from paths as the server sees them."""
    model = request.getfixturevalue(model)
    served = tmp_path / "as served"
    flags = ("--backend=hps", f"--served_path={served}", "--model_name=m", "--gpus=0,1")
    flags += (f"--unknown_ids={unknown_ids}", "--gpu_cache_share=0.3", "--instances=2")
    message = deploy(capsys, model, tmp_path / "repository", *flags)
    assert f"--backend-config=hps,ps={served}/ps.json, which has all HPS models here" in message
    (tmp_path / "repository").rename(served)
    server = HpsStandIn(served / "ps.json", part(served, "m_sparse").name)
    assert server.config["gpucacheper"] == 0.3
    arrays, _ = model.requests()
    interface = interfaces.read(part(served, "m_keys") / "1")
    assert interface.unknown_ids == unknown_ids
    vectors = server.lookup(*keys_of(interface, arrays))
    session = open_session(part(served, "m_dense") / "1/model.onnx")
    inputs = {name: arrays[name] for name in interface.dense_inputs} | {"OUTPUT0": vectors}
    (result,) = session.run(["scores"], inputs)
    wanted = model.scores(tmp_path / "predicted")
    np.testing.assert_allclose(result[:, 0], wanted, rtol=0, atol=1e-6)
    # Triton does not batch here: the first dimension is free.
    config = read_config(part(served, "m_sparse") / "config.pbtxt")
    assert (config.backend, config.max_batch_size) == ("hps", 0)
    parameters = {key: int(value.string_value) for key, value in config.parameters.items()}
    assert parameters["slots"] == len(interface.lookups)
    assert parameters["cat_feature_num"] == sum(lookup.count for lookup in interface.lookups)
    assert parameters["embedding_vector_size"] == max(table.dim for table in interface.tables)
    assert [list(t.dims) for t in config.input] == [[-1, -1], [-1, len(interface.tables)]]
    assert [list(t.dims) for t in config.output] == [[-1]]
    assert config.instance_group[0].count <= server.config["num_of_worker_buffer_in_pool"]
    assert list(config.instance_group[0].gpus) == server.config["deployed_device_list"] == [0, 1]
    sizes = {m.parent.name: read_config(m).max_batch_size for m in served.glob("*/*.pbtxt")}
    assert len(sizes) == 4 and {*sizes.values()} == {0}
    steps = read_config(served / "m/config.pbtxt").ensemble_scheduling.step
    assert dict(steps[1].input_map) == {"KEYS": "KEYS", "NUMKEYS": "NUMKEYS"}
    assert steps[2].input_map["OUTPUT0"] == "OUTPUT0"
    beside = {name: f"keys_{name}" for name in interface.dense_inputs}
    assert {k: v for k, v in steps[2].input_map.items() if k != "OUTPUT0"} == beside
    assert (part(served, "m_keys") / "1/deployment/serving/hps_keys.py").is_file()


def test_overwriting_and_invalid_requests(trained_dlrm, tmp_path, capsys):
    """An ensemble in half precision replaced by one model, which takes unknown ids and refuses
    others."""
    message = deploy(capsys, trained_dlrm, tmp_path, "--precision=bf16")
    assert "the dense part by OpenVINO in bf16" in message
    trained, served = map(
        float, re.search(r"300 rows: (0\.\d+) as trained, (0\.\d+) as served", message).groups()
    )
    (arrays, labels), messages = trained_dlrm.requests(), []
    folders = (part(tmp_path, "dlrm_sparse") / "1", part(tmp_path, "dlrm_dense") / "1")
    scorer = RequestScorer(folders[0], 1, log=messages.append, dense_folder=folders[1])
    scores = scorer.score(arrays)[:, 0]
    assert abs(served - roc_auc_score(labels, scores)) < 1e-4, "the AUC is of the served model"
    assert trained != served or "this CPU has no instructions for it" in messages[0]
    assert interfaces.read(part(tmp_path, "dlrm_dense") / "1").precision == "bf16"
    where = (f"--checkpoint_dir={trained_dlrm.checkpoint}", f"--model_repository={tmp_path}")
    assert f"{tmp_path}/dlrm exists and is not an empty folder; replace it with --ov" in refused(
        capsys, *where
    )
    flags = ("--overwrite", "--monolithic", "--unknown_ids=zero", "--max_batch_size=4")
    deploy(capsys, trained_dlrm, tmp_path, *flags)
    assert os.listdir(tmp_path) == ["dlrm"]
    scorer = RequestScorer(tmp_path / "dlrm/1", 1)
    arrays = {
        "numerical_features": np.zeros((2, 3), np.float32),
        "categorical_features": np.array([[0] * 6, [10, 300, 7, 8, 9, 10**6]], np.int64),
    }
    known, unknown = scorer.score(arrays)
    assert known == unknown
    arrays["categorical_features"][1, 1] = -1
    with pytest.raises(BadRequest, match="row 1"):
        scorer.score(arrays)
    with pytest.raises(BadRequest, match="5 rows; expected 1 to 4"):
        scorer.score(
            {name: np.zeros((5, *array.shape[1:]), array.dtype) for name, array in arrays.items()}
        )


def test_options_of_models():
    """A model of numerical features alone consists of its dense part; 0 is padding in histories."""
    interface = Interface("dlrm", (), (), (), (), ())
    with pytest.raises(ValueError, match="the model has no tables, .*: use --monolithic"):
        deployer.check_options(interface, LocalOptions("c", Path("r")))
    quantized = LocalOptions("c", Path("r"), monolithic=True, quantize_tables="int8")
    with pytest.raises(ValueError, match="--quantize_tables int8: the model has no tables; leave"):
        deployer.check_options(interface, quantized)
    deployer.check_options(interface, LocalOptions("c", Path("r"), monolithic=True))
    unknown = LocalOptions("c", Path("r"), monolithic=True, unknown_ids="zero")
    with pytest.raises(ValueError, match="--unknown_ids zero: the model has histories, where id 0"):
        deployer.check_options(interface._replace(histories=("h",)), unknown)


WHERE = ("--checkpoint_dir=c", "--model_repository=r")


# Invalid flags; the message names the first of them.
INVALID = """
--model_name=a/b
--max_batch_size=0
--max_queue_delay_us=18446744073709551616
--gpu_cache_share=nan --backend=hps
--check_rows=0
--max_queue_delay_us=5 --no-dynamic_batching
--device_memory_gb=1 --backend=tensorflow --quantize_tables=int8
--monolithic --backend=hps
--no-dynamic_batching --backend=tensorflow
--gpus=0
--precision=bf16 --backend=tensorflow
--top_items=3
--dense_format=onnx
--sparse_model_name=a --monolithic
--model_name=a --dense_model_name=a
--cpu --backend=tensorflow --dense_format=trt
--trt_optimal_batch_size=4096 --backend=tensorflow
--unknown_ids=zero --backend=tensorflow --tensors=nvidia
--dense_format=onnx --backend=tensorflow --monolithic
"""


@pytest.mark.parametrize("flags", INVALID.split("\n")[1:-1])
def test_invalid_flags(flags, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    name = flags.partition("=")[0].partition(" ")[0]
    assert refused(capsys, *WHERE, *flags.split()).startswith(f"error: {name}")


def test_full_disk(trained_dlrm, tmp_path, capsys, monkeypatch):
    """The error names the folder of the models, of which nothing is left."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    where = (f"--checkpoint_dir={trained_dlrm.checkpoint}", f"--model_repository={tmp_path / 'r'}")
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        message = refused(capsys, *where, "--monolithic")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"{tmp_path}/.dlrm." in message and "could not be written: File too large" in message
    assert os.listdir(tmp_path) == []


def test_sigterm(trained_dlrm, tmp_path, capsys, monkeypatch):
    """Leaves no file when the signal comes late, even where its interrupt is caught."""

    def stopped(folder, *_):
        assert folder.is_dir(), "a model of it is written"
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(deployer, "write_origin", stopped)
    where = (f"--checkpoint_dir={trained_dlrm.checkpoint}", f"--model_repository={tmp_path / 'r'}")
    assert tool.main([*where, "--monolithic"]) == 130
    assert capsys.readouterr().err.startswith("interrupted; the repository has all new models")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
