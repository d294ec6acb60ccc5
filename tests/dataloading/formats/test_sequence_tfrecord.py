"""Histories as batches: every row once, whatever the prebatches, batches, ranks, orders."""

import copy
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from dataloading.formats.sequence_tfrecord import decoded_reader
from dataloading.histories import dataset as sequence_dataset
from dataloading.histories.dataset import SequenceDataset
from dataloading.pipeline.batch import SequenceInputs
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.spec.history_channels import num_ids

LENGTH = 4  # of a history
CHANNELS = {
    "label": ["label"],
    "user_features": ["user"],
    "target_item_features": ["item", "cat"],
    "positive_history": ["item_pos", "cat_pos"],
    "negative_history": ["item_neg", "cat_neg"],
}
FEATURES = {
    "label": {"dtype": "bool"},
    "user": {"dtype": "int64", "cardinality": 400},
    "item": {"dtype": "int64", "cardinality": 70_000},
    "cat": {"dtype": "int64", "cardinality": 9},
    **{
        f"{kind}_{history}": {"dtype": "int64", "cardinality": size, "dimensions": [LENGTH]}
        for history in ("pos", "neg")
        for kind, size in (("item", 70_000), ("cat", 9))
    },
}


class Row(NamedTuple):
    label: int
    user: int
    item: int
    cat: int
    item_pos: tuple[int, ...]
    cat_pos: tuple[int, ...]
    item_neg: tuple[int, ...]
    cat_neg: tuple[int, ...]


def padded(ids) -> tuple[int, ...]:
    return (0,) * (LENGTH - len(ids)) + tuple(ids)


def rows_of(num_samples: int) -> list[Row]:
    """Row i asks user i about item 1000 i + 1 (1 to 3 bytes) after 0 to 4 others."""
    rows = []
    for i in range(num_samples):
        steps = range(i % (LENGTH + 1))
        rows.append(
            Row(
                i % 2,
                i,
                1000 * i + 1,
                1 + i % 8,
                padded([1000 * i + 2 + s for s in steps]),
                padded([1 + (i + s) % 8 for s in steps]),
                padded([60_000 + 10 * i + s for s in steps]),
                padded([8 - (i + s) % 8 for s in steps]),
            )
        )
    return rows


def example(rows: list[Row], leave_out: tuple[str, ...] = ()) -> bytes:
    features = {}
    for name in Row._fields:
        values = np.ravel([getattr(row, name) for row in rows]).tolist()
        if name not in leave_out:
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def spec_of(folder: Path, files=("train.tfrecord",), **changes) -> FeatureSpec:
    content = {
        "feature_spec": copy.deepcopy(FEATURES),
        "source_spec": {
            "train": [{"type": "tfrecord", "features": list(FEATURES), "files": list(files)}]
        },
        "channel_spec": copy.deepcopy(CHANNELS),
        "metadata": {},
    }
    return FeatureSpec.from_dict(content | changes, folder, origin="f.yaml")


def write(path: Path, records: list[bytes]) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


def stored(folder: Path, num_samples: int, prebatch: int = 1, **changes) -> FeatureSpec:
    """Writes a data set as the original does: a remainder file, no metadata of prebatches."""
    rows, whole = rows_of(num_samples), num_samples // prebatch * prebatch
    parts = [rows[start : start + prebatch] for start in range(0, whole, prebatch)]
    write(folder / "train.tfrecord", [example(part) for part in parts])
    write(folder / "remainder.tfrecord", [example(rows[whole:])] if whole < num_samples else [])
    return spec_of(folder, ("train.tfrecord", "remainder.tfrecord"), **changes)


def found(dataset) -> list[Row]:
    """Returns the rows of batches with all channels, without padding."""
    rows = []
    for batch in dataset:
        columns = [batch.labels, *(ids for channel in batch.inputs for ids in channel)]
        lists = [np.asarray(column).astype(int).tolist() for column in columns]
        for i in np.flatnonzero(batch.weights[:, 0] > 0):
            values = [tuple(column[i]) for column in lists]
            rows.append(Row(*(v[0] for v in values[:4]), *values[4:]))
    return rows


@pytest.fixture(scope="module")
def by_prebatch(tmp_path_factory) -> dict[int, FeatureSpec]:
    """Data sets of 45 rows, by the number of rows in a record."""
    return {
        prebatch: stored(tmp_path_factory.mktemp(f"of_{prebatch}"), 45, prebatch)
        for prebatch in (1, 4, 7, 64)
    }


@pytest.fixture
def small_windows(monkeypatch):
    """Shuffles mix 12 rows, and blocks of single rows have 3: 45 rows are several windows."""
    monkeypatch.setattr(sequence_dataset, "_WINDOW_SAMPLES", 12)
    monkeypatch.setattr(sequence_dataset, "_BLOCK_SAMPLES", 3)
    monkeypatch.setattr(decoded_reader, "_SAMPLES_AT_A_TIME", 5)


