"""SavedModels: scores without the toolkit, stored rows by hand, and errors of bad ids."""

import dataclasses
import functools
import os

import numpy as np
import pytest
import tensorflow as tf

from deployment.artifacts import saved_models
from deployment.artifacts.saved_models import write_monolithic, write_sparse
from deployment.client.drawn_requests import drawn_request
from deployment.model.served_model import DenseModel, interface_of
from deployment.model.trained_model import open_checkpoint
from tests.conftest import run_forked
from tests.deployment import untrained
from tests.deployment.reference import looked_up, whole_tables

# Loads a model as a server does: in a session, with two CPUs, the second in place of a GPU.
# Prints the device of each table and writes each output to NAME.npy.
IN_A_SESSION = """
import sys
import numpy as np, tensorflow as tf
v1 = tf.compat.v1
arrays = dict(np.load("request.npz"))
for name in ("sparse", "monolithic"):
    with v1.Session(graph=tf.Graph(), config=v1.ConfigProto(device_count={"CPU": 2})) as session:
        loaded = v1.saved_model.load(session, ["serve"], name).signature_def["serving_default"]
        fed = {info.name: arrays[key] for key, info in loaded.inputs.items()}
        (output, info), = loaded.outputs.items()
        seen = v1.RunMetadata()
        options = v1.RunOptions(output_partition_graphs=True)
        arrays[output] = session.run(info.name, fed, options, seen)
        np.save(name + ".npy", arrays[output])
        nodes = [node for graph in seen.partition_graphs for node in graph.node]
        places = {n.name: n.device[-1] for n in nodes if n.op == "VarHandleOp"}
        print(name, *sorted(k + "@" + v for k, v in places.items() if k.startswith("table_")))
ours = {"deployment", "nn", "tensorflow_dot_based_interact"} & set(sys.modules)
assert not ours, ours
"""


@pytest.fixture(scope="module")
def dlrm(tmp_path_factory):
    """(model, `TrainedModel`, parts, dense) of DLRM with drawn weights."""
    model, trained = untrained.make("dlrm", tmp_path_factory.mktemp("saved_models"))
    return model, trained, interface_of(trained), DenseModel(trained)


@functools.cache
def loaded(folder):
    return tf.saved_model.load(str(folder))


def run(folder, **arrays):
    """The answer of a SavedModel's only signature."""
    signature = loaded(folder).signatures["serving_default"]
    (answer,) = signature(**{n: tf.constant(a) for n, a in arrays.items()}).values()
    return answer.numpy()


def test_session_without_toolkit(trained_dlrm, forked_python, tmp_path, monkeypatch, capfd):
    """Trained with the custom op, served by TensorFlow alone, tables where they were placed."""
    monkeypatch.setattr(saved_models, "_DEVICE", "/device:CPU:1")
    trained = open_checkpoint(str(trained_dlrm.checkpoint))
    interface, dense = interface_of(trained), DenseModel(trained)
    write_sparse(interface, trained, tmp_path / "sparse", on_device=["cat_0", "cat_2"])
    write_monolithic(dense, interface, trained, tmp_path / "monolithic", on_device=["cat_3"])
    assert capfd.readouterr() == ("", "")
    arrays = drawn_request(interface, 5, np.random.default_rng(0))
    np.savez(tmp_path / "request.npz", **arrays)
    done = run_forked(forked_python, ["-c", IN_A_SESSION], str(tmp_path), dict(os.environ), 60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "sparse table_0@1 table_1@0 table_2@1 table_3@0",
        "monolithic table_0@0 table_1@0 table_2@0 table_3@1",
    ]
    vectors = looked_up(interface, whole_tables(trained), arrays)
    np.testing.assert_allclose(np.load(tmp_path / "sparse.npy"), vectors, rtol=1e-6)
    scores = dense.score(vectors, arrays["numerical_features"]).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "monolithic.npy"), scores, rtol=1e-5)


