"""ONNX models of every kind against TensorFlow, at any batch size, with tables of any size."""

import re
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx import numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from deployment.artifacts import onnx_model
from deployment.artifacts.onnx_model import check_against_tensorflow, dense_to_onnx, monolithic_onnx
from deployment.client.drawn_requests import drawn_request
from deployment.model.served_model import DenseModel, request_arrays, serving_spec_of
from deployment.model.serving_spec import ServingSpec
from deployment.model.trained_model import evaluation_rows, open_checkpoint
from deployment.serving.checks import find_misplaced_padding
from deployment.serving.dense import open_session
from deployment.serving.interface import ServedFeature, ServedLookup, ServedTensor
from nn.sequence import gru
from tests.deployment import untrained
from tests.deployment.reference import looked_up, whole_tables


def converted(trained, folder):
    """(parts, dense model, its ONNX file)."""
    dense = DenseModel(trained)
    dense_to_onnx(dense, folder / "dense.onnx")
    return serving_spec_of(trained), dense, folder / "dense.onnx"


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


@pytest.mark.quick("dlrm", "dcnv2", "sim", "dien", "din", "neumf", "dlrm_without_*")
@pytest.mark.parametrize(
    "name", [*untrained.RANKING, *untrained.SEQUENCE, *untrained.INTERACTION, "dien_in_a_loop"]
)
def test_agreement_with_tensorflow(name, tmp_path, monkeypatch):
    """Compares the dense part with TensorFlow, and the monolithic model with the whole trained
    model; the first row of a batch has an empty history."""
    if name == "dien_in_a_loop":
        monkeypatch.setattr(gru, "MOST_UNROLLED", 3)
        name = "dien"
    model, trained = untrained.make(name, tmp_path)
    serving_spec, dense, file = converted(trained, tmp_path)
    agreement = check_against_tensorflow(dense, serving_spec, trained, file)
    assert float(re.fullmatch("scores within (.*) of TensorFlow's", agreement)[1]) < 1e-5
    whole = tmp_path / "model.onnx"
    monolithic_onnx(file, serving_spec, trained, whole)
    assert unread_initializers(onnx.load(whole, load_external_data=False).graph) == set()
    session, rng = open_session(whole), np.random.default_rng(1)
    for rows in (1, 3, 64):
        arrays = drawn_request(serving_spec, rows, rng)
        (result,) = session.run(["scores"], arrays)
        expected = untrained.scores(model, serving_spec, arrays)
        assert expected.std() > 1e-3 or rows == 1
        np.testing.assert_allclose(result, expected, atol=1e-6)


@pytest.mark.long
def test_scores_of_trained_sim(trained_sim, tmp_path, capfd, caplog):
    trained = open_checkpoint(str(trained_sim.checkpoint))
    serving_spec, _, file = converted(trained, tmp_path)
    monolithic_onnx(file, serving_spec, trained, tmp_path / "model.onnx")
    assert capfd.readouterr() == ("", "")
    assert caplog.text == ""
    session = open_session(tmp_path / "model.onnx")
    result = [
        session.run(["scores"], request_arrays(serving_spec, batch.inputs))[0]
        for batch in evaluation_rows(trained, 64).dataset()
    ]
    (tmp_path / "run").mkdir()
    expected = trained_sim.scores(tmp_path / "run")
    np.testing.assert_allclose(np.concatenate(result)[:, 0], expected, atol=1e-6)


