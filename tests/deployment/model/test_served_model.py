"""The served parts of every recipe: inputs of requests, lookups and dense part."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from dataloading.pipeline.batch import Inputs, RaggedIds
from deployment.client.drawn_requests import drawn_request
from deployment.model.served_model import POLICIES, DenseModel, request_arrays, serving_spec_of
from deployment.model.serving_spec import ServingSpec
from deployment.serving.interface import ServedFeature, ServedLookup, ServedTensor
from tests.deployment import untrained
from tests.deployment.reference import looked_up, whole_tables


def test_parts_of_clicks(tmp_path):
    _, trained = untrained.make("dlrm", tmp_path)
    numbers, ids = "numerical_features", "categorical_features"
    serving_spec = serving_spec_of(trained)
    assert serving_spec == ServingSpec(
        inputs=(ServedTensor(numbers, "float32", (2,)), ServedTensor(ids, "int64", (5,))),
        features=(
            ServedFeature("num_0", numbers, 0, 1, None, False),
            ServedFeature("num_1", numbers, 1, 1, None, False),
            ServedFeature("cat_0", ids, 0, 1, 5, False),
            ServedFeature("cat_1", ids, 1, 3, 40, False),
            ServedFeature("cat_2", ids, 4, 1, 9, False),
        ),
        lookups=(
            ServedLookup("cat_0", ids, 0, 1, "sum"),
            ServedLookup("cat_1", ids, 1, 3, "sum"),
            ServedLookup("cat_2", ids, 4, 1, "sum"),
        ),
        tables=(("cat_0", 5, 8), ("cat_1", 40, 8), ("cat_2", 9, 8)),
        dense_inputs=(numbers,),
    )
    assert serving_spec.width == 24
    records = trained._replace(config=trained.config.replace(dataset_type="split_tfrecords"))
    padded = {f.name: f.padded for f in serving_spec_of(records).features}
    assert padded == {"num_0": False, "num_1": False, "cat_0": True, "cat_1": True, "cat_2": True}


def test_parts_of_reduced_models(tmp_path):
    _, trained = untrained.make("dlrm_without_numericals", tmp_path / "a")
    serving_spec = serving_spec_of(trained)
    assert [tensor.name for tensor in serving_spec.inputs] == ["categorical_features"]
    assert serving_spec.dense_inputs == ()
    _, trained = untrained.make("dlrm_without_tables", tmp_path / "b")
    serving_spec = serving_spec_of(trained)
    assert [tensor.name for tensor in serving_spec.inputs] == ["numerical_features"]
    assert (serving_spec.width, serving_spec.lookups) == (0, ())


def test_narrow_ids_of_loader(tmp_path):
    _, trained = untrained.make("dlrm", tmp_path)
    ids = tuple(np.int8(column) for column in ([[4]], [[1, 2, 3]], [[8]]))
    arrays = request_arrays(serving_spec_of(trained), Inputs(np.zeros((1, 2)), ids))
    assert arrays["categorical_features"].dtype == np.int64
    assert arrays["categorical_features"].tolist() == [[4, 1, 2, 3, 8]]
    assert arrays["numerical_features"].dtype == np.float32


def test_parts_of_histories(tmp_path):
    _, trained = untrained.make("sim", tmp_path / "a")
    user, target, history = "user_features", "target_features", "positive_history"
    serving_spec = serving_spec_of(trained)
    assert serving_spec == ServingSpec(
        inputs=(
            ServedTensor(user, "int64", (1,)),
            ServedTensor(target, "int64", (2,)),
            ServedTensor(history, "int64", (2, 7)),
        ),
        features=(
            ServedFeature("user", user, 0, 1, 6, False),
            ServedFeature("item", target, 0, 1, 30, False),
            ServedFeature("past_item", history, 0, 7, 30, False),
            ServedFeature("category", target, 1, 1, 4, False),
            ServedFeature("past_category", history, 7, 7, 4, False),
        ),
        lookups=(
            ServedLookup("user", user, 0, 1, None),
            ServedLookup("item", target, 0, 1, None),
            ServedLookup("item", history, 0, 7, None),
            ServedLookup("category", target, 1, 1, None),
            ServedLookup("category", history, 7, 7, None),
        ),
        tables=(("user", 6, 4), ("item", 30, 4), ("category", 4, 4)),
        dense_inputs=(history,),
        histories=(history,),
    )
    assert serving_spec.width == (1 + 2 * 8) * 4
    _, trained = untrained.make("sim_of_hard_search", tmp_path / "b")
    assert serving_spec_of(trained).dense_inputs == (target, history)
    _, trained = untrained.make("no_history", tmp_path / "c")
    serving_spec = serving_spec_of(trained)
    assert [tensor.name for tensor in serving_spec.inputs] == [user, target]
    assert (serving_spec.dense_inputs, serving_spec.histories) == ((), ())
    assert "past_item" not in {feature.name for feature in serving_spec.features}


def test_parts_of_interactions(tmp_path):
    _, trained = untrained.make("neumf", tmp_path)
    serving_spec = serving_spec_of(trained)
    assert serving_spec.inputs == (
        ServedTensor("user", "int64", (1,)),
        ServedTensor("item", "int64", (1,)),
    )
    assert serving_spec.lookups == (
        ServedLookup("mf_user", "user", 0, 1, None),
        ServedLookup("mf_item", "item", 0, 1, None),
        ServedLookup("mlp_user", "user", 0, 1, None),
        ServedLookup("mlp_item", "item", 0, 1, None),
    )
    assert (serving_spec.width, serving_spec.dense_inputs) == (4 + 4 + 4 + 4, ())


def test_ids_of_rows_of_different_lengths(tmp_path):
    _, trained = untrained.make("dlrm", tmp_path)
    ragged = RaggedIds(np.array([7, 8, 9, 6], np.int32), np.array([0, 3, 3, 4], np.int32))
    one_each = np.array([[1], [2], [3]], np.int32)
    inputs = Inputs(np.zeros((3, 2), np.float32), (one_each, ragged, one_each))
    assert request_arrays(serving_spec_of(trained), inputs)["categorical_features"].tolist() == [
        [1, 7, 8, 9, 1],
        [2, -1, -1, -1, 2],
        [3, 6, -1, -1, 3],
    ]


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_lower_precision(precision, tmp_path):
    """Lowers the precision of activations alone: weights stay as trained, scores are close."""
    _, trained = untrained.make("dlrm", tmp_path)
    serving_spec = serving_spec_of(trained)
    dense = DenseModel(trained, POLICIES[precision])
    assert {weight.dtype for weight in dense.weights} == {tf.float32}
    arrays = drawn_request(serving_spec, 32, np.random.default_rng(0))
    inputs = looked_up(serving_spec, whole_tables(trained), arrays), arrays["numerical_features"]
    exact, result = DenseModel(trained).score(*inputs).numpy(), dense.score(*inputs)
    assert result.dtype == tf.float32
    difference = np.abs(result.numpy() - exact).max()
    assert 1e-6 < difference < {"fp16": 5e-3, "bf16": 4e-2}[precision]


def test_weights_of_scores(tmp_path):
    _, trained = untrained.make("sim", tmp_path)
    names = [weight.name for weight in DenseModel(trained).weights]
    assert names == sorted(names)
    assert "interest_evolution/gru/kernel:0" in names
    assert not [name for name in names if "auxiliary" in name or "stage_one" in name]


def test_damaged_checkpoint(tmp_path):
    _, trained = untrained.make("dlrm", tmp_path)
    shutil.rmtree(trained.path / "dense")
    with pytest.raises(ValueError, match="is missing or damaged.*no earlier one"):
        DenseModel(trained)


def test_weights_of_other_model(tmp_path):
    _, trained = untrained.make("dlrm", tmp_path)
    other = trained._replace(shape=untrained.make("dcnv2", tmp_path / "other")[1].shape)
    with pytest.raises(ValueError, match="is of another model"):
        DenseModel(other)
