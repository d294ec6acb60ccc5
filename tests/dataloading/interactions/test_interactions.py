"""Interactions and candidate lists in memory: their content, and errors of invalid ones."""

import dataclasses

import numpy as np
import pytest

from dataloading.interactions.stored import (
    read_candidate_lists,
    read_interactions,
    read_pairs,
    touched_keys,
)
from dataloading.spec.feature_spec import FeatureSpec
from tests.interaction_data import write_interactions

TRAIN = {"user": [0, 2, 1, 2], "item": [4, 0, 3, 1]}
TEST = {"user": [0, 0, 0, 2, 2, 2], "item": [1, 2, 1, 4, 3, 2], "label": [1, 0, 0, 0, 0, 1]}
LISTS_OF_3 = {"test_samples_per_series": 3}


def data_set(folder, train=TRAIN, test=TEST, metadata=LISTS_OF_3, **settings):
    splits = {"train": train, "test": test}
    return write_interactions(folder, 3, 5, splits, metadata, **settings)


def with_keys(spec: FeatureSpec, feature: str, **keys) -> FeatureSpec:
    content = spec.to_dict()
    content["feature_spec"][feature] |= keys
    return FeatureSpec.from_dict(content, spec.base_directory, origin="f.yaml")


def with_channels(spec: FeatureSpec, **channels) -> FeatureSpec:
    content = spec.to_dict()
    content["channel_spec"] |= channels
    return FeatureSpec.from_dict(content, spec.base_directory, origin="f.yaml")


@pytest.mark.parametrize("dtype", ["int64", "uint8"])
def test_rows_of_interactions(tmp_path, dtype):
    users, items = read_interactions(data_set(tmp_path, dtype=dtype), "train")
    assert users.tolist() == TRAIN["user"] and items.tolist() == TRAIN["item"]
    assert users.dtype == items.dtype == np.int32


def test_lists(tmp_path):
    users, items, labels = read_candidate_lists(data_set(tmp_path), "test")
    assert users.tolist() == [0, 2] and users.dtype == np.int32
    assert items.tolist() == [[1, 2, 1], [4, 3, 2]] and items.dtype == np.int32
    assert labels.tolist() == [[True, False, False], [False, False, True]]


def test_stored_labels_of_0(tmp_path):
    spec = data_set(tmp_path, TRAIN | {"label": [1, 1, 0, 1]})
    users, items = read_interactions(spec, "train")
    assert users.tolist() == [TRAIN["user"][i] for i in (0, 1, 3)]
    assert items.tolist() == [TRAIN["item"][i] for i in (0, 1, 3)]


def test_pairs_without_labels(tmp_path):
    spec = data_set(tmp_path)
    (tmp_path / "test/label_0.bin").unlink()
    users, items, labels = read_pairs(spec, "test")
    assert users.tolist() == TEST["user"] and labels is None
    assert items.tolist() == [[item] for item in TEST["item"]]


def test_touched_items_and_pairs_to_predict(tmp_path):
    splits = {"train": TRAIN, "test": TEST, "pairs": {"user": [0, 1], "item": [0, 1]}}
    spec = write_interactions(tmp_path, 3, 5, splits, LISTS_OF_3)
    touched = [1, 4, 8, 10, 11, 12]
    assert touched_keys(spec, "validation").tolist() == touched
    assert touched_keys(spec, "pairs").tolist() == [0, *touched[:2], 6, *touched[2:]]
    # Arguments of the evaluation.
    spec.metadata["validation_samples_per_series"] = 2
    spec.source_spec["validation"] = spec.source_spec["pairs"]
    with pytest.raises(ValueError, match="'validation_.*' is 2; expected the rows"):
        touched_keys(spec, "test")


def test_incomplete_lists(tmp_path):
    spec = data_set(tmp_path)
    with pytest.raises(ValueError, match="'test' holds candidate lists of 3 rows .*all of them"):
        read_interactions(spec, "test")
    spec.metadata["train_samples_per_series"] = 2
    with pytest.raises(ValueError, match="'train_samples_per_series' is 2; expected the rows"):
        read_interactions(spec, "train")


