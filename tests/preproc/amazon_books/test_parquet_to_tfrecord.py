"""Conversion of Parquet rows of histories to TFRecords."""

import json
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from dataloading.histories.dataset import SequenceDataset
from dataloading.spec.feature_spec import FeatureSpec
from preproc.amazon_books import parquet_to_tfrecord
from preproc.histories import prepared_rows

NAMES = ["label", "user_id", "item_id_trgt", "cat_id_trgt"]
NAMES += ["item_id_pos", "cat_id_pos", "item_id_neg", "cat_id_neg"]
SIZES = {"uid": 49, "item": 299, "cat": 4}  # the largest ids
# Two rows in the order of the columns; histories as they are, without padding.
FIRST = [1, 7, 299, 4, [1, 2, 3], [1, 2, 3], [298, 200, 129], [4, 3, 2]]
SECOND = [0, 49, 5, 1, [], [], [], []]


def write_parquet(
    folder, splits: dict, *, sizes=SIZES, types=None, names=NAMES, per_file=2, **metadata
):
    """Writes rows of each split, `per_file` per file, and `metadata` with the cardinalities."""
    types = types or {}
    for split, rows in splits.items():
        (folder / split).mkdir(parents=True)
        for number, start in enumerate(range(0, max(1, len(rows)), per_file)):
            part = rows[start : start + per_file]
            arrays = []
            for index, name in enumerate(names):
                kind = pa.list_(pa.int64()) if name[-3:] in ("pos", "neg") else pa.int64()
                arrays.append(pa.array([row[index] for row in part], types.get(name, kind)))
            table = pa.Table.from_arrays(arrays, names)
            pq.write_table(table, folder / split / f"part.{number}.parquet")
    entries = [{"name": name, "value": value} for name, value in sizes.items()]
    (folder / "metadata.json").write_text(json.dumps({"cardinalities": entries, **metadata}))
    return folder


def convert(source, target, *flags, max_seq_len=4) -> int:
    """Returns the exit status; `max_seq_len=None` omits the flag."""
    paths = ["--amazon_dataset_path", str(source), "--tfrecord_output_dir", str(target)]
    length = [] if max_seq_len is None else ["--max_seq_len", str(max_seq_len)]
    return parquet_to_tfrecord.main([*paths, *length, *flags])


def read_by_tensorflow(folder, files, length=4) -> list[list]:
    """Reads rows with TensorFlow alone, each as a list in the order of `NAMES`."""
    rows = []
    for file in files:
        for record in tf.data.TFRecordDataset(str(folder / file)):
            wanted = {name: tf.io.VarLenFeature(tf.int64) for name in NAMES}
            parsed = tf.io.parse_example([record], wanted)
            columns = [tf.sparse.to_dense(parsed[name]).numpy()[0] for name in NAMES]
            for i in range(len(columns[0])):
                row = [int(column[i]) for column in columns[:4]]
                rows.append(row + [c[i * length : (i + 1) * length].tolist() for c in columns[4:]])
    return rows


def padded(row: list, length=4) -> list:
    histories = [([0] * length + history)[-length:] for history in row[4:]]
    return row[:4] + histories


def test_rows_of_a_foreign_folder(tmp_path, capsys):
    """Short and long lists, several files, 11 of them so that part.10 comes after part.9."""
    long = [1, 3, 9, 2, [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 1, 2], [6, 5, 4, 3, 2, 1], [1] * 6]
    train = [FIRST, SECOND, long] + [[i % 2, i, i, 1, [i], [2], [3], [4]] for i in range(1, 20)]
    source = write_parquet(tmp_path / "in", {"train": train, "test": [FIRST]})
    assert convert(source, tmp_path / "out", "--prebatch_train_size", "5") == 0
    messages = capsys.readouterr().out
    for part in ("train: 22 rows", "test: 1 rows", "of 4 longer histories"):
        assert messages.count(part) == 1
    files = ["train.tfrecord", "remainder_train.tfrecord"]
    assert read_by_tensorflow(tmp_path / "out", files) == [padded(row) for row in train]
    assert read_by_tensorflow(tmp_path / "out", ["test.tfrecord"]) == [padded(FIRST)]
    spec = FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml")
    assert spec.channel_spec == {
        "label": ("label",),
        "user_features": ("user_id",),
        "target_item_features": ("item_id_trgt", "cat_id_trgt"),
        "positive_history": ("item_id_pos", "cat_id_pos"),
        "negative_history": ("item_id_neg", "cat_id_neg"),
    }
    ids = {"dtype": "int64", "cardinality": 300}
    assert spec.feature_spec["item_id_neg"] == {**ids, "dimensions": [4]}
    assert spec.feature_spec["item_id_trgt"] == ids
    assert spec.feature_spec["label"] == {"dtype": "bool"}
    assert spec.metadata == {"prebatch_train_size": 5, "prebatch_test_size": 0}
    assert {m: c[0].files for m, c in spec.source_spec.items()} == {
        "train": tuple(files),
        "test": ("test.tfrecord",),
    }


