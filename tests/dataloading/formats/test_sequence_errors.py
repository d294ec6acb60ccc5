"""Errors of data sets of histories: in the spec, when opened, and when read."""

import copy
import re

import pytest
import tensorflow as tf

from dataloading.histories.dataset import SequenceDataset
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.spec.history_channels import sequence_channels
from tests.dataloading.formats.test_sequence_tfrecord import (
    CHANNELS,
    FEATURES,
    LENGTH,
    example,
    rows_of,
    spec_of,
    stored,
    write,
)


def changed(feature: str, **keys) -> dict:
    features = copy.deepcopy(FEATURES)
    features[feature] |= keys
    return {"feature_spec": features}


def channels(**lists) -> dict:
    return {"channel_spec": CHANNELS | lists}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (channels(positive_history=["item_pos"]), "'positive_history' has 1 features (item_pos) "),
        (channels(negative_history=["cat_neg", "item_neg"]), "'cat_neg' of channel"),
        (changed("cat_pos", cardinality=8), "'cat_pos' of channel 'positive_history' has"),
        (changed("cat_neg", dimensions=[5]), "'cat_neg' has 5 values per row and feature"),
        (changed("user", hotness=2), "'user' of channel 'user_features' has 2 values per row"),
    ],
)
def test_invalid_channels(tmp_path, changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        sequence_channels(spec_of(tmp_path, **changes))


def test_id_without_a_cardinality(tmp_path):
    features = copy.deepcopy(FEATURES)
    del features["item_pos"]["cardinality"]
    with pytest.raises(ValueError, match="feature 'item_pos': cardinality is missing"):
        sequence_channels(spec_of(tmp_path, feature_spec=features))


@pytest.mark.parametrize(
    ("kind", "count", "message"),
    [
        ("csv", 1, "chunk 0: type 'csv'; a sequence model reads tfrecord"),
        ("tfrecord", 2, "split 'train' has 2 chunks; a sequence model reads one, whose records"),
    ],
)
def test_chunks_of_other_formats(tmp_path, kind, count, message):
    names = list(FEATURES)
    parts = [names] if count == 1 else [names[:1], names[1:]]
    chunks = [{"type": kind, "features": part, "files": [f"{part[0]}.x"]} for part in parts]
    with pytest.raises(ValueError, match=message):
        SequenceDataset(spec_of(tmp_path, source_spec={"train": chunks}), "train", 4)


def test_no_rows_and_no_file(tmp_path):
    write(tmp_path / "train.tfrecord", [])
    with pytest.raises(ValueError, match="f.yaml: source_spec: split 'train' has no rows"):
        SequenceDataset(spec_of(tmp_path), "train", 4)
    with pytest.raises(ValueError, match="file 'gone.tfrecord' is not there"):
        SequenceDataset(spec_of(tmp_path, ["gone.tfrecord"]), "train", 4)
    with pytest.raises(ValueError, match="needs the split 'test'; there are train"):
        SequenceDataset(spec_of(tmp_path), "test", 4)


def refused(spec: FeatureSpec, *messages: str) -> None:
    with pytest.raises(ValueError) as caught:
        SequenceDataset(spec, "train", 4)
    text = str(caught.value)
    assert all(message in text for message in messages), text
    assert text.startswith("f.yaml: split 'train'")


@pytest.mark.parametrize("prebatch", [1, 3])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"item": 70_001}, "feature 'item': found 70001; ids lie in [0, 70001)"),
        ({"item_neg": (0, 0, 70_001, 1)}, "feature 'item_neg': found 70001; ids lie in"),
        ({"label": 2}, "feature 'label': found 2; labels are 0 or 1"),
        ({"cat_pos": (1, 2, 3, 4, 5)}, "feature 'cat_pos' has {lengths}"),
        ({"cat": (1, 2)}, "feature 'cat' has {scalars}"),
        ({"item_pos": (0, 7, 0, 8), "cat_pos": (0, 7, 0, 8)}, "feature 'item_pos' has a 0 after"),
        ({"cat_neg": (0, 0, 0, 7)}, "only one of the features 'item_pos' and 'cat_neg' has a 0"),
    ],
)
def test_bad_values(tmp_path, prebatch, change, message):
    """Invalid values in the sixth row of nine."""
    rows = rows_of(9)
    rows[5] = rows[5]._replace(**change)
    parts = [rows[start : start + prebatch] for start in range(0, 9, prebatch)]

    def flat(part, name):
        values = [getattr(row, name) for row in part]
        return [v for value in values for v in (value if isinstance(value, tuple) else (value,))]

    records = []
    for part in parts:
        features = {
            name: tf.train.Feature(int64_list=tf.train.Int64List(value=flat(part, name)))
            for name in rows[0]._fields
        }
        record = tf.train.Example(features=tf.train.Features(feature=features))
        records.append(record.SerializeToString())
    write(tmp_path / "train.tfrecord", records)
    place = "record 5 of file 'train.tfrecord'" if prebatch == 1 else "record 1 of file 'train.tf"
    if prebatch > 1 and "{" not in message:  # of lengths all that is known is the record
        place = "row 2 of " + place
    lengths = "5 values; expected at most 4" if prebatch == 1 else "13 values; expected 4 for each"
    scalars = "2 values; expected 1 for each" if prebatch == 1 else "4 values; expected 1 for each"
    message = re.sub("{lengths}", lengths, re.sub("{scalars}", scalars, message))
    refused(spec_of(tmp_path), place, message)


def with_feature(record: bytes, name: str, feature: tf.train.Feature | None) -> bytes:
    parsed = tf.train.Example.FromString(record)
    del parsed.features.feature[name]
    if feature is not None:
        parsed.features.feature[name].CopyFrom(feature)
    return parsed.SerializeToString()


FLOATS = tf.train.Feature(float_list=tf.train.FloatList(value=[1.0] * LENGTH))


@pytest.mark.parametrize("number", [0, 2])  # when opened, and when read
@pytest.mark.parametrize(
    ("name", "feature", "message"),
    [
        ("item_pos", None, "has no values of feature 'item_pos'; it has cat, cat_neg, cat_pos, "),
        ("item", None, "has no values of feature 'item'; "),
        ("item_pos", FLOATS, "holds feature 'item_pos' as float_list; expected int64_list"),
    ],
)
def test_missing_features_and_other_types(tmp_path, number, name, feature, message):
    records = [example([row]) for row in rows_of(5)]
    records[number] = with_feature(records[number], name, feature)
    write(tmp_path / "train.tfrecord", records)
    refused(spec_of(tmp_path), f"record {number} of file 'train.tfrecord'", message)


def test_record_without_an_example(tmp_path):
    records = [example([row]) for row in rows_of(5)]
    write(tmp_path / "train.tfrecord", [*records[:3], b"\x0a\xff", *records[3:]])
    refused(spec_of(tmp_path), "record 3 of file 'train.tfrecord' (counted from 0) is not a tf.tr")


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b[:-1],
        lambda b: b"\x01" + b[1:],
        lambda b: b[:700] + bytes([b[700] ^ 1]) + b[701:],
        lambda b: b"no records\n",
    ],
)
def test_damaged_files(tmp_path, damage):
    stored(tmp_path, 9)
    path = tmp_path / "train.tfrecord"
    path.write_bytes(damage(path.read_bytes()))
    refused(spec_of(tmp_path), "file 'train.tfrecord' is damaged, cut off, or not a TFRecord file")
