"""ONNX models of the dense part of every kind against TensorFlow, at any batch size."""

import re
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx import numpy_helper

from deployment.artifacts.onnx_model import check_against_tensorflow, dense_to_onnx
from deployment.client.drawn_requests import drawn_request
from deployment.model.served_model import DenseModel, interface_of
from deployment.serving import checksums
from deployment.serving.dense import DenseRunner, open_session
from deployment.serving.interface import EMBEDDINGS
from nn.sequence import gru
from tests.deployment import untrained
from tests.deployment.reference import looked_up, whole_tables


def converted(trained, folder):
    """(parts, dense model, its ONNX file)."""
    dense = DenseModel(trained)
    dense_to_onnx(dense, folder / "dense.onnx")
    return interface_of(trained), dense, folder / "dense.onnx"


def unread_initializers(graph):
    """Names of the constants that no node reads: onnxruntime warns of each when it loads them."""
    read = {output.name for output in graph.output}
    graphs = [graph]
    while graphs:
        for node in graphs.pop().node:
            read.update(node.input)
            bodies = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
            read.update(output.name for body in bodies for output in body.output)
            graphs += bodies
    return {constant.name for constant in graph.initializer} - read


@pytest.fixture(scope="module")
def dlrm(tmp_path_factory):
    """(`TrainedModel`, parts, dense model, its ONNX file) of DLRM with drawn weights."""
    folder = tmp_path_factory.mktemp("onnx")
    _, trained = untrained.make("dlrm", folder)
    return trained, *converted(trained, folder)


@pytest.mark.quick("sim", "neumf", "dlrm_without_*", "*_parts")
@pytest.mark.parametrize(
    "name", [*untrained.RANKING, *untrained.SEQUENCE, *untrained.INTERACTION, "dien_in_a_loop"]
)
def test_agreement_with_tensorflow(name, tmp_path, monkeypatch):
    """Compares the dense part with TensorFlow, and, of vectors that are looked up one by one, with
    the whole trained model; the first row of a batch has an empty history."""
    if name == "dien_in_a_loop":
        monkeypatch.setattr(gru, "MOST_UNROLLED", 3)
        name = "dien"
    model, trained = untrained.make(name, tmp_path)
    interface, dense, file = converted(trained, tmp_path)
    agreement = check_against_tensorflow(dense, interface, trained, file)
    assert float(re.fullmatch("scores within (.*) of TensorFlow's", agreement)[1]) < 1e-5
    assert unread_initializers(onnx.load(file).graph) == set()
    session, rng, tables = open_session(file), np.random.default_rng(1), whole_tables(trained)
    for rows in (1, 3, 64):
        arrays = drawn_request(interface, rows, rng)
        inputs = {name: arrays[name] for name in interface.dense_inputs}
        if interface.width:
            inputs[EMBEDDINGS] = looked_up(interface, tables, arrays)
        (result,) = session.run(["scores"], inputs)
        expected = untrained.scores(model, interface, arrays)
        assert expected.std() > 1e-3 or rows == 1
        np.testing.assert_allclose(result, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["dlrm_of_all_parts", "dcnv2_of_all_parts"])
def test_half_precision(name, tmp_path, monkeypatch):
    """OpenVINO fuses operations that differ by the order of a model's dimensions."""
    model, trained = untrained.make(name, tmp_path)
    interface, _, _ = converted(trained, tmp_path)
    arrays = drawn_request(interface, 64, np.random.default_rng(1))
    monkeypatch.setattr(checksums, "verify", lambda folder, file: None)
    runner = DenseRunner(tmp_path, interface._replace(precision="bf16"), 1, print)
    scores = runner.run(looked_up(interface, whole_tables(trained), arrays), arrays)
    np.testing.assert_allclose(scores, untrained.scores(model, interface, arrays), atol=0.02)


def changed(file, folder, change):
    """The ONNX model with another kernel in its last layer."""
    model = onnx.load(file)
    kernel = next(i for i in model.graph.initializer if list(i.dims) == [12, 1])
    values = change(numpy_helper.to_array(kernel)).astype(np.float32)
    kernel.CopyFrom(numpy_helper.from_array(values, kernel.name))
    onnx.save(model, folder / "changed.onnx")
    return folder / "changed.onnx"


@pytest.mark.parametrize(
    ("change", "difference"),
    [(lambda kernel: kernel + 1e-3, r"0\.\d+|\de-\d+"), (lambda kernel: kernel * np.nan, "nan")],
)
def test_check_of_changed_model(change, difference, dlrm, tmp_path):
    trained, interface, dense, file = dlrm
    with pytest.raises(ValueError, match=f"a batch of 1 rows a score is ({difference}) from what"):
        check_against_tensorflow(dense, interface, trained, changed(file, tmp_path, change))


def test_unsupported_operation(tmp_path):
    signature = [tf.TensorSpec([None, 2], tf.float32, "embeddings")]
    odd = tf.function(lambda x: tf.math.lbeta(tf.math.bessel_i0(x))[:, None], signature)
    with pytest.raises(ValueError, match=r"dense part cannot be converted to ONNX: .*BesselI0"):
        dense_to_onnx(SimpleNamespace(score=odd, output="scores"), tmp_path / "odd.onnx")
    assert not (tmp_path / "odd.onnx").exists()
