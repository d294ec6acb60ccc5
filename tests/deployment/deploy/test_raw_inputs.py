"""Deployments of models that take raw rows."""

import json

from deployment.serving import interface as interfaces
from deployment.serving.interface import RawColumn
from deployment.serving.scorer import RequestScorer
from deployment.triton.repository import models_of
from preproc.encoding.encoder import Encoder
from tests.deployment.triton.written_config import read_config

STRING, FP64, FP32, INT64 = 13, 12, 11, 3 + 6  # Triton's numbers of types
COLUMNS = {
    "price": (FP64, [1]),
    "city": (STRING, [1]),
    "user": (STRING, [1]),
    "tags": (STRING, [-1]),
}
ENCODED = {"numerical_features": (FP32, [1]), "categorical_features": (INT64, [4])}


def inputs_of(config) -> dict[str, tuple]:
    return {t.name: (t.data_type, list(t.dims)) for t in config.input}


def check_raw(config) -> None:
    """All inputs are optional, the encoded ones too, which the model itself refuses."""
    assert inputs_of(config) == COLUMNS | ENCODED
    assert all(tensor.optional for tensor in config.input)
    assert not config.model_warmup
    columns = json.loads(config.parameters["columns"].string_value)
    assert [RawColumn(**column).name for column in columns] == list(COLUMNS)


def test_monolithic_model(trained_of_texts, tmp_path):
    assert trained_of_texts.deploy(tmp_path, "--monolithic") == 0
    check_raw(read_config(tmp_path / "dlrm/config.pbtxt"))
    folder = tmp_path / "dlrm/1"
    interface = interfaces.read(folder)
    assert Encoder.load(folder / "encoder").digest == interface.encoder
    assert (folder / "preproc/encoding/joint.py").exists()
    assert "encoder/vocabulary/city.parquet" in json.loads((folder / "checksums.json").read_text())


def test_ensemble(trained_of_texts, tmp_path):
    assert trained_of_texts.deploy(tmp_path) == 0
    sparse, dense, _ = (tmp_path / name for name in models_of(tmp_path / "dlrm"))
    check_raw(read_config(tmp_path / "dlrm/config.pbtxt"))
    check_raw(read_config(sparse / "config.pbtxt"))
    config = read_config(dense / "config.pbtxt")
    assert inputs_of(config).keys() == {"embeddings", "numerical_features"}
    assert (
        not any(tensor.optional for tensor in config.input) and "columns" not in config.parameters
    )
    assert not (dense / "1/encoder").exists()
    first, second = read_config(tmp_path / "dlrm/config.pbtxt").ensemble_scheduling.step
    # A tensor of the request has this name, too.
    assert first.output_map["numerical_features"] == second.input_map["numerical_features"]
    assert first.output_map["numerical_features"] == "sparse_numerical_features"


def test_encoded_requests(trained_of_texts, tmp_path):
    assert trained_of_texts.deploy(tmp_path, "--monolithic", "--inputs=encoded") == 0
    config = read_config(tmp_path / "dlrm/config.pbtxt")
    assert inputs_of(config).keys() == ENCODED.keys()
    assert "columns" not in config.parameters and config.model_warmup
    # Raw rows can be scored without a server.
    rows = RequestScorer(tmp_path / "dlrm/1").raw_rows
    assert [column.name for column in rows.columns] == list(COLUMNS)


def test_raw_inputs_of_nvidia(trained_of_texts, tmp_path, capsys):
    assert trained_of_texts.deploy(tmp_path, "--inputs=raw", "--tensors=nvidia") == 2
    assert "--inputs raw: --tensors nvidia are encoded" in capsys.readouterr().err


def test_model_with_checks(trained_of_texts, tmp_path):
    """On a server of TensorFlow a model in Python encodes the requests before all others."""
    flags = ["--backend=tensorflow", "--cpu", "--dense_format=onnx"]
    assert trained_of_texts.deploy(tmp_path, *flags) == 0
    checks, sparse, dense, _ = (tmp_path / name for name in models_of(tmp_path / "dlrm"))
    check_raw(read_config(checks / "config.pbtxt"))
    assert inputs_of(read_config(sparse / "config.pbtxt")).keys() == {"categorical_features"}
    assert inputs_of(read_config(dense / "config.pbtxt")).keys() == {
        "embeddings",
        "numerical_features",
    }
    assert (checks / "1/encoder/encoder.json").exists()


def test_model_of_keys(trained_of_texts, tmp_path):
    assert trained_of_texts.deploy(tmp_path, "--backend=hps", "--dense_format=onnx") == 0
    keys, *_ = (tmp_path / name for name in models_of(tmp_path / "dlrm"))
    config = read_config(keys / "config.pbtxt")
    assert inputs_of(config)["tags"] == (STRING, [-1, -1]), "without Triton's batches"
    assert (keys / "1/encoder/encoder.json").exists()
