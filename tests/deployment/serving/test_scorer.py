"""Whole models: scores by hand, on threads, in parts; what cannot be loaded."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import onnx
import pytest

from deployment.serving import interface as interfaces
from deployment.serving.dense import DenseRunner
from deployment.serving.scorer import RequestScorer, ServedModel
from tests.deployment.serving.made_models import (
    CATEGORICAL,
    CLICKS,
    NUMERICAL,
    expected_embeddings,
    expected_scores,
    request,
    write_clicks,
    write_dense,
)


def test_scores_by_hand(clicks):
    scorer = RequestScorer(clicks, 1)
    for rows in (1, 8, 3):
        scores = scorer.score(request(rows))
        assert scores.dtype == np.float32 and scores.shape == (rows, 1)
        np.testing.assert_allclose(scores, expected_scores(request(rows)), rtol=0, atol=1e-7)


def test_blocks_of_rows(clicks, monkeypatch):
    monkeypatch.setattr("deployment.serving.scorer._BLOCK_BYTES", 3 * 4 * CLICKS.width)
    scores = RequestScorer(clicks, 1).score(request(8))  # 3, 3 and 2 rows
    np.testing.assert_allclose(scores, expected_scores(request(8)), rtol=0, atol=1e-7)


def test_unlimited_batch_size(tmp_path):
    """Memory is allocated for the rows of a request, not for the largest batch."""
    folder = write_clicks(tmp_path / "1", max_batch_size=2**63 - 1)
    result = RequestScorer(folder).score(request(3))
    np.testing.assert_allclose(result, expected_scores(request(3)), rtol=0, atol=1e-7)


def test_limit_of_threads(clicks):
    """Threads beyond the number of cores are not started, and the log reports it; onnxruntime would
    start them all."""
    messages = []
    model = ServedModel(clicks, CLICKS, 1_000, messages.append)
    cores = len(os.sched_getaffinity(0))
    assert model.threads == cores
    assert messages == [
        f"threads is 1,000, and this process may use {cores} cores: {cores} threads work on a batch"
    ]
    assert len(os.listdir("/proc/self/task")) < 1_000
    model.close()


def test_shared_scorer_of_threads(clicks, monkeypatch):
    scorer = RequestScorer(clicks)
    requests = [{k: v[-rows:] for k, v in request(8).items()} for rows in (8, 5, 6, 3)]
    run, looked_up = scorer._model._dense.run, Barrier(4, timeout=60)

    def run_together(embeddings, arrays):
        looked_up.wait()
        return run(embeddings, arrays)

    monkeypatch.setattr(scorer._model._dense, "run", run_together)
    with ThreadPoolExecutor(4) as pool:
        result = list(pool.map(scorer.score, requests))
    for arrays, scores in zip(requests, result, strict=True):
        np.testing.assert_allclose(scores, expected_scores(arrays), rtol=0, atol=1e-7)


def test_ensemble_without_server(tmp_path, clicks):
    sparse, dense = (write_clicks(tmp_path / r / "1", role=r) for r in ("sparse", "dense"))
    (dense / "tables/two.npy").unlink()
    (sparse / "dense.onnx").unlink()
    scorer = RequestScorer(sparse, dense_folder=dense)
    assert np.array_equal(scorer.score(request(8)), RequestScorer(clicks).score(request(8)))

    with pytest.raises(ValueError, match="expected .* role scorer, or .*, got the role sparse"):
        RequestScorer(sparse)
    with pytest.raises(ValueError, match="got the role scorer"):
        RequestScorer(clicks, dense_folder=dense)
    interfaces.write(CLICKS._replace(role="dense", unknown_ids="zero"), dense)
    with pytest.raises(ValueError, match="is not the dense part of the ensemble of .*together"):
        RequestScorer(sparse, dense_folder=dense)


@pytest.mark.parametrize(("precision", "digits"), [("bf16", 8), ("fp16", 11)])
def test_half_precision(tmp_path, precision, digits):
    pytest.importorskip("openvino")
    messages = []
    folder = write_clicks(tmp_path / "1", precision=precision)
    scorer = RequestScorer(folder, 1, log=messages.append)
    requests = [{k: v[-rows:] for k, v in request(8).items()} for rows in (8, 3, 7)]
    kept = [scorer.score(arrays) for arrays in requests]
    for arrays, scores in zip(requests, kept, strict=True):
        assert scores.dtype == np.float32 and scores.shape == (len(arrays[NUMERICAL]), 1)
        error = np.abs(scores - expected_scores(arrays)).max()
        assert error < 4 * 2.0**-digits
    # The scores themselves are float32.
    assert (kept[0] != kept[0].astype(np.float16)).any()
    assert messages == [] or "this CPU has no instructions for it" in messages[0]


def test_two_last_products(tmp_path):
    """With two last products, fp16 computes neither in float32, and the log reports it."""
    pytest.importorskip("openvino")
    folder = write_clicks(tmp_path / "1", precision="fp16")
    model = onnx.load(folder / "dense.onnx")
    (product,) = (node for node in model.graph.node if node.op_type == "MatMul")
    model.graph.node.remove(product)
    for name in ("a", "b"):
        model.graph.node.insert(1, onnx.helper.make_node("MatMul", ["all", "weights"], [name]))
    model.graph.node.insert(3, onnx.helper.make_node("Add", ["a", "b"], ["logits"]))
    onnx.save(model, folder / "dense.onnx")
    once = expected_scores(request(3))
    doubled = once**2 / (once**2 + (1 - once) ** 2)  # score of twice the logit
    messages = []
    scores = RequestScorer(folder, 1, log=messages.append).score(request(3))
    np.testing.assert_allclose(scores, doubled, rtol=0, atol=2e-3)
    assert "the scores are rounded to float16, too" in messages[0]


def test_cpu_without_half_precision(tmp_path, monkeypatch):
    openvino = pytest.importorskip("openvino")
    compile_model = openvino.Core.compile_model

    def in_float32(self, path, device, settings):
        return compile_model(self, path, device, settings | {"INFERENCE_PRECISION_HINT": "f32"})

    monkeypatch.setattr(openvino.Core, "compile_model", in_float32)
    folder, messages = write_clicks(tmp_path / "1", precision="bf16"), []
    scores = RequestScorer(folder, 1, log=messages.append).score(request(3))
    assert messages == [
        "--precision bf16: this CPU has no instructions for it, OpenVINO computes in f32"
    ]
    np.testing.assert_allclose(scores, expected_scores(request(3)), rtol=0, atol=1e-6)


def test_half_precision_without_openvino(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(ValueError, match="--precision bf16 needs OpenVINO .*--precision fp32"):
        RequestScorer(write_clicks(tmp_path / "1", precision="bf16"))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_invalid_dense_parts(tmp_path, precision):
    if precision == "bf16":
        pytest.importorskip("openvino")
    folder = write_clicks(tmp_path / "1", precision=precision)
    interface = interfaces.read(folder)
    write_dense(folder / "dense.onnx", numerical="other")
    with pytest.raises(ValueError, match="needs other; the interface has embeddings, numerical_"):
        DenseRunner(folder, interface, 1, print)
    (folder / "dense.onnx").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="cannot load it .*; deploy the checkpoint again"):
        DenseRunner(folder, interface, 1, print)
    (folder / "dense.onnx").unlink()
    with pytest.raises(ValueError, match="does not exist; deploy the checkpoint again"):
        DenseRunner(folder, interface, 1, print)


def test_dense_part_with_unused_inputs(tmp_path):
    """Converters leave out inputs that a graph does not use."""
    folder = write_clicks(tmp_path / "1")
    interface = CLICKS._replace(dense_inputs=(NUMERICAL, CATEGORICAL))
    dense = DenseRunner(folder, interface, 1, print)
    scores = dense.run(expected_embeddings(request(3)), request(3))
    np.testing.assert_allclose(scores, expected_scores(request(3)), rtol=0, atol=1e-7)


def test_packages_and_files_of_a_process(root, tmp_path):
    """The environment of a server has neither TensorFlow nor the toolkit. onnxruntime and OpenVINO
    write no files to the home folder, such as events to send."""
    for precision in ("fp32", "bf16"):
        write_clicks(tmp_path / precision, precision=precision)
    (home := tmp_path / "home").mkdir()
    np.savez(tmp_path / "rows.npz", **request(3))
    program = (
        "import sys, numpy as np\n"
        "from deployment.serving.scorer import RequestScorer\n"
        "for precision in ('fp32', 'bf16'):\n"
        "    imported = sorted({name.split('.')[0] for name in sys.modules})\n"
        "    assert RequestScorer(precision).score(dict(np.load('rows.npz'))).shape == (3, 1)\n"
        "print(*imported)"
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ORT_"))}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=kept | {"HOME": str(home), "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert list(home.iterdir()) == []
    imported = set(done.stdout.split())
    assert {"deployment", "numpy", "onnxruntime"} <= imported
    assert not imported & {"tensorflow", "openvino", "nn", "dataloading", "config"}