def test_batch(by_prebatch):
    """The third and fourth row by hand: dtypes, shapes, order of channels, padding, weights."""
    (batch,) = SequenceDataset(by_prebatch[4], "train", 2).dataset(0, 2).take(1)
    assert isinstance(batch.inputs, SequenceInputs)
    assert [len(channel) for channel in batch.inputs] == [1, 2, 2, 2]
    expected = SequenceInputs(
        user=([[2], [3]],),
        target=([[2001], [3001]], [[3], [4]]),
        positive=([[0, 0, 2002, 2003], [0, 3002, 3003, 3004]], [[0, 0, 3, 4], [0, 4, 5, 6]]),
        negative=(
            [[0, 0, 60_020, 60_021], [0, 60_030, 60_031, 60_032]],
            [[0, 0, 6, 5], [0, 5, 4, 3]],
        ),
    )
    for channel, right in zip(batch.inputs, expected, strict=True):
        assert all(ids.dtype == tf.int32 for ids in channel)
        assert tuple(ids.numpy().tolist() for ids in channel) == right
    assert batch.labels.dtype == batch.weights.dtype == tf.float32
    assert batch.labels.numpy().tolist() == [[0], [1]]
    assert batch.weights.numpy().tolist() == [[1], [1]]


def test_ids_of_two_preparations(tmp_path, by_prebatch):
    """NVIDIA's cardinality N stands for the ids 1 to N, ours for 0 to N - 1."""
    theirs = by_prebatch[4]
    assert (num_ids(theirs, "user"), num_ids(theirs, "item")) == (401, 70_001)
    ours = spec_of(tmp_path, metadata={"prebatch_train_size": 0})
    assert (num_ids(ours, "user"), num_ids(ours, "item")) == (400, 70_000)
    last = rows_of(1)[0]._replace(user=400, item=70_000)
    write(tmp_path / "train.tfrecord", [example([last])])
    assert found(SequenceDataset(spec_of(tmp_path), "train", 1).dataset()) == [last]
    with pytest.raises(ValueError, match=r"'item': found 70000; ids lie in \[0, 70000\)"):
        SequenceDataset(ours, "train", 1)