@pytest.mark.parametrize("quantize", ["none", "fp16", "int8"])
def test_stored_rows(quantize, dlrm, tmp_path):
    trained, serving_spec, dense, file = dlrm
    monolithic_onnx(file, serving_spec, trained, tmp_path / "model.onnx", quantize)
    size_bytes = (tmp_path / "model.onnx.data").stat().st_size
    # Tables of 5, 40 and 9 rows of 8 values; tensors begin at multiples of 4,096.
    assert (
        size_bytes
        == {
            "none": 2 * 4096 + 9 * 8 * 4,
            "fp16": 2 * 4096 + 9 * 8 * 2,
            "int8": 5 * 4096 + 9 * 4,
        }[quantize]
    )
    stored = {}
    for name, rows in whole_tables(trained).items():
        stored[name] = rows
        if quantize == "fp16":
            stored[name] = rows.astype(np.float16).astype(np.float32)
        elif quantize == "int8":
            scale = np.abs(rows).max(axis=1, keepdims=True) / np.float32(127)
            stored[name] = np.round(rows / scale) * scale
    arrays = drawn_request(serving_spec, 20, np.random.default_rng(0))
    vectors = looked_up(serving_spec, stored, arrays)
    expected = dense.score(vectors, arrays["numerical_features"]).numpy()
    (result,) = open_session(tmp_path / "model.onnx").run(["scores"], arrays)
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_bad_values(dlrm, tmp_path):
    trained, serving_spec, _, file = dlrm
    monolithic_onnx(file, serving_spec, trained, tmp_path / "model.onnx")
    session = open_session(tmp_path / "model.onnx")
    good = drawn_request(serving_spec, 4, np.random.default_rng(0))
    # In ONNX the index -1 is the last row.
    for column, value, rule in ((0, 5, r"cat_0 in \[0, 5\)"), (3, -1, r"cat_1 in \[0, 40\)")):
        ids = good["categorical_features"].copy()
        ids[2, column] = value
        with pytest.raises(InvalidArgument, match=f"ids of {rule}, table cat_.*out of data bounds"):
            session.run(["scores"], {**good, "categorical_features": ids})


def test_numerical_features_not_finite(dlrm, tmp_path):
    """The ONNX file checks its inputs: the ReLU of this model alone would turn infinity into 0."""
    trained, serving_spec, _, file = dlrm
    model = onnx.load(file)
    kernel = next(i for i in model.graph.initializer if list(i.dims) == [2, 6])
    kernel.CopyFrom(numpy_helper.from_array(np.full([2, 6], -1, np.float32), kernel.name))
    onnx.save(model, tmp_path / "dense.onnx")
    monolithic_onnx(tmp_path / "dense.onnx", serving_spec, trained, tmp_path / "model.onnx")
    session = open_session(tmp_path / "model.onnx")
    arrays = drawn_request(serving_spec, 4, np.random.default_rng(0))
    (scores,) = session.run(["scores"], arrays)
    for value in (np.nan, np.inf):
        numbers = arrays["numerical_features"].copy()
        numbers[1, 1] = value
        (result,) = session.run(["scores"], {**arrays, "numerical_features": numbers})
        assert np.isnan(result[:, 0]).tolist() == [False, True, False, False]
        np.testing.assert_allclose(result[[0, 2, 3]], scores[[0, 2, 3]], rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_unused_numerical_features_not_finite(value, tmp_path):
    """Every column is checked, also where no operation of the model propagates a NaN."""
    numericals = [ServedFeature(f"n{column}", "n", column, 1, None) for column in range(3)]
    serving_spec = ServingSpec(
        (ServedTensor("n", "float32", (3,)),), numericals, (), (), ("n",), ()
    )
    dense = onnx.helper.make_graph(
        [onnx.helper.make_node("Gather", ["n", "column"], ["scores"], axis=1)],
        "dense",
        [onnx.helper.make_tensor_value_info("n", 1, ["batch", 3])],
        [onnx.helper.make_tensor_value_info("scores", 1, ["batch", 1])],
        [numpy_helper.from_array(np.array([0]), "column")],
    )
    model = onnx.helper.make_model(dense, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, tmp_path / "dense.onnx")
    monolithic_onnx(tmp_path / "dense.onnx", serving_spec, None, tmp_path / "model.onnx")
    numbers = np.arange(12, dtype=np.float32).reshape(4, 3)
    for column in range(3):
        numbers[column, column] = value
    (scores,) = open_session(tmp_path / "model.onnx").run(["scores"], {"n": numbers})
    np.testing.assert_array_equal(scores, [[np.nan], [np.nan], [np.nan], [9]])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("dims", [(1, 4), (3, 4), (2, 1)])
def test_misplaced_zeros(dims, dtype, tmp_path):
    """Rows with misplaced zeros or a numerical feature that is not finite score NaN; others score
    the numerical feature."""
    serving_spec = ServingSpec(
        inputs=(ServedTensor("n", "float32", (1,)), ServedTensor("h", dtype, dims)),
        features=(
            ServedFeature("f", "n", 0, 1, None),
            *(ServedFeature(f"h{i}", "h", i * dims[1], dims[1], 9) for i in range(dims[0])),
        ),
        lookups=(),
        tables=(),
        dense_inputs=("n",),
        histories=("h",),
    )
    dense = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["n"], ["scores"])],
        "dense",
        [onnx.helper.make_tensor_value_info("n", 1, ["batch", 1])],
        [onnx.helper.make_tensor_value_info("scores", 1, ["batch", 1])],
    )
    model = onnx.helper.make_model(dense, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, tmp_path / "dense.onnx")
    monolithic_onnx(tmp_path / "dense.onnx", serving_spec, None, tmp_path / "model.onnx")
    rng = np.random.default_rng(0)
    numbers = rng.choice([1, 2, np.nan, np.inf], (500, 1)).astype(np.float32)
    ids = rng.integers(0, 2, (500, *dims)).astype(dtype) * 8
    ids[::2] = ids[::2, :1]
    (result,) = open_session(tmp_path / "model.onnx").run(["scores"], {"n": numbers, "h": ids})
    good = np.isfinite(numbers)
    assert np.isnan(result[~good]).all()
    good[:, 0] &= [find_misplaced_padding(row) is None for row in ids[:, np.newaxis]]
    assert good.any()
    np.testing.assert_array_equal(result, np.where(good, numbers, np.nan))


