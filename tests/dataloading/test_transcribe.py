"""`python -m dataloading.transcribe`: split binaries to split TFRecords and back, byte by byte."""

import filecmp
import json
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from dataloading import transcribe as tool
from dataloading.formats.stored_dataset import StoredDataset
from dataloading.spec.casts import cast_exactly
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.dataset import synthetic_spec, write_dataset
from dataloading.synthetic.rows import SPLITS, stored_spec
from tests.dataloading.formats.test_split_tfrecords import (
    Row,
    found,
    open_samples,
    original,
    rows_of,
)
from tests.preproc.contents import contents


def transcribe(source, target, *more) -> int:
    return tool.main(
        ["--src_dataset_path", str(source), "--dst_dataset_path", str(target), *map(str, more)]
    )


def wide_spec() -> FeatureSpec:
    """Each dtype that may be stored, numerical features of two of them."""
    content = synthetic_spec([5, 300, 9, 70_000], hotness=[1, 3, 2, 1], num_numerical=3).to_dict()
    content["feature_spec"]["cat_2"]["dtype"] = "int64"
    content["feature_spec"]["num_1"]["dtype"] = "float64"
    content["feature_spec"]["num_2"]["dtype"] = "float64"
    return stored_spec(content["feature_spec"], content["channel_spec"], SPLITS)


