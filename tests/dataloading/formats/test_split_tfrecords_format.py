"""Errors of split TFRecord data sets: format.json, length.json, folders, records."""

import json

import numpy as np
import pytest
import tensorflow as tf

from dataloading.formats.split_tfrecords.folder_format import Format, read_format
from dataloading.pipeline.ragged import Ragged, concatenate_samples, cut_samples, row_splits_of
from dataloading.spec.feature_spec import FeatureSpec
from tests.dataloading.formats.test_split_tfrecords import SPEC, open_samples, original, rows_of


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", "arrow", "format is 'arrow'; expected tfrecords"),
        ("dtype", "string", "dtype is 'string'; expected bool, float16"),
        ("multihot", 1, "multihot is 1; expected true or false"),
        ("feature_name", None, "feature_name .* expected a string"),
        ("num_features", -1, "num_features is -1; expected a whole number"),
        ("batches_per_file", 0, "batches_per_file is 0; expected"),
        ("hotness", "3", "hotness is '3'; expected null or a whole number"),
    ],
)
def test_format_json(tmp_path, key, value, message):
    messages = {"format": "tfrecords", "dtype": "int32", "multihot": True, "feature_name": "data"}
    messages |= {"num_features": 1, "batches_per_file": 2, "something": "else", key: value}
    (tmp_path / "format.json").write_text(json.dumps(messages))
    with pytest.raises(ValueError, match=rf"format.json: {message}"):
        read_format(tmp_path)


def test_format_json_of_both_writers(tmp_path):
    ours = Format("tfrecords", "int32", True, "data", 1, 4, prebatch=8, hotness=3)
    ours.write(tmp_path)
    assert read_format(tmp_path) == ours
    (tmp_path / "format.json").write_text(
        '{"format": "tfrecords", "dtype": "float16", "multihot": false, "feature_name": "data", '
        '"num_features": 13, "batches_per_file": 64}'
    )
    assert read_format(tmp_path) == Format("tfrecords", "float16", False, "data", 13, 64)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "format.json: expected JSON .* got .*No such file"),
        ("[1]", r"format.json: found \[1\]; expected a mapping"),
    ],
)
def test_files_without_a_format(tmp_path, content, message):
    if content is not None:
        (tmp_path / "format.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_format(tmp_path)


@pytest.fixture
def spec(tmp_path):
    """9 rows in prebatches of 4, a file each."""
    return original(tmp_path, rows_of(9))


def change_format(spec, folder, **changes):
    path = spec.base_directory / "train" / folder / "format.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("folder", "changes", "message"),
    [
        ("numerical", {"multihot": True}, "multihot is true and the chunk has the features x, y"),
        ("numerical", {"num_features": 3}, "3 values per row; the feature spec has 2 .features"),
        ("numerical", {"dtype": "uint16"}, "dtype is 'uint16'; expected bool, float16, float32"),
        ("numerical", {"dtype": "float32"}, "record 0 of file .* does not hold a serialized"),
        ("categorical_1", {"hotness": 2}, "2 values per row; the feature spec has 3 .features"),
        ("categorical_0", {"multihot": True}, r"does not hold a serialized tensor .* \(multihot"),
        ("categorical_0", {"feature_name": "ids"}, "does not hold .* as the bytes feature 'ids'"),
    ],
)
def test_format_that_differs_from_the_files(spec, folder, changes, message):
    change_format(spec, folder, **changes)
    with pytest.raises(ValueError, match=message):
        open_samples(spec, "train", 4)


def test_lengths(spec):
    length = spec.base_directory / "train/length.json"
    for content, message in (
        ("4", "length.json states 4 prebatches, and the files of feature 'label' have 3"),
        ("true", "length.json: found True; expected a whole number"),
        ("x", "length.json: expected JSON"),
    ):
        length.write_text(content)
        with pytest.raises(ValueError, match=message):
            open_samples(spec, "train", 4)
    length.unlink()  # not needed
    assert open_samples(spec, "train", 4).num_samples == 9


def test_folders(spec, tmp_path):
    train = spec.base_directory / "train"
    (train / "numerical/data_2.tfrecords").rename(train / "numerical/data_3.tfrecords")
    with pytest.raises(ValueError, match=r"numerical: file data_2.tfrecords is not there; the"):
        open_samples(spec, "train", 4)
    (train / "numerical/data_3.tfrecords").unlink()
    (train / "length.json").unlink()
    with pytest.raises(ValueError, match="'label' has 9 rows and feature 'x' has 8; expected"):
        open_samples(spec, "train", 4)
    empty = FeatureSpec.from_dict(SPEC, tmp_path / "nowhere", origin="f.yaml")
    message = "f.yaml: source_spec names no chunk of type tfrecord, and no folder next to it holds"
    with pytest.raises(ValueError, match=message):
        open_samples(empty, "train", 4)


