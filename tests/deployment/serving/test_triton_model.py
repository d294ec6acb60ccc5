"""The model of Triton's Python backend, with a stand-in for the module of the server."""

import importlib
import json
import shutil
import struct
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from deployment.serving import checksums, scorer, tables
from deployment.triton.python_models import serving_files
from preproc.encoding.joint import Texts
from tests.deployment.serving import made_raw_model
from tests.deployment.serving.made_models import (
    CATEGORICAL,
    NUMERICAL,
    expected_embeddings,
    expected_scores,
    request,
    write_clicks,
)


class Tensor:
    def __init__(self, name, array):
        self._name, self.array = name, array

    def name(self):
        return self._name

    def as_numpy(self):
        return self.array


class TritonError:
    INVALID_ARG = "INVALID_ARG"

    def __init__(self, text, code):
        self.text, self.code = text, code


class InferenceResponse:
    def __init__(self, tensors=(), error=None):
        # The server copies the arrays before the next batch.
        self.arrays = {tensor.name(): tensor.array.copy() for tensor in tensors}
        self.error = error


@pytest.fixture
def said():
    """Lines of the server's log."""
    return []


@pytest.fixture
def triton_model(monkeypatch, said):
    stand_in = SimpleNamespace(
        Tensor=Tensor,
        TritonError=TritonError,
        InferenceResponse=InferenceResponse,
        Logger=SimpleNamespace(log_info=said.append, log_warn=said.append),
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", stand_in)
    monkeypatch.setattr(np, "__version__", "1.26.4")  # that of the server's environment
    monkeypatch.delitem(sys.modules, "deployment.serving.triton_model", raising=False)
    yield importlib.import_module("deployment.serving.triton_model")
    sys.modules.pop("deployment.serving.triton_model", None)


def started(module, folder, config=None):
    model = module.TritonPythonModel()
    model.initialize(
        {
            "model_repository": str(folder.parent),
            "model_version": folder.name,
            "model_name": "clicks",
            "model_config": json.dumps(config or {}),
        }
    )
    return model


def asked(arrays, **parameters):
    tensors = [Tensor(name, array) for name, array in arrays.items()]
    return SimpleNamespace(inputs=lambda: tensors, parameters=lambda: json.dumps(parameters))


@pytest.mark.parametrize("available", [2**40, 100])
def test_preload_of_tables(tmp_path, triton_model, said, monkeypatch, available):
    """A server preloads the tables, and the log warns if memory is too small; other processes do
    not preload them."""
    preloaded = []

    def opened(folder, interface, threads, preload):
        preloaded.append(preload)
        return tables.MappedTables(folder, interface, threads, preload)

    monkeypatch.setattr(scorer, "MappedTables", opened)
    monkeypatch.setattr(tables, "available_bytes", lambda: available)
    folder = write_clicks(tmp_path / "1")
    started(triton_model, folder).finalize()
    warned = [sentence for sentence in said if "more than half of the memory" in sentence]
    assert [sentence.partition(" ")[0] for sentence in warned] == ["clicks:"] * (available == 100)
    scorer.RequestScorer(folder)
    assert preloaded == [True, False]


@pytest.mark.parametrize("file", ["tables/two.npy", "dense.onnx"])
def test_flipped_bit(tmp_path, triton_model, file):
    folder = write_clicks(tmp_path / "1")
    checksums.write(folder)
    started(triton_model, folder).finalize()
    content = bytearray((folder / file).read_bytes())
    content[-9] ^= 4
    (folder / file).write_bytes(content)
    with pytest.raises(ValueError, match=f"{file}: its checksum differs"):
        started(triton_model, folder)


def test_scores_of_batched_requests(tmp_path, triton_model, said):
    model = started(triton_model, write_clicks(tmp_path / "1"))
    requests = [request(rows) for rows in (1, 3, 2)]
    requests[2][NUMERICAL] += 1
    responses = model.execute([asked(arrays) for arrays in requests])
    for arrays, response in zip(requests, responses, strict=True):
        assert response.error is None
        assert list(response.arrays) == ["scores"] and response.arrays["scores"].dtype == "f4"
        np.testing.assert_allclose(response.arrays["scores"], expected_scores(arrays), atol=1e-7)
    assert said == [said[0]] and said[0].startswith("clicks: dlrm, role scorer, fp32, ")
    model.finalize()


def test_errors_of_bad_requests(tmp_path, triton_model):
    """A bad request gets its error, and the others of its batch their scores."""
    model = started(triton_model, write_clicks(tmp_path / "1"))
    requests = [request(2) for _ in range(4)]
    requests[1][CATEGORICAL][1, 0] = 4
    del requests[2][CATEGORICAL]
    first, *refused, last = model.execute([asked(arrays) for arrays in requests])
    for response, expected in zip(refused, ("'city', row 1 ", "needed: categorical"), strict=True):
        assert response.error.code == "INVALID_ARG" and expected in response.error.text
    for response in (first, last):
        assert response.error is None
        scores = response.arrays["scores"]
        np.testing.assert_allclose(scores, expected_scores(request(2)), atol=1e-7)
    (response,) = model.execute([asked(requests[1])])
    assert "'city', row 1 " in response.error.text


def test_unknown_column_next_to_raw_rows(tmp_path, triton_model):
    """`/generate` passes other names than those of tensors as parameters."""
    model = started(triton_model, made_raw_model.write(tmp_path / "1"))
    rows = made_raw_model.tensors()
    good, bad = model.execute([asked(rows), asked(rows, town="Bern")])
    encoded = {NUMERICAL: made_raw_model.NUMBERS, CATEGORICAL: made_raw_model.IDS}
    np.testing.assert_allclose(good.arrays["scores"], expected_scores(encoded), atol=1e-7)
    assert bad.error.text.startswith("unknown column town; needed: price; optional: age, city")


def test_text_tensors(tmp_path, triton_model):
    """Several texts are packed."""
    started(triton_model, made_raw_model.write(tmp_path / "1"))
    read = triton_model.pb_utils.deserialize_bytes_tensor
    texts = [b"Bern", b"", b"x" * 600]
    content = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    packed = read(np.frombuffer(content, np.uint8)).reshape([3, 1])
    assert packed.shape == (3, 1)
    assert Texts.read(packed).array().to_pylist() == texts
    assert read(np.frombuffer(content[:8], np.uint8)).reshape([1, 1]).tolist() == [[b"Bern"]]
    two = read(np.frombuffer(content[:12], np.uint8)).reshape([1, 2])
    assert Texts.read(two).array().to_pylist() == texts[:2]
    assert read(np.zeros(0, np.uint8)).reshape([0, 1]).shape == (0, 1)


def test_encoded_tensors_next_to_raw_rows(tmp_path, triton_model):
    """A request may state that its tensors are encoded."""
    model = started(triton_model, made_raw_model.write(tmp_path / "1"))
    encoded = {NUMERICAL: made_raw_model.NUMBERS, CATEGORICAL: made_raw_model.IDS}
    invalid = encoded | {CATEGORICAL: made_raw_model.IDS + 9}
    requests = [asked(made_raw_model.tensors()), asked(encoded, encoded=True)]
    requests += [asked(encoded), asked(invalid, encoded=True)]
    *good, unstated, bad = model.execute(requests)
    for response in good:
        np.testing.assert_allclose(response.arrays["scores"], expected_scores(encoded), atol=1e-7)
    assert unstated.error.text.startswith("expected raw rows, got the tensor numerical_features")
    assert "ids lie in [0, 4)" in bad.error.text


def test_error_of_nan_score(tmp_path, triton_model, monkeypatch):
    model = started(triton_model, write_clicks(tmp_path / "1"))
    scores = np.array([[0.25], [np.nan], [0.5]], np.float32)
    monkeypatch.setattr(model._model, "answer", lambda arrays: {"scores": scores})
    responses = model.execute([asked(request(1)), asked(request(1)), asked(request(1))])
    assert [r.arrays.get("scores") for r in (responses[0], responses[2])] == [[[0.25]], [[0.5]]]
    assert "score of row 0 (counted from 0) is NaN" in responses[1].error.text


def test_ensemble_parts_and_checks(tmp_path, triton_model):
    arrays = request(3)
    sparse = started(triton_model, write_clicks(tmp_path / "sparse/1", role="sparse"))
    responses = sparse.execute([asked({CATEGORICAL: arrays[CATEGORICAL]})] * 2)
    embeddings = responses[1].arrays["embeddings"]
    assert np.array_equal(embeddings, expected_embeddings(arrays))
    dense = started(triton_model, write_clicks(tmp_path / "dense/1", role="dense"))
    inputs = {"embeddings": embeddings, NUMERICAL: arrays[NUMERICAL]}
    (response,) = dense.execute([asked(inputs)])
    np.testing.assert_allclose(response.arrays["scores"], expected_scores(arrays), atol=1e-7)

    folder = write_clicks(tmp_path / "checks/1", role="checks", unknown_ids="zero")
    shutil.rmtree(folder / "tables")
    (folder / "dense.onnx").unlink()
    checks = started(triton_model, folder)
    arrays[CATEGORICAL][0, 0] = 100
    (response,) = checks.execute([asked(arrays)])
    assert response.arrays[CATEGORICAL][:, 0].tolist() == [0, 3, 2]
    assert np.array_equal(response.arrays[NUMERICAL], arrays[NUMERICAL])


@pytest.mark.parametrize(
    ("config", "threads"),
    [
        ({}, 8),
        ({"parameters": {"threads": {"string_value": "3"}}, "instance_group": [{"count": 4}]}, 3),
        ({"parameters": {"threads": {"string_value": "0"}}, "instance_group": [{"count": 2}]}, 4),
    ],
)
def test_threads_of_instance(triton_model, config, threads):
    assert triton_model.threads_of(config, num_cores=8) == threads


def test_failures_at_start(tmp_path, triton_model, monkeypatch):
    folder = write_clicks(tmp_path / "1")
    with pytest.raises(ValueError, match="as the parameter threads .*, got '-1'"):
        started(triton_model, folder, {"parameters": {"threads": {"string_value": "-1"}}})
    monkeypatch.setattr(np, "__version__", "2.0.1")
    with pytest.raises(ValueError, match=r"NumPy 2\.0\.1 is installed .*install 'numpy<2' there"):
        started(triton_model, folder)


def test_imports_of_version_folder(root, tmp_path):
    """Triton imports `1.model`, with the working folder of the server first on the path."""
    folder = write_clicks(tmp_path / "clicks/1")
    for source in serving_files():
        target = folder / source.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    shutil.copy(root / "deployment/serving/triton_model.py", folder / "model.py")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "deployment").mkdir(parents=True)
    (elsewhere / "deployment/__init__.py").write_text("raise ImportError('of another place')")
    (elsewhere / "triton_python_backend_utils.py").write_text("")
    code = (
        "import importlib, sys; sys.path.append(sys.argv[1])\n"
        "model = importlib.import_module('1.model')\n"
        "print(sys.modules['deployment.serving.scorer'].__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder.parent)],
        capture_output=True,
        text=True,
        check=True,
        cwd=elsewhere,
    )
    assert done.stdout.strip() == str(folder / "deployment/serving/scorer.py")
