"""The served parts of every recipe: inputs of requests, lookups and dense part."""

import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

from dataloading.pipeline.batch import Inputs, RaggedIds
from deployment.client.drawn_requests import drawn_request
from deployment.model.served_model import POLICIES, DenseModel, interface_of, request_arrays
from tests.deployment import untrained
from tests.deployment.reference import looked_up, whole_tables


def test_parts_of_histories(tmp_path):
    user, target, history = "user_features", "target_features", "positive_history"
    for name, inputs, dense_inputs in (
        ("sim", [user, target, history], (history,)),
        ("sim_of_hard_search", [user, target, history], (target, history)),
        ("no_history", [user, target], ()),
    ):
        _, trained = untrained.make(name, tmp_path / name)
        interface = interface_of(trained)
        assert [tensor.name for tensor in interface.inputs] == inputs
        assert interface.dense_inputs == dense_inputs
        has_history = "past_item" in {feature.name for feature in interface.features}
        assert has_history == bool(interface.histories) == (history in inputs)


def test_ids_of_loader(tmp_path):
    """Narrow ones, and rows of different lengths."""
    _, trained = untrained.make("dlrm", tmp_path)
    ids = tuple(np.int8(column) for column in ([[4]], [[1, 2, 3]], [[8]]))
    arrays = request_arrays(trained, interface_of(trained), Inputs(np.zeros((1, 2)), ids))
    assert arrays["categorical_features"].dtype == np.int64
    assert arrays["categorical_features"].tolist() == [[4, 1, 2, 3, 8]]
    assert arrays["numerical_features"].dtype == np.float32
    ragged = RaggedIds(np.array([7, 8, 9, 6], np.int32), np.array([0, 3, 3, 4], np.int32))
    one_each = np.array([[1], [2], [3]], np.int32)
    inputs = Inputs(np.zeros((3, 2), np.float32), (one_each, ragged, one_each))
    assert request_arrays(trained, interface_of(trained), inputs)[
        "categorical_features"
    ].tolist() == [[1, 7, 8, 9, 1], [2, -1, -1, -1, 2], [3, 6, -1, -1, 3]]


def test_lower_precision(tmp_path):
    """Lowers the precision of activations alone: weights stay as trained, scores are close."""
    _, trained = untrained.make("dlrm", tmp_path)
    interface = interface_of(trained)
    arrays = drawn_request(interface, 32, np.random.default_rng(0))
    inputs = looked_up(interface, whole_tables(trained), arrays), arrays["numerical_features"]
    exact = DenseModel(trained).score(*inputs).numpy()
    for precision, most in (("fp16", 5e-3), ("bf16", 4e-2)):
        dense = DenseModel(trained, POLICIES[precision])
        assert {weight.dtype for weight in dense.weights} == {tf.float32}
        result = dense.score(*inputs)
        assert result.dtype == tf.float32
        assert 1e-6 < np.abs(result.numpy() - exact).max() < most


def test_weights_of_other_model_and_none(tmp_path):
    _, trained = untrained.make("dlrm", tmp_path)
    other = dataclasses.replace(trained, shape=untrained.make("dcnv2", tmp_path / "other")[1].shape)
    with pytest.raises(ValueError, match="is of another model"):
        DenseModel(other)
    shutil.rmtree(trained.path / "dense")
    with pytest.raises(ValueError, match="is missing or damaged.*no earlier one"):
        DenseModel(trained)