def test_rows_with_fewer_ids(dlrm, tmp_path):
    trained, _, dense, file = dlrm
    trained = trained._replace(config=trained.config.replace(dataset_type="split_tfrecords"))
    serving_spec = serving_spec_of(trained)
    monolithic_onnx(file, serving_spec, trained, tmp_path / "model.onnx")
    session = open_session(tmp_path / "model.onnx")
    ids = np.array([[1, 5, -1, 39, 2], [-1, -1, -1, -1, -1], [4, 0, 0, 0, -1]], np.int64)
    arrays = {"categorical_features": ids, "numerical_features": np.ones([3, 2], np.float32)}
    vectors = looked_up(serving_spec, whole_tables(trained), arrays)
    assert not vectors[1].any()
    expected = dense.score(vectors, arrays["numerical_features"]).numpy()
    np.testing.assert_allclose(session.run(["scores"], arrays)[0], expected, atol=1e-6)
    ids[0, 2] = -2
    with pytest.raises(InvalidArgument, match="ids of cat_1"):
        session.run(["scores"], arrays)


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
    [
        (lambda kernel: kernel + 0.01, r"0\.\d+|\de-\d+"),
        (lambda kernel: kernel + 1e-3, r"0\.\d+|\de-\d+"),
        (lambda kernel: kernel * np.nan, "nan"),
    ],
)
def test_check_of_changed_model(change, difference, dlrm, tmp_path):
    trained, serving_spec, dense, file = dlrm
    with pytest.raises(ValueError, match=f"a batch of 1 rows a score is ({difference}) from what"):
        check_against_tensorflow(dense, serving_spec, trained, changed(file, tmp_path, change))


def test_lookups_of_check(dlrm):
    trained, serving_spec, dense, file = dlrm
    calls = []

    class Recorded:
        output = "scores"

        def score(self, *inputs):
            calls.append(inputs)
            return dense.score(*inputs)

    check_against_tensorflow(Recorded(), serving_spec, trained, file, batch_sizes=(5, 2))
    rng = np.random.default_rng(0)
    for rows, (vectors, numerical) in zip((5, 2), calls, strict=True):
        arrays = drawn_request(serving_spec, rows, rng)
        np.testing.assert_array_equal(numerical, arrays["numerical_features"])
        wanted = looked_up(serving_spec, whole_tables(trained), arrays)
        np.testing.assert_allclose(vectors, wanted, rtol=1e-6)