@pytest.fixture(scope="module")
def binaries(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("binaries") / "rows"
    write_dataset(folder, wide_spec(), {"train": 100, "validation": 30, "test": 1})
    (folder / "vocabulary").mkdir()
    (folder / "vocabulary/cat_0.tsv").write_text("a\t1\n")
    return folder


@pytest.mark.parametrize(
    ("batch", "prebatch", "per_file", "num_files"),
    [(7, 10, 4, 3), (64, 16, 3, 3), (1, 1000, None, 1)],
)
def test_round_trip(binaries, tmp_path, batch, prebatch, per_file, num_files):
    more = ("--dst_batches_per_file", per_file) if per_file else ()
    flags = ("--src_batch_size", batch, "--dst_prebatch_size", prebatch)
    assert transcribe(binaries, tmp_path / "records", *flags, *more) == 0
    assert len(list((tmp_path / "records/train/categorical_1").glob("data_*"))) == num_files
    length = json.loads((tmp_path / "records/train/length.json").read_text())
    assert length == -(-100 // prebatch)
    back = ("--src_dataset_type", "split_tfrecords", "--dst_dataset_type", "tf_raw")
    assert transcribe(tmp_path / "records", tmp_path / "back", *back, "--src_batch_size", 11) == 0
    assert contents(tmp_path / "back") == contents(binaries)
    assert not list(tmp_path.glob(".*")), "nothing is left over"


def test_records_of_records(tmp_path):
    """Ragged rows in other prebatches; nothing else differs."""
    original(tmp_path / "first", rows_of(45)).to_yaml(tmp_path / "first/feature_spec.yaml")
    kind = ("--src_dataset_type", "split_tfrecords", "--dst_prebatch_size", 10)
    assert transcribe(tmp_path / "first", tmp_path / "second", *kind, "--src_batch_size", 7) == 0
    spec = FeatureSpec.from_yaml(tmp_path / "second/feature_spec.yaml")
    assert spec.source_spec["train"][3].files == ("train/categorical_1/data_0.tfrecords",)
    assert found(open_samples(spec, "train", 8).dataset()) == rows_of(45)
    properties = json.loads((tmp_path / "second/train/categorical_1/format.json").read_text())
    assert (properties["multihot"], properties["hotness"], properties["dtype"]) == (
        True,
        None,
        "int32",
    )


def read_as_the_original(folder: Path, name: str, rows: int):
    """Reads all prebatches of a folder by TensorFlow's reader and parsers, like the original."""
    properties = json.loads((folder / name / "format.json").read_text())
    feature = {properties["feature_name"]: tf.io.FixedLenFeature([], tf.string)}
    tensors = []
    for record in tf.data.TFRecordDataset(str(folder / name / "data_0.tfrecords")):
        content = tf.io.parse_single_example(record, feature)[properties["feature_name"]]
        if properties["multihot"]:
            kind = tf.RaggedTensorSpec([rows, None], tf.int32, 1, tf.int32)
            parts = tf.io.parse_tensor(content, tf.string)
            specs = tf.nest.flatten(kind, expand_composites=True)
            parts = [tf.io.parse_tensor(p, s.dtype) for p, s in zip(parts, specs, strict=True)]
            tensors.append(tf.nest.pack_sequence_as(kind, parts, expand_composites=True))
        else:
            tensor = tf.io.parse_tensor(content, properties["dtype"])
            tensors.append(tf.reshape(tensor, [rows, properties["num_features"]]))
    return tf.concat(tensors, 0)


def test_records_read_by_the_original(tmp_path):
    spec = write_dataset(
        tmp_path / "rows", synthetic_spec([5, 300], [1, 3], num_numerical=2), {"train": 40}
    )
    assert transcribe(tmp_path / "rows", tmp_path / "records", "--dst_prebatch_size", 10) == 0
    (batch,) = StoredDataset(spec, "train", 40).dataset()
    train = tmp_path / "records/train"
    formats = {
        name: json.loads((train / name / "format.json").read_text())["dtype"]
        for name in ("label", "numerical", "categorical_0", "categorical_1")
    }
    assert list(formats.values()) == ["int8", "float16", "int32", "int32"]
    np.testing.assert_array_equal(read_as_the_original(train, "label", 10), batch.labels)
    numerical = read_as_the_original(train, "numerical", 10)
    np.testing.assert_array_equal(tf.cast(numerical, tf.float32), batch.inputs.numerical)
    one, many = batch.inputs.categorical
    np.testing.assert_array_equal(read_as_the_original(train, "categorical_0", 10), one)
    assert read_as_the_original(train, "categorical_1", 10).to_list() == many.numpy().tolist()
    assert json.loads((train / "length.json").read_text()) == 4


TO_BINARIES = ("--src_dataset_type", "split_tfrecords", "--dst_dataset_type", "tf_raw")


def test_ragged_rows_of_one_length(tmp_path):
    rows = [Row(i % 2, (i, -i), i, (i, 49 - i)) for i in range(9)]
    original(tmp_path / "first", rows).to_yaml(tmp_path / "first/feature_spec.yaml")
    assert transcribe(tmp_path / "first", tmp_path / "second", *TO_BINARIES) == 0
    spec = FeatureSpec.from_yaml(tmp_path / "second/feature_spec.yaml")
    assert spec.hotness("many") == 2
    assert (tmp_path / "second/train/cat_1.bin").stat().st_size == 9 * 2 * 4
    batches = StoredDataset(spec, "train", 4).dataset()
    rows_found = [tuple(r) for b in batches for r in b.inputs.categorical[1].numpy().tolist()]
    assert rows_found == [row.many for row in rows]


@pytest.mark.parametrize(
    ("first", "row", "others"), [((), 0, 3), ((1, 2), 2, 2)], ids=["none at first", "others later"]
)
def test_rows_of_different_length(tmp_path, capsys, first, row, others):
    rows = [Row(0, (0, 0), 1, ids) for ids in (first, (1, 2), (1,))]
    original(tmp_path / "first", rows).to_yaml(tmp_path / "first/feature_spec.yaml")
    assert transcribe(tmp_path / "first", tmp_path / "second", *TO_BINARIES) == 2
    message = rf"feature 'many': row {row} has \d ids, others have {others}; .* keep the data"
    assert re.search(message, capsys.readouterr().err)
    assert [path.name for path in tmp_path.iterdir()] == ["first"], "nothing is left over"


def test_rows_without_labels_and_features_without_channels(tmp_path, capsys):
    content = wide_spec().to_dict()
    content["source_spec"] = {"test": content["source_spec"]["test"]}
    content["channel_spec"]["categorical"] = ["cat_3", "cat_0", "cat_1"]
    spec = write_dataset(tmp_path / "made", wide_spec(), {"test": 8})
    content["source_spec"]["test"] = [
        c for c in content["source_spec"]["test"] if c["features"] != ["label"]
    ]
    spec = FeatureSpec.from_dict(content, spec.base_directory)
    spec.to_yaml(tmp_path / "made/feature_spec.yaml")
    assert transcribe(tmp_path / "made", tmp_path / "records") == 0
    assert "left out, because no channel has them: cat_2" in capsys.readouterr().out
    records = FeatureSpec.from_yaml(tmp_path / "records/feature_spec.yaml")
    for loader in (
        StoredDataset(spec, "test", 8, with_labels=False),
        open_samples(records, "test", 8, with_labels=False),
    ):
        (batch,) = loader.dataset()
        assert batch.labels is None and [i.shape[1] for i in batch.inputs.categorical] == [1, 1, 3]
    assert transcribe(tmp_path / "records", tmp_path / "back", *TO_BINARIES) == 0
    assert not (tmp_path / "back/test/label.bin").exists()
    for left, right in (("cat_3", "cat_0"), ("cat_0", "cat_1"), ("numerical_1", "numerical_1")):
        one, other = tmp_path / f"made/test/{left}.bin", tmp_path / f"back/test/{right}.bin"
        assert filecmp.cmp(one, other, shallow=False)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([[0.5], [1e5]], np.float16),  # would become infinite
        ([[0], [4_294_967_301]], np.int32),
        (np.array([[0], [2**63]], np.uint64), np.int64),
        ([[0], [2**53 + 1]], np.float64),
        ([[0], [2]], bool),
        (np.array([[0], [np.inf]], np.float32), np.float16),
    ],
)
def test_values_beyond_a_dtype(values, dtype):
    values = np.array(values)
    with pytest.raises(ValueError, match="row 1, value 0: "):
        cast_exactly(values, dtype, lambda row, position: f"row {row}, value {position}")
    cast = cast_exactly(values[:1], dtype, None)
    assert cast.dtype == dtype and cast == values[0]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--src_batch_size", 0), "--src_batch_size: expected at least 1, got 0"),
        (("--dst_dataset_type", "tf_raw", "--dst_prebatch_size", 4), "--dst_prebatch_size is only"),
        (("--dst_feature_spec", "a/b.yaml"), "--dst_feature_spec is a/b.yaml; expected a file"),
        (("--src_feature_spec", "no.yaml"), "no.yaml: the file does not exist"),
        (("--src_dataset_type", "split_tfrecords"), "source_spec names no chunk of type tfrecord"),
    ],
)
def test_invalid_flags(binaries, tmp_path, capsys, flags, message):
    assert transcribe(binaries, tmp_path / "new", *flags) == 2
    assert re.search(f"^error: .*{message}", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_folders_with_other_files(binaries, capsys):
    before = contents(binaries)
    assert transcribe(binaries, binaries) == 2
    assert "exists and is not an empty folder" in capsys.readouterr().err
    assert contents(binaries) == before


# No file can be longer than 500 bytes, as where a disk is full.
LIMITED = """
import os, resource, runpy, sys
sys.path.insert(0, os.getcwd())
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
runpy.run_module("dataloading.transcribe", run_name="__main__", alter_sys=True)
"""


@pytest.mark.quick("on the way", "split binaries")
@pytest.mark.parametrize(
    ("kind", "file", "prebatch"),
    [
        pytest.param("split_tfrecords", r"train/\w+/data_0.tfrecords", 100, id="at the end"),
        pytest.param("split_tfrecords", r"train/\w+/data_0.tfrecords", 20, id="on the way"),
        pytest.param("tf_raw", r"train/\w+.bin", 20, id="split binaries"),
    ],
)
def test_full_disk(binaries, tmp_path, run_script, kind, file, prebatch):
    """In a process of its own: what pytest writes may be a long file."""
    (tmp_path / "limited.py").write_text(LIMITED)
    flags = ["--src_dataset_path", binaries, "--dst_dataset_path", tmp_path / "new"]
    flags += ["--dst_dataset_type", kind, "--src_batch_size", prebatch]
    if kind == "split_tfrecords":
        flags += ["--dst_prebatch_size", prebatch]
    done = run_script(tmp_path / "limited.py", *flags)
    assert done.returncode == 2
    error = done.stderr.splitlines()[-1]
    assert re.match(rf"error: \S*{file} could not be written: .*Is the disk full", error), error
    assert [path.name for path in tmp_path.iterdir()] == ["limited.py"]
