"""Rows without labels: allowed for predictions, rejected by training and evaluation."""

import numpy as np
import pytest
import tensorflow as tf

from dataloading.formats.stored_dataset import StoredDataset
from dataloading.spec.feature_spec import FeatureSpec

NUM_ROWS = 13


def content(with_labels: str = "stored") -> dict:
    """Returns a spec of two numerical features, two ids, and labels that are `stored`, of a file
    that is `absent`, in no chunk of the split (`no_chunk`), or in no section (`unknown`)."""
    spec = {
        "feature_spec": {
            "x": {"dtype": "float32"},
            "y": {"dtype": "float16"},
            "id": {"dtype": "int32", "cardinality": NUM_ROWS},
            "tags": {"dtype": "int8", "cardinality": 100, "hotness": 2},
            "label": {"dtype": "bool"},
        },
        "source_spec": {
            "test": [
                {"type": "split_binary", "features": [name], "files": [f"{name}.bin"]}
                for name in ("x", "y", "id", "tags", "label")
            ]
        },
        "channel_spec": {
            "numerical": ["x", "y"],
            "categorical": ["id", "tags"],
            "label": ["label"],
        },
    }
    if with_labels in ("no_chunk", "unknown"):
        del spec["source_spec"]["test"][-1]
    if with_labels == "unknown":
        del spec["feature_spec"]["label"], spec["channel_spec"]["label"]
    return spec


@pytest.fixture
def stored(tmp_path):
    """`stored(with_labels)`: the spec of `NUM_ROWS` rows, row i with x = i, y = i / 2, id i."""

    def make(with_labels: str = "stored") -> FeatureSpec:
        rows = np.arange(NUM_ROWS)
        rows.astype(np.float32).tofile(tmp_path / "x.bin")
        (rows / 2).astype(np.float16).tofile(tmp_path / "y.bin")
        rows.astype(np.int32).tofile(tmp_path / "id.bin")
        np.stack([rows, 2 * rows], 1).astype(np.int8).tofile(tmp_path / "tags.bin")
        (rows % 2 == 1).tofile(tmp_path / "label.bin")
        if with_labels != "stored":
            (tmp_path / "label.bin").unlink()
        return FeatureSpec.from_dict(content(with_labels), tmp_path, origin="f.yaml")

    return make


def assert_same_but_for_labels(found: list, expected: list) -> None:
    for batch, whole in zip(found, expected, strict=True):
        assert batch.labels is None and whole.labels is not None
        np.testing.assert_array_equal(batch.inputs.numerical, whole.inputs.numerical)
        for ids, theirs in zip(batch.inputs.categorical, whole.inputs.categorical, strict=True):
            assert ids.dtype == theirs.dtype
            np.testing.assert_array_equal(ids, theirs)
        np.testing.assert_array_equal(batch.weights, whole.weights)


@pytest.mark.parametrize(
    ("labels", "shuffle", "global_features"),
    [
        *(("stored", False, None), ("absent", False, [1, 0, 1]), ("no_chunk", True, None)),
        *(("unknown", True, [1, 0, 1]), ("unknown", False, [])),
    ],
)
def test_inputs_with_and_without_labels(stored, labels, shuffle, global_features):
    """Shares, padding, weights, ids of the whole batch and a start within the epoch."""
    settings = {"rank": 1, "world_size": 3, "global_features": global_features}
    settings["shuffle"] = shuffle
    expected = StoredDataset(stored(), "test", 6, **settings)
    whole = [list(expected.dataset(1, start_sample)) for start_sample in (0, 4)]
    spec = stored(labels)
    loader = StoredDataset(spec, "test", 6, with_labels=False, **settings)
    assert loader.num_samples == NUM_ROWS
    assert_same_but_for_labels(list(loader.dataset(1, 0)), whole[0])
    assert_same_but_for_labels(list(loader.dataset(1, 4)), whole[1])


def test_invalid_labels_that_are_not_read(stored):
    spec = stored()
    (spec.base_directory / "label.bin").write_bytes(b"\x07" * 5)  # too few, and not 0 or 1
    assert len(list(StoredDataset(spec, "test", 6, with_labels=False).dataset())) == 3
    with pytest.raises(ValueError, match="has 13 rows and chunk 4 .label.bin. has 5"):
        StoredDataset(spec, "test", 6)