def test_check_with_saturated_scores(dlrm, tmp_path):
    """Logits are so large that scores are 0 or 1 in every implementation."""
    trained, serving_spec, _, file = dlrm
    certain = changed(file, tmp_path, lambda kernel: kernel * 0 + 1000)

    class Certain:
        output = "scores"

        def score(self, *inputs):
            names = [node.name for node in open_session(certain).get_inputs()]
            arrays = dict(zip(names, map(np.asarray, inputs), strict=True))
            return tf.constant(open_session(certain).run(["scores"], arrays)[0])

    message = check_against_tensorflow(
        Certain(), serving_spec, trained, certain, batch_sizes=(5, 3)
    )
    assert (
        message == "scores within 0.0e+00 of TensorFlow's, but all of them within 1e-05 of 0 or 1"
    )


def test_unsupported_operation(tmp_path):
    signature = [tf.TensorSpec([None, 2], tf.float32, "embeddings")]
    odd = tf.function(lambda x: tf.math.lbeta(tf.math.bessel_i0(x))[:, None], signature)
    with pytest.raises(ValueError, match=r"dense part cannot be converted to ONNX: .*BesselI0"):
        dense_to_onnx(SimpleNamespace(score=odd, output="scores"), tmp_path / "odd.onnx")
    assert not (tmp_path / "odd.onnx").exists()


def test_unwritable_files(dlrm, tmp_path):
    trained, serving_spec, dense, file = dlrm
    with pytest.raises(OSError, match=r"none/dense\.onnx"):
        dense_to_onnx(dense, tmp_path / "none" / "dense.onnx")
    with pytest.raises(OSError, match=r"none/model\.onnx"):
        monolithic_onnx(file, serving_spec, trained, tmp_path / "none" / "model.onnx")
    (tmp_path / "model.onnx.data").write_text("of another user")
    with pytest.raises(OSError, match=r"model\.onnx\.data"):
        monolithic_onnx(file, serving_spec, trained, tmp_path / "model.onnx")


@pytest.mark.long
def test_table_above_two_gigabytes(tmp_path, monkeypatch):
    """Rows of 2.4 GB; all but the last are holes in the file."""
    rows, dim = 600_000, 1024
    last = np.arange(2 * dim, dtype=np.float32).reshape(2, dim)
    monkeypatch.setattr(onnx_model, "served_blocks", lambda *table: iter([(rows - 2, last, None)]))
    serving_spec = ServingSpec(
        inputs=(ServedTensor("ids", "int32", (1,)),),
        features=(ServedFeature("f", "ids", 0, 1, rows, False),),
        lookups=(ServedLookup("f", "ids", 0, 1, "sum"),),
        tables=(("f", rows, dim),),
        dense_inputs=(),
    )
    whole = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["embeddings"], ["scores"])],
        "dense",
        [onnx.helper.make_tensor_value_info("embeddings", 1, ["batch", dim])],
        [onnx.helper.make_tensor_value_info("scores", 1, ["batch", dim])],
    )
    model = onnx.helper.make_model(whole, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, tmp_path / "dense.onnx")
    monolithic_onnx(tmp_path / "dense.onnx", serving_spec, None, tmp_path / "model.onnx")
    data = (tmp_path / "model.onnx.data").stat()
    assert data.st_size == rows * dim * 4 > 2**31
    assert data.st_blocks * 512 < 2**20, "a sparse file"
    session = open_session(tmp_path / "model.onnx")
    ids = np.array([[rows - 1], [0], [rows - 2]], np.int32)
    (result,) = session.run(["scores"], {"ids": ids})
    np.testing.assert_array_equal(result, [last[1], np.zeros(dim), last[0]])