def test_validation_split_and_folder_names(tmp_path):
    splits = {"a": [FIRST], "b": [SECOND], "c": [FIRST, SECOND, FIRST]}
    source = write_parquet(tmp_path / "in", splits)
    (source / "metadata.json").rename(source / "sizes.json")
    flags = ["--train_split_dir", "a", "--test_split_dir", "b", "--validation_dir", "c"]
    flags += ["--metadata_file", "sizes.json", "--prebatch_test_size", "2"]
    assert convert(source, tmp_path / "out", *flags) == 0
    spec = FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml")
    assert set(spec.source_spec) == {"train", "test", "validation"}
    assert spec.metadata["prebatch_validation_size"] == 2
    files = ["validation.tfrecord", "remainder_validation.tfrecord"]
    rows = [padded(row) for row in splits["c"]]
    assert read_by_tensorflow(tmp_path / "out", files) == rows
    assert read_by_tensorflow(tmp_path / "out", files[:1]) == rows[:2]


@pytest.mark.parametrize(
    ("max_history", "max_seq_len", "length"), [(5, None, 5), (5, 3, 3), (None, None, 100)]
)
def test_length_of_histories(tmp_path, max_history, max_seq_len, length):
    """The default is the length in metadata.json; stored rows keep their padding."""
    row = changed(4, [0, 0, 7, 8, 9])
    row[5:] = [[0, 0, 1, 2, 3], [0, 0, 4, 5, 6], [0, 0, 1, 1, 1]]
    metadata = {} if max_history is None else {"max_history": max_history}
    rows = [row, row]
    source = write_parquet(tmp_path / "in", {"train": rows, "test": rows}, **metadata)
    assert convert(source, tmp_path / "out", max_seq_len=max_seq_len) == 0
    spec = FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml")
    assert spec.feature_spec["item_id_pos"]["dimensions"] == [length]
    result = read_by_tensorflow(tmp_path / "out", ["test.tfrecord"], length)
    assert result == [padded(row, length)] * 2


def test_original_data_set(tmp_path):
    """The cardinalities of NVIDIA's metadata are the largest ids."""
    last = [1, 3, 9, 2, [1, 9], [1, 2], [9, 4], [2, 1]]
    splits = {"train": [last], "test": [last]}
    sizes = {"uid": 3, "item": 9, "cat": 2}
    for name, largest in (("in", 3), ("fewer", 2)):
        source = write_parquet(tmp_path / name, splits, sizes=sizes | {"uid": largest})
        assert convert(source, tmp_path / f"{name}_out") == 0
    spec = FeatureSpec.from_yaml(tmp_path / "in_out/feature_spec.yaml")
    assert spec.cardinalities("user_features") == [4]
    assert spec.cardinalities("target_item_features") == [10, 3]
    batch = next(iter(SequenceDataset(spec, "train", 1).dataset()))
    assert [ids.numpy().tolist() for ids in batch.inputs.target] == [[[9]], [[2]]]
    spec = FeatureSpec.from_yaml(tmp_path / "fewer_out/feature_spec.yaml")
    with pytest.raises(ValueError, match="'user_id': found 3"):
        SequenceDataset(spec, "train", 1)


def test_other_numbers_of_features(tmp_path):
    """Cardinalities that are not of user features are of item features."""
    names = ["y", "item", "item_pos", "item_neg"]
    rows = [[1, 3, [2, 4], [9, 1]], [0, 2, [1], [5]]]
    source = write_parquet(
        tmp_path / "in", {"train": rows, "test": rows}, sizes={"item": 9}, names=names
    )
    assert convert(source, tmp_path / "out", "--number_of_user_features", "0") == 0
    spec = FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml")
    assert spec.channel_spec["user_features"] == () and spec.channel_spec["label"] == ("y",)
    assert spec.cardinalities("negative_history") == [10]


@pytest.mark.parametrize(
    "types",
    [
        {name: pa.large_list(pa.int32()) for name in NAMES[4:]},
        {name: pa.list_(pa.uint16(), 3) for name in NAMES[4:]},
        {"label": pa.float32(), "user_id": pa.int8(), "item_id_trgt": pa.uint64()},
        {"label": pa.bool_()},
    ],
    ids=["large lists", "fixed lists", "numbers", "bool"],
)
def test_other_types_of_columns(tmp_path, types):
    rows = [FIRST, [*SECOND[:4], *FIRST[4:]]]
    if types.get("label") == pa.bool_():
        rows = [[bool(row[0]), *row[1:]] for row in rows]
    source = write_parquet(tmp_path / "in", {"train": rows, "test": rows}, types=types)
    assert convert(source, tmp_path / "out") == 0
    assert read_by_tensorflow(tmp_path / "out", ["test.tfrecord"]) == [padded(row) for row in rows]


