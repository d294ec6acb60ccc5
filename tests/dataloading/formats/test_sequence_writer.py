"""Files of histories that we write, as TensorFlow reads them."""

import os

import numpy as np
import pytest
import tensorflow as tf

from dataloading.formats.sequence_tfrecord.writer import sequence_spec, writes_data_set
from dataloading.histories.dataset import SequenceDataset
from dataloading.spec.feature_spec import FeatureSpec
from runtime.files.outputs import MARKER
from tests.dataloading.formats.test_sequence_tfrecord import FEATURES, LENGTH, found, rows_of


def examples_of(path) -> list[dict[str, list[int]]]:
    """Each record's features, by TensorFlow's reader, which checks the checksums."""
    parsed = [
        tf.train.Example.FromString(record.numpy()).features.feature
        for record in tf.data.TFRecordDataset(str(path))
    ]
    return [{name: list(f[name].int64_list.value) for name in f} for f in parsed]


def spec_of(**prebatch_sizes):
    return sequence_spec(
        label="label",
        user={"user": 400},
        target={"item": 70_000, "cat": 9},
        positive=("item_pos", "cat_pos"),
        negative=("item_neg", "cat_neg"),
        history_length=LENGTH,
        prebatch_sizes=prebatch_sizes,
    )


def columns(rows) -> list[np.ndarray]:
    return [
        np.array([getattr(row, name) for row in rows], np.int32).reshape(len(rows), width)
        for name, width in zip(FEATURES, [1] * 4 + [LENGTH] * 4, strict=True)
    ]


@pytest.mark.parametrize(("prebatch", "records"), [(0, 23), (5, 4), (23, 1), (30, 0)])
def test_round_trip(tmp_path, prebatch, records):
    """23 rows, added in pieces that do not match the prebatches."""
    rows = rows_of(23)
    with writes_data_set(tmp_path / "data", spec_of(train=prebatch, test=2)) as writers:
        for start, stop in ((0, 7), (7, 7), (7, 8), (8, 23)):
            writers["train"].add(columns(rows[start:stop]))
        writers["test"].add(columns(rows[:2]))
        assert writers["train"].num_samples == 23
        assert not (tmp_path / "data").exists()
    spec = FeatureSpec.from_yaml(tmp_path / "data/feature_spec.yaml")
    assert spec.feature_spec == FEATURES and spec.metadata["prebatch_train_size"] == prebatch
    assert os.listdir(tmp_path) == ["data"]
    remainder = {"remainder_train.tfrecord"} if prebatch > 1 else set()
    assert {*os.listdir(tmp_path / "data")} == remainder | {
        MARKER,
        "feature_spec.yaml",
        "remainder_test.tfrecord",
        "test.tfrecord",
        "train.tfrecord",
    }
    stored = examples_of(tmp_path / "data/train.tfrecord")
    left = [e for name in remainder for e in examples_of(tmp_path / "data" / name)]
    assert len(stored) == records
    assert len(left) == (prebatch > 1 and 23 % prebatch > 0)
    size = max(1, prebatch)
    for number, record in enumerate([*stored, *left]):
        part = rows[number * size : (number + 1) * size]
        assert record == {n: np.ravel([getattr(r, n) for r in part]).tolist() for n in FEATURES}
    for split, right in (("train", rows), ("test", rows[:2])):
        loader = SequenceDataset(spec, split, 4, prebatch_size=None)
        assert found(loader.dataset()) == right


def test_full_disk(tmp_path):
    """Also where the disk is full only when the file is closed."""
    with (
        pytest.raises(OSError, match="train.tfrecord could not be written: .*No space left"),
        writes_data_set(tmp_path / "data", spec_of(train=0)) as writers,
    ):
        writer = writers["train"]
        writer._stream.close()
        writer._stream = tf.io.TFRecordWriter("/dev/full")
        writer.add(columns(rows_of(3)))


def test_file_of_two_splits():
    with pytest.raises(ValueError, match=r"file 'remainder_train\.tfrecord' .*'train'"):
        spec_of(train=5, remainder_train=0)