def test_no_rows(tmp_path):
    spec = original(tmp_path, rows_of(1))
    for path in (tmp_path / "train").glob("*/data_0.tfrecords"):
        path.write_bytes(b"")
    (tmp_path / "train/length.json").write_text("0")
    with pytest.raises(ValueError, match="split 'train' has no rows"):
        open_samples(spec, "train", 4)


def test_files_of_one_chunk_in_two_folders(spec):
    chunk = {"type": "tfrecord", "features": [*SPEC["feature_spec"]], "files": ["a/b", "c/d"]}
    content = {**SPEC, "source_spec": {"train": [chunk]}}
    for file in ("a/b", "c/d"):
        (spec.base_directory / file).parent.mkdir()
        (spec.base_directory / file).touch()
    spec = FeatureSpec.from_dict(content, spec.base_directory)
    with pytest.raises(ValueError, match="expected files in one folder"):
        open_samples(spec, "train", 4)


def example(content: bytes | tf.train.Feature) -> bytes:
    feature = content
    if isinstance(content, bytes):
        feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[content]))
    features = tf.train.Features(feature={"data": feature})
    return tf.train.Example(features=features).SerializeToString()


def tensor(value, dtype) -> bytes:
    return tf.io.serialize_tensor(tf.constant(value, dtype)).numpy()


def multihot(values, splits, dtype=tf.int32) -> bytes:
    return example(tensor([tensor(values, tf.int32), tensor(splits, dtype)], tf.string))


NO_TENSOR = "record 0 of file 'train/categorical_0/data_0.tfrecords' .* does not hold a serialized"
INT64 = tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))
TWO = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"1", b"2"]))
CUT = tensor([1, 2], tf.int32)[:-4].replace(b"\x22\x08", b"\x22\x04")
NESTED = tensor([tensor([1], tf.int32)], tf.string)
# Complete records, with valid checksums, of other content.
MALFORMED = {
    "no message": (b"\x07", NO_TENSOR),
    "another kind of feature": (example(INT64), NO_TENSOR),
    "no tensor": (example(b"\x08\x63"), NO_TENSOR),
    "a cut tensor": (example(CUT), NO_TENSOR),
    "two tensors side by side": (example(TWO), NO_TENSOR),
    "tensors in tensors": (example(tensor([NESTED] * 2, tf.string)), NO_TENSOR),
    "float row splits": (multihot([1], [0.0, 1.0], tf.float32), "row splits are not a vector"),
    "no row splits": (multihot([1], [], tf.int32), "row splits are not a vector"),
    "splits from 1": (multihot([1, 1], [1, 2]), "row splits that do not lead from 0 to its 2 ids"),
    "falling splits": (multihot([1, 1], [0, 2, 1, 2]), "row splits that do not lead from 0"),
}


@pytest.mark.parametrize(("content", "message"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_records(tmp_path, content, message):
    features = {"many": SPEC["feature_spec"]["many"]}
    channels = {"numerical": [], "categorical": ["many"]}
    spec = FeatureSpec.from_dict(
        {"feature_spec": features, "source_spec": {}, "channel_spec": channels}, tmp_path
    )
    folder = tmp_path / "train/categorical_0"
    folder.mkdir(parents=True)
    Format("tfrecords", "int32", True, "data", 1).write(folder)
    with tf.io.TFRecordWriter(str(folder / "data_0.tfrecords")) as writer:
        writer.write(content)
    with pytest.raises(ValueError, match=message):
        open_samples(spec, "train", 4, with_labels=False)


def test_dense_prebatch_of_another_shape(spec):
    path = spec.base_directory / "train/numerical/data_2.tfrecords"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(example(tensor([1, 2], tf.float16)))
    with pytest.raises(ValueError, match=r"holds a prebatch of shape \[2\], not \(1, 2\)"):
        open_samples(spec, "train", 4)


def test_ragged_rows_by_hand():
    rows = Ragged.from_lengths(np.arange(1, 7, dtype=np.int16), np.array([2, 0, 1, 3]))
    cut = cut_samples(rows, 2, 4)
    assert (cut.values.tolist(), cut.row_splits.tolist()) == ([3, 4, 5, 6], [0, 1, 4])
    both = concatenate_samples([cut, rows])
    assert both.values.tolist() == [3, 4, 5, 6, 1, 2, 3, 4, 5, 6]
    assert both.row_splits.tolist() == [0, 1, 4, 6, 6, 7, 10]
    assert (both.values.dtype, both.row_splits.dtype) == (np.int16, np.int32)


def test_too_many_ids_for_row_splits_of_32_bits():
    with pytest.raises(ValueError, match=r"a batch has 2,147,483,648 ids .* Use a smaller batch"):
        row_splits_of(np.array([2**31 - 1, 1]))