HERE = r"f\.yaml: split 'test': feature"


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"item": [1, 2, 1, 4, 5, 2]}, HERE + r" 'item': found 5 in row 4 \(row 4 of file "
         r"'test/item_0.bin', both counted from 0\); ids lie in \[0, 5\)"),
        ({"user": [0, 0, 0, 2, -1, 2]}, HERE + r" 'user': found -1 in row 4 .*\[0, 3\)"),
        ({"label": [1, 0, 0, 0, 0, 2]}, HERE + " 'label': found 2 in row 5 .*labels are 0 or 1"),
        ({"user": [0, 0, 0, 2, 1, 2]}, HERE + r" 'user': found 1 in row 4 \(row 4 of file "
         r"'test/user_0.bin', .*, and 2 in the row that begins its candidate list; the 3 rows"),
        ({"label": [1, 0, 0, 1, 0, 1]}, r"begins in row 3 \(row 3 of file 'test/label_0.bin'"),
        ({"label": [0, 0, 0, 0, 0, 1]}, r"begins in row 0 \(row 0 of .* has 0 labels of 1"),
    ],
    ids=["item", "user", "label", "two_users", "two_positives", "no_positive"],
)  # fmt: skip
def test_bad_lists(tmp_path, column, message):
    with pytest.raises(ValueError, match=message):
        read_candidate_lists(data_set(tmp_path, test=TEST | column), "test")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "'test': metadata: 'test_samples_per_series' is missing, and there is a label"),
        ({"test_samples_per_series": "3"}, "test_samples_per_series' is '3'; expected the rows"),
        ({"test_samples_per_series": 4}, "split 'test' has 6 rows, not a multiple of the 4"),
    ],
)
def test_bad_length_of_lists(tmp_path, metadata, message):
    with pytest.raises(ValueError, match=message):
        read_candidate_lists(data_set(tmp_path, metadata=metadata), "test")


def test_bad_interactions(tmp_path):
    with pytest.raises(ValueError, match="'item': found 9 in row 1 "):
        read_interactions(data_set(tmp_path, TRAIN | {"item": [4, 9, 3, 1]}), "train")
    with pytest.raises(ValueError, match="found 9 in row 1 .*labels are 0 or 1"):
        read_interactions(data_set(tmp_path, TRAIN | {"label": [1, 9, 1, 1]}), "train")
    with pytest.raises(ValueError, match="split 'train' has no rows"):
        read_interactions(data_set(tmp_path, {"user": [], "item": []}), "train")
    with pytest.raises(ValueError, match="split 'test' has no rows"):
        read_candidate_lists(data_set(tmp_path, test={name: [] for name in TEST}), "test")
    with pytest.raises(ValueError, match="has 4 rows and chunk 1 .* has 3"):
        read_interactions(data_set(tmp_path, TRAIN | {"item": [1, 2, 3]}), "train")
    spec = data_set(tmp_path)
    (tmp_path / "train/item_0.bin").unlink()
    with pytest.raises(ValueError, match="file 'train/item_0.bin' is not there"):
        read_interactions(spec, "train")


def test_bad_specs(tmp_path):
    spec = data_set(tmp_path)
    with pytest.raises(ValueError, match="users and items needs the split 'tset'"):
        read_interactions(spec, "tset")
    with pytest.raises(ValueError, match="feature 'item': cardinality is 2147483649; .* at most"):
        read_interactions(with_keys(spec, "item", dtype="int64", cardinality=2**31 + 1), "train")
    with pytest.raises(ValueError, match=r"channel 'item': 1 features \(item\) of \[2\] values"):
        read_interactions(with_keys(spec, "item", hotness=2), "train")
    with pytest.raises(ValueError, match=r"channel 'user': 2 features \(user, item\)"):
        read_interactions(with_channels(spec, user=["user", "item"], item=[]), "train")
    with pytest.raises(ValueError, match=r"channel 'label': 1 features \(label\) of \[2\]"):
        read_pairs(with_keys(spec, "label", hotness=2), "train")
    records = dataclasses.replace(spec, source_spec={"train": ({
        "type": "tfrecord", "features": ["user", "item"], "files": ["a"]},)})  # fmt: skip
    with pytest.raises(ValueError, match="type 'tfrecord'; a model of users and items reads split"):
        read_interactions(records, "train")