@pytest.mark.parametrize(("batch_size", "prebatch"), [(10, 7), (4, 64), (4, 1)])
def test_rows_of_an_epoch(by_prebatch, small_windows, prebatch, batch_size):
    """Batches that a prebatch divides, that divide it, and neither."""
    for settings in ({}, {"shuffle": True}):
        loader = SequenceDataset(by_prebatch[prebatch], "train", batch_size, **settings)
        assert (loader.num_samples, loader.num_batches) == (45, -(-45 // batch_size))
        rows = found(loader.dataset(epoch=1))
        assert sorted(rows, key=lambda row: row.user) == rows_of(45)
        assert (rows == rows_of(45)) == ("shuffle" not in settings)


@pytest.mark.parametrize("world_size", [1, 2])
def test_drop_remainder(by_prebatch, small_windows, world_size):
    settings = {"shuffle": True, "drop_remainder": True, "world_size": world_size}
    loaders = [
        SequenceDataset(by_prebatch[4], "train", 12, rank=rank, **settings)
        for rank in range(world_size)
    ]
    assert {(loader.num_samples, loader.num_batches) for loader in loaders} == {(36, 3)}
    users = [{row.user for loader in loaders for row in found(loader.dataset(e))} for e in range(2)]
    assert [len(users) for users in users] == [36, 36] and users[0] != users[1]
    with pytest.raises(ValueError, match="45 rows, fewer than the global batch of 46, and drop_r"):
        SequenceDataset(by_prebatch[4], "train", 46, drop_remainder=True)


def test_repeat_count(by_prebatch, small_windows):
    """An epoch of three passes: a batch may hold rows of two; each pass has its own order."""
    loader = SequenceDataset(by_prebatch[7], "train", 20, shuffle=True, repeat_count=3)
    assert (loader.num_samples, loader.num_batches) == (135, 7)
    rows = found(loader.dataset(1))
    passes = [rows[:45], rows[45:90], rows[90:]]
    assert all(sorted(p, key=lambda row: row.user) == rows_of(45) for p in passes)
    assert passes[0] != passes[1] != passes[2]
    assert found(loader.dataset(1, start_sample=60)) == rows[60:]
    again = SequenceDataset(by_prebatch[7], "train", 45, shuffle=True)
    assert found(again.dataset(3)) == passes[0], "epochs of one pass continue in the same order"


def test_without_negatives_and_labels(tmp_path):
    """Features that are not requested may be absent from the spec and from the records."""
    absent = ("label", "item_neg", "cat_neg")
    write(tmp_path / "train.tfrecord", [example(rows_of(3), leave_out=absent)])
    features = [name for name in FEATURES if name not in absent]
    spec = spec_of(
        tmp_path,
        feature_spec={name: FEATURES[name] for name in features},
        source_spec={
            "train": [{"type": "tfrecord", "features": features, "files": ["train.tfrecord"]}]
        },
        channel_spec={k: v for k, v in CHANNELS.items() if k[:3] not in ("lab", "neg")},
    )
    loader = SequenceDataset(spec, "train", 3, with_labels=False, with_negatives=False)
    (batch,) = loader.dataset()
    assert batch.labels is None and batch.inputs.negative == ()
    assert batch.inputs.positive[0].numpy().tolist() == [list(r.item_pos) for r in rows_of(3)]
    for wanted in ("label", "negative_history"):
        with pytest.raises(ValueError, match=f"a sequence model needs the channel '{wanted}'"):
            SequenceDataset(
                spec, "train", 3, with_labels=wanted == "label", with_negatives=wanted != "label"
            )


def test_stored_negatives_that_are_not_read(by_prebatch):
    loader = SequenceDataset(by_prebatch[4], "train", 45, with_negatives=False)
    (batch,) = loader.dataset()
    assert batch.inputs.negative == ()
    sizes = {column.feature: column.dtype.itemsize for column in loader.columns}
    assert sizes == {"user": 2, "item": 4, "cat": 1, "item_pos": 4, "cat_pos": 1, "label": 1}


def test_ids_beyond_int32(tmp_path):
    features = copy.deepcopy(FEATURES)
    features["user"]["cardinality"] = 2**31 + 2
    spec = spec_of(tmp_path, feature_spec=features)
    write(tmp_path / "train.tfrecord", [example([rows_of(1)[0]._replace(user=2**31 + 1)])])
    (batch,) = SequenceDataset(spec, "train", 1).dataset()
    assert batch.inputs.user[0].dtype == tf.int64
    assert batch.inputs.user[0].numpy().tolist() == [[2**31 + 1]]
    assert batch.inputs.target[0].dtype == tf.int32


def test_short_histories_of_single_rows(tmp_path):
    """Histories stored without padding, some empty, are right-aligned like padded ones."""
    rows = rows_of(12)
    names = Row._fields[4:]
    short = [
        row._replace(**{n: tuple(v for v in getattr(row, n) if v) for n in names}) for row in rows
    ]
    assert short[0].item_pos == () and len(short[3].item_pos) == 3
    write(tmp_path / "train.tfrecord", [example([row]) for row in short])
    loader = SequenceDataset(spec_of(tmp_path), "train", 5)
    assert found(loader.dataset()) == rows


def test_irregular_files(tmp_path, monkeypatch):
    """The remainder first, then prebatches of 4, 3 and 4, an empty file, and single rows, decoded
    some at a time."""
    monkeypatch.setattr(decoded_reader, "_SAMPLES_AT_A_TIME", 6)
    rows = rows_of(19)
    files = {
        "a": [(0, 2)],
        "b": [(2, 6), (6, 9), (9, 13), (13, 14)],
        "c": [],
        "d": [(14, 17)],
        "e": [(17, 18), (18, 19)],
    }
    for name, parts in files.items():
        write(tmp_path / name, [example(rows[start:stop]) for start, stop in parts])
    for settings in ({}, {"shuffle": True}):
        loader = SequenceDataset(spec_of(tmp_path, list(files)), "train", 4, **settings)
        assert sorted(found(loader.dataset()), key=lambda row: row.user) == rows
        assert (loader._reader.num_records, loader._reader.prebatch) == (8, 4)


@pytest.mark.parametrize(
    ("prebatch", "metadata", "size", "message"),
    [
        (1, {"prebatch_train_size": 0}, 1, None),
        (4, {"prebatch_train_size": 4}, 4, None),
        (64, {"prebatch_train_size": 64}, 50, None),
        (4, {}, 8, "--prebatch_train_size is 8, and the records of split 'train' hold 4 rows"),
        (64, {}, 32, "--prebatch_train_size is 32, and the records of split 'train' hold 45"),
        (4, {"prebatch_train_size": 5}, None, "metadata: prebatch_train_size is 5, and the rec"),
        (4, {"prebatch_train_size": "4"}, None, "metadata: prebatch_train_size is '4', and the"),
    ],
)
def test_messages_about_prebatches(by_prebatch, prebatch, metadata, size, message):
    spec = by_prebatch[prebatch]
    spec = FeatureSpec.from_dict(spec.to_dict() | {"metadata": metadata}, spec.base_directory)
    if message is None:
        assert SequenceDataset(spec, "train", 4, prebatch_size=size).num_samples == 45
        return
    with pytest.raises(ValueError, match=message):
        SequenceDataset(spec, "train", 4, prebatch_size=size)


def test_flag_of_the_test_rows(by_prebatch):
    content = by_prebatch[4].to_dict()
    content["source_spec"] = {"test": content["source_spec"]["train"]}
    spec = FeatureSpec.from_dict(content, by_prebatch[4].base_directory)
    with pytest.raises(ValueError, match="--prebatch_test_size is 8, and the records of split 't"):
        SequenceDataset(spec, "test", 4, prebatch_size=8)