def test_pieces_of_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(prepared_rows, "_ROWS_AT_A_TIME", 3)
    rows = [
        [i % 2, i, i, 1, [i] * (i % 5), [2] * (i % 5), [3] * (i % 5), [4] * (i % 5)]
        for i in range(1, 11)
    ]
    source = write_parquet(tmp_path / "in", {"train": rows, "test": rows}, per_file=10)
    assert convert(source, tmp_path / "out", "--prebatch_test_size", "4") == 0
    for files in (["train.tfrecord"], ["test.tfrecord", "remainder_test.tfrecord"]):
        assert read_by_tensorflow(tmp_path / "out", files) == [padded(row) for row in rows]


def changed(index: int, value, row=FIRST) -> list:
    return [*row[:index], value, *row[index + 1 :]]


@pytest.fixture
def source(tmp_path):
    return write_parquet(tmp_path / "in", {"train": [FIRST, SECOND] * 2, "test": [FIRST]})


@pytest.fixture
def refused(tmp_path, capsys):
    """Converts a folder, which must fail with a message and leave nothing."""

    def run(source, message, *flags):
        assert convert(source, tmp_path / "out", *flags) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and message in error
        assert os.listdir(tmp_path) == ["in"]

    return run


@pytest.mark.parametrize(
    ("row", "types", "message"),
    [
        (changed(0, 0.5), {"label": pa.float32()}, "column 'label': expected whole numbers"),
        (changed(1, None), {}, "rows 0 to 1: column 'user_id': expected a value"),
        (changed(1, [1]), {"user_id": pa.list_(pa.int64())}, "'user_id': expected whole numbers"),
        (changed(4, None), {}, "column 'item_id_pos': expected a value"),
        (changed(4, [1, None, 3]), {}, "column 'item_id_pos': expected a value"),
        (changed(7, [0.5] * 3), {"cat_id_neg": pa.list_(pa.float32())}, "expected lists of whole"),
    ],
)
def test_bad_values(tmp_path, refused, row, types, message):
    rows = {"train": [row, row], "test": [row]}
    refused(write_parquet(tmp_path / "in", rows, types=types), message)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--number_of_item_features", "3"], "8 columns"),
        (["--number_of_user_features", "4", "--number_of_item_features", "1"], "of 3 features"),
        (["--number_of_user_features", "2"], "--number_of_user_features"),
        (["--prebatch_train_size", "-1"], "--prebatch_train_size"),
        (["--train_dir", "gone"], "gone"),
        (["--metadata_file", "gone.json"], "gone.json"),
    ],
)
def test_bad_flags(source, refused, flags, message):
    refused(source, message, *flags)


def no_file(source):
    for path in (source / "test").iterdir():
        path.rename(path.with_suffix(".txt"))


def no_rows(source):
    path = source / "test/part.0.parquet"
    pq.write_table(pq.read_table(path)[:0], path)


def other_columns(source):
    path = source / "train/part.1.parquet"
    pq.write_table(pq.read_table(path).select([0, 2, 1, *range(3, 8)]), path)


def twice(source):
    path = source / "train/part.0.parquet"
    pq.write_table(pq.read_table(path).rename_columns([*NAMES[:7], "cat_id_pos"]), path)


def damaged(source):
    path = source / "train/part.0.parquet"
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    path.write_bytes(content)


def metadata(text):
    return lambda source: (source / "metadata.json").write_text(text)


ONE = '{"name": "a", "value": 1}'


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (no_file, "part.0.txt: expected text"),
        (no_rows, "test has no rows"),
        (other_columns, "part.1.parquet has the columns"),
        (twice, "'cat_id_pos' and 'cat_id_pos'"),
        (damaged, "part.0.parquet is damaged"),
        (metadata("{"), "metadata.json"),
        (metadata('{"cardinalities": [{"name": "a", "value": 0}]}'), "metadata.json"),
        (metadata(f'{{"cardinalities": [{ONE}, {ONE}]}}'), "metadata.json"),
        (metadata(f'{{"cardinalities": [{ONE}], "max_history": 0}}'), "metadata.json"),
    ],
)
def test_wrong_folders(source, refused, spoil, message):
    spoil(source)
    refused(source, message)


def test_environment_without_tensorflow(source, refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    refused(source, "expected TensorFlow")
