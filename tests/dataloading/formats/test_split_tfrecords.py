"""Split TFRecords as batches: files as the original makes them, rows of any length, ranks."""

import json
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from dataloading.formats.open_chunk import TYPES_OF_FORMATS
from dataloading.formats.split_tfrecords.folder_format import spec_of_folders
from dataloading.formats.stored_dataset import StoredDataset
from dataloading.pipeline.batch import RaggedIds
from dataloading.spec.feature_spec import FeatureSpec

NAN = float("nan")


def open_samples(spec, *arguments, **options):
    """Opens split TFRecords, also of data sets whose feature spec does not name them."""
    types = TYPES_OF_FORMATS["split_tfrecords"]
    return StoredDataset(spec_of_folders(spec), *arguments, types=types, **options)


def serialized(prebatch, dtype: str, multihot: bool, splits_dtype=tf.int32) -> bytes:
    """The Example of a prebatch, made by TensorFlow alone, in the steps of the original."""
    if multihot:
        ragged = tf.ragged.constant(prebatch, dtype, 1, row_splits_dtype=splits_dtype)
        parts = tf.nest.flatten(ragged, expand_composites=True)
        content = tf.io.serialize_tensor(tf.stack([tf.io.serialize_tensor(p) for p in parts]))
    else:
        content = tf.io.serialize_tensor(tf.constant(prebatch, dtype))
    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[content.numpy()]))
    features = tf.train.Features(feature={"data": feature})
    return tf.train.Example(features=features).SerializeToString()


def write_folder(folder: Path, rows, dtype, *, prebatch=4, per_file=1, multihot=False, **more):
    """One folder of the original: a record every `prebatch` rows, a file every `per_file`."""
    folder.mkdir(parents=True)
    splits_dtype = more.pop("splits_dtype", tf.int32)
    messages = {"format": "tfrecords", "dtype": dtype, "multihot": multihot, "feature_name": "data"}
    messages |= {"num_features": 1, "batches_per_file": per_file, **more}
    (folder / "format.json").write_text(json.dumps(messages))
    records = [
        serialized(rows[start : start + prebatch], dtype, multihot, splits_dtype)
        for start in range(0, len(rows), prebatch)
    ]
    for file in range(0, len(records), per_file):
        path = folder / f"data_{file // per_file}.tfrecords"
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in records[file : file + per_file]:
                writer.write(record)
    (folder.parent / "length.json").write_text(str(len(records)))


class Row(NamedTuple):
    label: int
    numericals: tuple[float, ...]
    one: int
    many: tuple[int, ...]


def rows_of(num_samples: int) -> list[Row]:
    """Returns rows: row i has id i, i % 4 ids of the ragged feature, numerical values i and -i."""
    return [
        Row(i % 2, (i, -i), i, tuple((i + 7 * k) % 50 for k in range(i % 4)))
        for i in range(num_samples)
    ]


SPEC = {
    "feature_spec": {
        "label": {"dtype": "bool"},
        "x": {"dtype": "float16"},
        "y": {"dtype": "float16"},
        "one": {"dtype": "int16", "cardinality": 100},
        "many": {"dtype": "int32", "cardinality": 50, "hotness": 3},
    },
    "source_spec": None,
    "channel_spec": {"label": ["label"], "numerical": ["x", "y"], "categorical": ["one", "many"]},
    "metadata": {},
}


def original(folder: Path, rows: list[Row], content=SPEC, **layout) -> FeatureSpec:
    """Writes a data set as the original does; returns the spec that it stores with it."""
    train = folder / "train"
    write_folder(train / "label", [row.label for row in rows], "int8", **layout)
    numericals = [row.numericals for row in rows]
    write_folder(train / "numerical", numericals, "float16", num_features=2, **layout)
    write_folder(train / "categorical_0", [[row.one] for row in rows], "int32", **layout)
    many = [list(row.many) for row in rows]
    write_folder(train / "categorical_1", many, "int32", multihot=True, **layout)
    return FeatureSpec.from_dict(content, folder, origin="f.yaml")


def of(ids, length: int) -> list[tuple[int, ...]]:
    if isinstance(ids, RaggedIds):
        assert ids.row_splits.dtype == tf.int32 and ids.row_splits.shape == (length + 1,)
        rows = np.split(ids.values.numpy(), ids.row_splits.numpy()[1:-1])
        return [tuple(row.tolist()) for row in rows]
    return [tuple(row) for row in ids.numpy().tolist()]


def found(dataset) -> list[Row]:
    """Returns the rows of a dataset's batches, without padding."""
    rows = []
    for batch in dataset:
        length = len(batch.weights)
        one, many = (of(ids, length) for ids in batch.inputs.categorical)
        labels = batch.labels.numpy()[:, 0].astype(int).tolist()
        for i in np.flatnonzero(batch.weights.numpy()[:, 0] > 0):
            numericals = tuple(batch.inputs.numerical.numpy()[i].tolist())
            rows.append(Row(labels[i], numericals, *one[i], many[i]))
    return rows