@pytest.mark.quick("neumf", "dlrm_without_tables")
@pytest.mark.parametrize("name", ["sim_of_hard_search", "neumf", "dlrm_without_tables"])
def test_other_monolithic_models(name, tmp_path, caplog):
    model, trained = untrained.make(name, tmp_path)
    interface = interface_of(trained)
    write_monolithic(DenseModel(trained), interface, trained, tmp_path / "whole")
    arrays = drawn_request(interface, 6, np.random.default_rng(0))
    expected = untrained.scores(model, interface, arrays)
    np.testing.assert_allclose(run(tmp_path / "whole", **arrays), expected, atol=1e-6)
    assert caplog.text == ""  # no warning, for example of missing gradients


@pytest.mark.parametrize("quantize", ["fp16", "int8"])
def test_quantized_tables(quantize, dlrm, tmp_path):
    _, trained, interface, _ = dlrm
    write_sparse(interface, trained, tmp_path / "sparse", quantize=quantize)
    stored = {}
    for name, rows in whole_tables(trained).items():
        if quantize == "fp16":
            stored[name] = rows.astype(np.float16).astype(np.float32)
        else:
            scale = np.abs(rows).max(axis=1, keepdims=True) / np.float32(127)
            stored[name] = np.round(rows / scale) * scale
    ids = drawn_request(interface, 20, np.random.default_rng(0))["categorical_features"]
    expected = looked_up(interface, stored, {"categorical_features": ids})
    result = run(tmp_path / "sparse", categorical_features=ids)
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-7)


def test_bad_ids(dlrm, tmp_path):
    _, trained, interface, dense = dlrm
    write_sparse(interface, trained, tmp_path / "sparse")
    write_monolithic(dense, interface, trained, tmp_path / "whole")
    good = drawn_request(interface, 4, np.random.default_rng(0))
    for column, value, feature in ((0, 5, "cat_0"), (3, 40, "cat_1"), (4, -1, "cat_2")):
        ids = good["categorical_features"].copy()
        ids[2, column] = value
        message = rf"\[{feature}\] \[has ids from 0 to its cardinality - 1, got\] \[{value}\] \[in"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            run(tmp_path / "sparse", categorical_features=ids)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            run(tmp_path / "whole", **{**good, "categorical_features": ids})
    for value in (np.nan, np.inf):
        numbers = good["numerical_features"].copy()
        numbers[1, 1] = value
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[num_1\] \[must be finite"):
            run(tmp_path / "whole", **{**good, "numerical_features": numbers})


def test_misplaced_zeros(tmp_path):
    _, trained = untrained.make("din", tmp_path)
    interface = interface_of(trained)
    write_sparse(interface, trained, tmp_path / "sparse")
    good = drawn_request(interface, 4, np.random.default_rng(0))
    good["positive_history"][2] = [[0, 0, 0, 4, 5, 6, 7], [0, 0, 0, 1, 1, 2, 2]]
    run(tmp_path / "sparse", **good)
    for feature, step, value, name in (
        (0, 4, 0, "past_item"),  # after an id
        (1, 6, 0, "past_category"),
        (1, 3, 0, "past_category"),  # in one history only
        (1, 2, 3, "past_category"),
    ):
        bad = {**good, "positive_history": good["positive_history"].copy()}
        bad["positive_history"][2, feature, step] = value
        message = rf"\[{name}.*\[has zeros only in front, .*, got\] \[{value}.*\[in rows\] \[2"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            run(tmp_path / "sparse", **bad)


def test_rows_with_fewer_ids(tmp_path):
    """An id of -1 marks an absent id: its vector is zeros, not the last row. Other negative ids are
    errors."""
    _, trained = untrained.make("dlrm", tmp_path)
    config = trained.config.replace(dataset_type="split_tfrecords")
    trained = dataclasses.replace(trained, config=config)
    interface = interface_of(trained)
    write_sparse(interface, trained, tmp_path / "sparse")
    ids = np.array([[1, 5, -1, 39, 2], [-1, -1, -1, -1, -1]])
    result = run(tmp_path / "sparse", categorical_features=ids)
    tables = whole_tables(trained)
    sum_of_two = tables["cat_1"][5] + tables["cat_1"][39]
    np.testing.assert_allclose(
        result[0], np.concatenate([tables["cat_0"][1], sum_of_two, tables["cat_2"][2]]), rtol=1e-6
    )
    assert not result[1].any()
    ids[0, 0] = -2
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[cat_0\].*\[-2\]"):
        run(tmp_path / "sparse", categorical_features=ids)