def test_chunk_of_labels_and_ids(stored):
    spec = stored()
    table = np.stack(
        [np.arange(NUM_ROWS) % 2 + 5, np.arange(NUM_ROWS)], 1
    )  # 5 is not a valid label
    table.astype(np.int32).tofile(spec.base_directory / "both.bin")
    shared = content("no_chunk")
    shared["feature_spec"]["label"]["dtype"] = "int32"
    shared["source_spec"]["test"][2] |= {"features": ["label", "id"], "files": ["both.bin"]}
    spec = FeatureSpec.from_dict(shared, spec.base_directory)
    (batch,) = StoredDataset(spec, "test", 20, with_labels=False).dataset()
    assert batch.labels is None
    np.testing.assert_array_equal(batch.inputs.categorical[0][:, 0], np.arange(NUM_ROWS))
    with pytest.raises(tf.errors.InvalidArgumentError, match="'label': found 5 in row 0"):
        list(StoredDataset(spec, "test", 20).dataset())


def test_incomplete_files(stored):
    spec = stored("absent")
    (spec.base_directory / "y.bin").write_bytes(bytes(2 * 12))
    with pytest.raises(ValueError, match=r"\(x.bin\) has 13 rows and chunk 1 \(y.bin\) has 12"):
        StoredDataset(spec, "test", 6, with_labels=False)
    (spec.base_directory / "y.bin").unlink()
    with pytest.raises(ValueError, match="chunk 1: file 'y.bin' is not there"):
        StoredDataset(spec, "test", 6, with_labels=False)


@pytest.fixture
def ids_only(stored):
    """Rows of ids alone; the files of other features and of labels are not there."""
    folder = stored("absent").base_directory
    only = content("absent")
    only["channel_spec"]["numerical"] = []
    for file in ("x.bin", "y.bin"):
        (folder / file).unlink()
    return FeatureSpec.from_dict(only, folder, origin="f.yaml")


def test_row_count_of_a_rank_that_reads_nothing(ids_only):
    """Model-parallel input without numerical features and without tables on this rank."""
    (ids_only.base_directory / "id.bin").unlink()
    settings = {"with_labels": False, "global_features": [], "rank": 1, "world_size": 2}
    loader = StoredDataset(ids_only, "test", 8, **settings)
    assert loader.num_samples == NUM_ROWS
    first, last = loader.dataset()
    assert first.inputs.numerical.shape == (4, 0) and first.inputs.categorical == ()
    np.testing.assert_array_equal(first.weights, np.ones([4, 1]))
    np.testing.assert_allclose(last.weights, [[6 / 5], [6 / 5], [0]])  # 5 rows: 3 and 2


def test_unknown_row_count_of_a_rank(ids_only):
    for file in ("id.bin", "tags.bin"):
        (ids_only.base_directory / file).unlink()
    with pytest.raises(ValueError, match="split 'test': chunk 0: file 'x.bin' is not there"):
        StoredDataset(ids_only, "test", 8, with_labels=False, global_features=[])


PREDICT = r"; rows without labels can only be predicted \(--mode predict\)$"
UNLABELLED = {
    "absent": r"split 'test': chunk 4: file 'label.bin' is not there",
    "no_chunk": r"source_spec: split 'test': feature 'label' of channel 'label' is in no chunk; "
    r"the split_binary loader reads it, add the chunk that stores it" + PREDICT,
    "unknown": r"channel_spec: the split_binary loader needs the channel 'label'; there are "
    r"numerical, categorical" + PREDICT,
}


@pytest.mark.parametrize(("labels", "message"), UNLABELLED.items(), ids=UNLABELLED)
def test_missing_labels_in_training_and_evaluation(stored, labels, message):
    for global_features in (None, []):
        with pytest.raises(ValueError, match=message):
            StoredDataset(stored(labels), "test", 6, global_features=global_features)


@pytest.mark.parametrize("with_labels", [False, True])
def test_features_in_no_chunk(tmp_path, with_labels):
    lacking = content("no_chunk")
    del lacking["source_spec"]["test"][0]
    with pytest.raises(ValueError, match="feature 'x' is in no chunk; expected exactly one"):
        FeatureSpec.from_dict(lacking, tmp_path)
    # A feature that is a label and an input, too, is needed as an input.
    lacking["channel_spec"]["label"] = ["x"]
    lacking["channel_spec"]["numerical"] = ["x"] if not with_labels else ["y"]
    del lacking["feature_spec"]["label"]
    spec = FeatureSpec.from_dict(lacking, tmp_path)
    channel = "label" if with_labels else "numerical"
    with pytest.raises(ValueError, match=f"feature 'x' of channel '{channel}' is in no chunk"):
        StoredDataset(spec, "test", 6, with_labels=with_labels)