SHUFFLED = {"shuffle": True, "seed": 3, "block_samples": 3, "window_samples": 12}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """45 rows in prebatches of 4, two of them a file: six files, the last prebatch has one row."""
    return original(tmp_path_factory.mktemp("stored"), rows_of(45), prebatch=4, per_file=2)


@pytest.mark.parametrize("order", [{}, SHUFFLED], ids=["file order", "shuffled"])
@pytest.mark.parametrize("batch_size", [3, 8])
def test_rows_by_batch_size(stored, order, batch_size):
    """Batches that a prebatch divides, that divide it, and neither."""
    loader = open_samples(stored, "train", batch_size, **order)
    assert (loader.num_samples, loader.num_batches) == (45, -(-45 // batch_size))
    rows = found(loader.dataset())
    assert sorted(rows, key=lambda row: row.one) == rows_of(45)
    assert (rows == rows_of(45)) == (not order)


def test_order_of_files(tmp_path):
    """11 files, so that data_10 comes before data_2 by name."""
    spec = original(tmp_path, rows_of(11), prebatch=1)
    assert found(open_samples(spec, "train", 10).dataset()) == rows_of(11)


def test_irregular_last_file_and_short_records(tmp_path):
    """Prebatches of 4, 1, 4 and 2 rows: the record of a row cannot be found by division."""
    spec = original(tmp_path, rows_of(11))
    columns = {
        "label": ([row.label for row in rows_of(11)], "int8"),
        "numerical": ([row.numericals for row in rows_of(11)], "float16"),
        "categorical_0": ([[row.one] for row in rows_of(11)], "int32"),
        "categorical_1": ([list(row.many) for row in rows_of(11)], "int32"),
    }
    for name, (values, dtype) in columns.items():
        for path in (tmp_path / "train" / name).glob("data_*"):
            path.unlink()
        with tf.io.TFRecordWriter(str(tmp_path / "train" / name / "data_0.tfrecords")) as writer:
            for start, stop in ((0, 4), (4, 5), (5, 9), (9, 11)):
                writer.write(serialized(values[start:stop], dtype, name == "categorical_1"))
    (tmp_path / "train/length.json").write_text("4")
    for order in ({}, SHUFFLED):
        rows = found(open_samples(spec, "train", 3, **order).dataset())
        assert sorted(rows, key=lambda row: row.one) == rows_of(11)


def test_ids_of_the_global_batch(stored, world_size=2):
    """Ranks share the batches of one rank; where a rank holds tables it has the ids of all of
    them, padding too. The last of the batches of 12 has 9 rows, which two ranks cannot halve."""
    settings = {"world_size": world_size, **SHUFFLED}
    own = [
        list(open_samples(stored, "train", 12, rank=rank, **settings).dataset())
        for rank in range(world_size)
    ]
    for index, batch in enumerate(open_samples(stored, "train", 12, **SHUFFLED).dataset()):
        assert [row for rank in own for row in found([rank[index]])] == found([batch])
    loader = open_samples(stored, "train", 12, rank=1, global_features=[1, 0, 1], **settings)
    for index, batch in enumerate(loader.dataset()):
        length = len(own[1][index].weights)
        for position, feature in enumerate([1, 0, 1]):
            parts = [of(theirs[index].inputs.categorical[feature], length) for theirs in own]
            ids = of(batch.inputs.categorical[position], length * world_size)
            assert ids == [row for part in parts for row in part]
        np.testing.assert_array_equal(batch.labels, own[1][index].labels)


def test_missing_files_of_features_that_are_not_read(tmp_path):
    spec = original(tmp_path, rows_of(9))
    (tmp_path / "train/categorical_0/data_1.tfrecords").unlink()
    with pytest.raises(ValueError, match="2 prebatches|data_1.tfrecords is not there"):
        open_samples(spec, "train", 4)
    named = {name: [name] for name in ("one", "many")} | {"label": ["label"], "x": ["x", "y"]}
    folders = {"one": "categorical_0", "many": "categorical_1", "x": "numerical", "label": "label"}
    files = [f"data_{k}.tfrecords" for k in range(3)]
    chunks = [
        {
            "type": "tfrecord",
            "features": features,
            "files": [f"train/{folders[key]}/{f}" for f in files],
        }
        for key, features in named.items()
    ]
    spec = FeatureSpec.from_dict({**SPEC, "source_spec": {"train": chunks}}, tmp_path)
    loader = open_samples(spec, "train", 4, world_size=2, global_features=[1])
    assert sum(len(of(b.inputs.categorical[0], 2 * len(b.weights))) for b in loader.dataset()) == 10
    assert open_samples(spec, "train", 4, global_features=()).num_samples == 9
    with pytest.raises(ValueError, match="'train/categorical_0/data_1.tfrecords' is not there"):
        open_samples(spec, "train", 4)


def test_spec_of_the_original_files(tmp_path):
    """The original leaves the source_spec of its split binaries; the folders count."""
    chunks = [
        {"type": "split_binary", "features": [name], "files": [f"{name}.bin"]}
        for name in SPEC["feature_spec"]
    ]
    content = {**SPEC, "source_spec": {"train": chunks, "gone": chunks}}
    spec = original(tmp_path, rows_of(9), content)
    assert found(open_samples(spec, "train", 4).dataset()) == rows_of(9)
    with pytest.raises(ValueError, match="split 'gone'; there are train"):
        open_samples(spec, "gone", 4)


@pytest.mark.parametrize(
    ("stored_dtype", "dtype", "expected"),
    [("int32", "int64", tf.int64), ("int64", "int16", tf.int32)],
)
def test_fixed_hotness_and_dtypes(tmp_path, stored_dtype, dtype, expected):
    """Our own files specify a fixed hotness: the ids are a dense tensor of the spec's width."""
    feature = {"dtype": dtype, "cardinality": 9, "hotness": 2}
    content = {
        "feature_spec": {"ids": feature},
        "source_spec": {},
        "channel_spec": {"numerical": [], "categorical": ["ids"]},
    }
    rows = [[1, 2], [3, 4], [5, 6], [7, 8], [0, 0]]
    folder = tmp_path / "train/categorical_0"
    write_folder(folder, rows, stored_dtype, multihot=True, hotness=2)
    spec = FeatureSpec.from_dict(content, tmp_path)
    for order in ({}, SHUFFLED):
        loader = open_samples(spec, "train", 8, with_labels=False, **order)
        (ids,) = loader.dataset().element_spec.inputs.categorical
        assert (ids.dtype, ids.shape.as_list()) == (expected, [None, 2])
        (batch,) = loader.dataset()
        assert sorted(of(batch.inputs.categorical[0], 5)) == sorted(map(tuple, rows))


def test_row_splits_of_64_bits(tmp_path):
    """Row splits of TensorFlow's default dtype, in several files."""
    spec = original(tmp_path, rows_of(9), splits_dtype=tf.int64)
    assert found(open_samples(spec, "train", 4).dataset()) == rows_of(9)


BAD_ROWS = {
    "id": (Row(0, (0, 0), 100, ()), r"'one': found 100 in row 6 \(row 2 of file 'train/cat"),
    "ragged id": (Row(0, (0, 0), 1, (3, 50)), r"'many': found 50 in row 6 .*'train/cat"),
    "negative id": (Row(0, (0, 0), 1, (-1,)), r"'many': found -1 in row 6 .*; ids lie in \[0"),
    "numerical": (Row(0, (0, NAN), 1, ()), r"'y': found nan in row 6 \(row 2 of file 'train/numer"),
    "label": (Row(2, (0, 0), 1, ()), r"'label': found 2 in row 6 .*label/data_1"),
}


@pytest.mark.parametrize(("row", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_positions_of_invalid_rows(tmp_path, row, message):
    rows = rows_of(9)
    rows[6] = row
    spec = original(tmp_path, rows)
    for order in ({}, SHUFFLED):
        loader = open_samples(spec, "train", 9, **order)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            list(loader.dataset())
        assert re.search(message, loader.failure)
        assert loader.failure.startswith("f.yaml: split 'train': feature")


def test_unequal_hotness_despite_the_format(tmp_path):
    spec = original(tmp_path, rows_of(9))
    path = tmp_path / "train/categorical_1/format.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "hotness": 3}))
    with pytest.raises(ValueError, match=r"has 0 ids in row 0; format.json states 3 for every row"):
        open_samples(spec, "train", 4)


def test_too_many_ids(tmp_path):
    rows = rows_of(9)
    rows[6] = Row(0, (0, 0), 1, (1,) * 4)
    message = r"'many': record 0 of .*data_1.tfrecords' .* has 4 ids in row 2; .* hotness 3"
    with pytest.raises(ValueError, match=message):
        open_samples(original(tmp_path, rows), "train", 9)


def test_changed_or_missing_bytes(tmp_path):
    """Every 31st byte of a file with two records: an error, or (never) the rows."""
    spec = original(tmp_path, rows_of(6), per_file=2)
    path = tmp_path / "train/categorical_1/data_0.tfrecords"
    content = path.read_bytes()
    for position in range(0, len(content), 31):
        changed = bytearray(content)
        changed[position] ^= 0x55
        for damaged in (bytes(changed), content[:position]):
            path.write_bytes(damaged)
            with pytest.raises(ValueError):
                open_samples(spec, "train", 6)
    path.write_bytes(content[:-6] + b"\x55" + content[-5:])
    with pytest.raises(ValueError, match="'many': file 'train/cat.*/data_0.tfrecords' is damaged"):
        open_samples(spec, "train", 6)
    path.write_bytes(content)
    assert open_samples(spec, "train", 6).stored_samples(0, 6)
