"""Split binaries as batches: hand-made bytes, every row once, bad values."""

import re

import numpy as np
import pytest
import tensorflow as tf

from dataloading.formats.open_chunk import open_chunk
from dataloading.formats.stored_dataset import StoredDataset
from dataloading.pipeline.batch import Batch
from dataloading.spec.feature_spec import FeatureSpec


def write(folder, features: dict, arrays: dict, channels: dict, chunks: dict) -> FeatureSpec:
    """Writes arrays, one file each, with `chunks` file name -> features that it interleaves."""
    for file, array in arrays.items():
        array.tofile(folder / file)
    train = [
        {"type": "split_binary", "features": names, "files": files.split()}
        for files, names in chunks.items()
    ]
    content = {"feature_spec": features, "source_spec": {"train": train}, "channel_spec": channels}
    return FeatureSpec.from_dict(content, folder, origin="f.yaml")


def numbered(folder, num_samples: int, hotness: int = 1) -> FeatureSpec:
    """Writes rows: row i has numerical values i and i + 0.5, id i (hotness times), label i % 2."""
    rows = np.arange(num_samples)
    return write(
        folder,
        {
            "label": {"dtype": "bool"},
            "x": {"dtype": "float32"},
            "y": {"dtype": "float32"},
            "id": {"dtype": "int32", "cardinality": max(num_samples, 1), "hotness": hotness},
        },
        {
            "label.bin": rows % 2 == 1,
            "num.bin": np.stack([rows, rows + 0.5], 1).astype(np.float32),
            "id.bin": np.repeat(rows, hotness).astype(np.int32),
        },
        {"numerical": ["x", "y"], "categorical": ["id"], "label": ["label"]},
        {"label.bin": ["label"], "num.bin": ["x", "y"], "id.bin": ["id"]},
    )


def ids(dataset) -> list[int]:
    """The ids of the real rows of a dataset of `numbered` rows; checks that rows stay whole."""
    result = []
    for batch in dataset:
        real = batch.weights[:, 0].numpy() > 0
        row_ids = batch.inputs.categorical[0].numpy()[:, 0]
        assert (batch.inputs.numerical.numpy()[real, 1] == row_ids[real] + 0.5).all()
        assert (batch.labels.numpy()[real, 0] == row_ids[real] % 2).all()
        result.extend(row_ids[real].tolist())
    return result


@pytest.mark.parametrize("shuffle", [False, True])
def test_part_of_the_samples(tmp_path, shuffle):
    """Consecutive samples, on one rank or two, from any position of an epoch."""
    spec = numbered(tmp_path, 23)
    options = {"samples": range(5, 21), "shuffle": shuffle, "seed": 3}
    one = StoredDataset(spec, "train", 4, **options)
    assert (one.num_samples, one.num_batches) == (16, 4)
    order = ids(one.dataset(1))
    assert sorted(order) == list(range(5, 21)) and (order == sorted(order)) is not shuffle
    assert ids(one.dataset(1, 8)) == order[8:]
    ranks = (StoredDataset(spec, "train", 4, rank=r, world_size=2, **options) for r in (0, 1))
    first, second = (ids(rank.dataset(1)) for rank in ranks)
    both = [number for i in range(0, 8, 2) for number in first[i : i + 2] + second[i : i + 2]]
    assert both == order


def test_hand_made_bytes(tmp_path):
    files = {
        "label.bin": bytes([1, 0, 1]),
        # 1.0, -2.0 | 0.5, 0.0 | 65504 (the largest float16), 2^-24 (the smallest)
        "num.bin": bytes.fromhex("003c 00c0  0038 0000  ff7b 0100"),
        "a.bin": bytes([5, 127, 0]),
        "b.bin": bytes.fromhex("0100 0000  ff7f 0200  0300 0400"),  # two int16 a row
        "c.bin": bytes.fromhex("40420f00 00000000 01000000"),
        "d.bin": bytes.fromhex("0000000001000000  0100000000000000  ffffffffffffff7f"),
    }
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    features = {
        "label": {"dtype": "bool"},
        **{name: {"dtype": "float16"} for name in ("x", "y")},
        "a": {"dtype": "int8", "cardinality": 128},
        "b": {"dtype": "int16", "cardinality": 32768, "hotness": 2},
        "c": {"dtype": "int32", "cardinality": 1_000_001},
        "d": {"dtype": "int64", "cardinality": 2**63},
    }
    channels = {"numerical": ["x", "y"], "categorical": ["d", "a", "b", "c"], "label": ["label"]}
    chunks = {"num.bin": ["x", "y"]} | {f"{n}.bin": [n] for n in ("label", "a", "b", "c", "d")}
    spec = write(tmp_path, features, {}, channels, chunks)
    loader = StoredDataset(spec, "train", batch_size=8)
    assert (loader.num_samples, loader.num_batches) == (3, 1)
    (batch,) = loader.dataset()
    assert isinstance(batch, Batch)
    expected = [[1, -2], [0.5, 0], [65504, 2**-24]]
    np.testing.assert_array_equal(batch.inputs.numerical, np.array(expected, np.float32))
    d, a, b, c = batch.inputs.categorical
    np.testing.assert_array_equal(d, [[2**32], [1], [2**63 - 1]])
    np.testing.assert_array_equal(a, [[5], [127], [0]])
    np.testing.assert_array_equal(b, [[1, 0], [32767, 2], [3, 4]])
    np.testing.assert_array_equal(c, [[1_000_000], [0], [1]])
    np.testing.assert_array_equal(batch.labels, [[1], [0], [1]])
    np.testing.assert_array_equal(batch.weights, [[1], [1], [1]])
    dtypes = [batch.inputs.numerical.dtype, batch.labels.dtype, batch.weights.dtype]
    assert dtypes == [tf.float32] * 3
    assert [ids.dtype for ids in (d, a, b, c)] == [tf.int64, tf.int32, tf.int32, tf.int32]


@pytest.mark.parametrize("batch_size", [3, 5, 11])
def test_file_order_and_last_partial_batch(tmp_path, batch_size):
    loader = StoredDataset(numbered(tmp_path, 10), "train", batch_size)
    sizes = [len(batch.labels) for batch in loader.dataset()]
    assert sum(sizes) == 10 and len(sizes) == loader.num_batches
    assert set(sizes[:-1]) <= {batch_size}
    assert ids(loader.dataset(epoch=4)) == list(range(10))


def test_hotness_and_interleaved_features_of_several_dtypes(tmp_path, hotness=4):
    """Channel order differs from the order in the files, which hold features of no channel too."""
    generator = np.random.default_rng(0)
    table = generator.integers(0, 100, (20, 2 * hotness + 1)).astype(np.int16)
    ids = {"dtype": "int16", "cardinality": 100, "hotness": hotness}
    features = {
        "label": {"dtype": "float32"},
        **{name: {"dtype": "float16"} for name in ("x", "y")},
        "z": {"dtype": "int8"},
        "unused": {"dtype": "int16"},
        **{name: ids for name in ("a", "b")},
    }
    arrays = {
        "num.bin": np.arange(40, dtype=np.float16),
        "z.bin": np.arange(20, dtype=np.int8),
        "label.bin": (np.arange(20) % 3 == 0).astype(np.float32),
        "ids.bin": table,
    }
    channels = {"numerical": ["x", "z", "y"], "categorical": ["b", "a"], "label": ["label"]}
    chunks = {"num.bin": ["x", "y"], "z.bin": ["z"], "label.bin": ["label"]}
    chunks["ids.bin"] = ["a", "unused", "b"]
    spec = write(tmp_path, features, arrays, channels, chunks)
    (batch,) = StoredDataset(spec, "train", 20).dataset()
    b, a = batch.inputs.categorical
    np.testing.assert_array_equal(a, table[:, :hotness])
    np.testing.assert_array_equal(b, table[:, hotness + 1 :])
    rows = np.arange(20)
    np.testing.assert_array_equal(
        batch.inputs.numerical, np.stack([2 * rows, rows, 2 * rows + 1], 1)
    )
    np.testing.assert_array_equal(batch.labels[:, 0], np.arange(20) % 3 == 0)
    (shuffled,) = StoredDataset(spec, "train", 20, shuffle=True).dataset()
    order = shuffled.inputs.numerical[:, 1].numpy().astype(int)
    np.testing.assert_array_equal(shuffled.inputs.categorical[0], b.numpy()[order])


@pytest.mark.parametrize("shuffle", [False, True])
def test_several_files_of_a_chunk(tmp_path, shuffle):
    numbered(tmp_path, 30)
    rows = np.arange(30, dtype=np.int32)
    spec = write(
        tmp_path,
        {"label": {"dtype": "bool"}, "x": {"dtype": "float32"}, "y": {"dtype": "float32"}}
        | {"id": {"dtype": "int32", "cardinality": 30}},
        {"i0.bin": rows[:4], "i1.bin": rows[:0], "i2.bin": rows[4:17], "i3.bin": rows[17:]},
        {"numerical": ["x", "y"], "categorical": ["id"], "label": ["label"]},
        {"label.bin": ["label"], "num.bin": ["x", "y"], "i0.bin i1.bin i2.bin i3.bin": ["id"]},
    )
    loader = StoredDataset(spec, "train", 7, shuffle=shuffle)
    result = ids(loader.dataset())
    assert sorted(result) == list(range(30))
    assert (result == list(range(30))) is not shuffle


SMALL_BLOCKS = {"shuffle": True, "seed": 3, "block_samples": 10, "window_samples": 40}


def test_shuffled_epochs(tmp_path):
    spec = numbered(tmp_path, 203)
    loader = StoredDataset(spec, "train", 32, **SMALL_BLOCKS)
    first, second = ids(loader.dataset(0)), ids(loader.dataset(1))
    assert sorted(first) == sorted(second) == list(range(203))
    assert first != second and first != list(range(203))
    for start_sample in (32, 50, 202, 203):
        assert ids(loader.dataset(1, start_sample)) == second[start_sample:]
    other_batch = StoredDataset(spec, "train", 7, **SMALL_BLOCKS)
    assert ids(other_batch.dataset(0)) == first and ids(other_batch.dataset(1)) == second


def damaged(folder, feature_file: str, position: int, value: bytes) -> FeatureSpec:
    spec = numbered(folder, 20)
    content = bytearray((folder / feature_file).read_bytes())
    content[position : position + len(value)] = value
    (folder / feature_file).write_bytes(content)
    return spec


@pytest.mark.parametrize(
    ("file", "place", "value", "message"),
    [
        ("id", 4 * 13, b"\x14\0\0\0", r"'id': found 20 in row 13 \(row 13 of file 'id.bin'"),
        ("id", 4 * 13, b"\xff" * 4, r"'id': found -1 in row 13 .*; ids lie in \[0, 20\)"),
        ("label", 6, b"\x07", r"'label': found 7 in row 6 .*; labels are 0 or 1"),
    ],
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_value_out_of_range(tmp_path, file, place, value, message, shuffle):
    spec = damaged(tmp_path, f"{file}.bin", place, value)
    loader = StoredDataset(spec, "train", 8, shuffle=shuffle)
    message = f"f.yaml: split 'train': feature {message}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(loader.dataset())
    with pytest.raises(ValueError, match=message):  # what tf.numpy_function hands on
        loader.stored_samples(0, 20)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        *(("float16", np.nan), ("float16", np.inf), ("float32", -np.inf)),
        ("float64", 1e300),  # infinite as the float32 that the model gets
    ],
)
def test_numerical_value_that_is_not_finite(tmp_path, dtype, value):
    spec = damaged(tmp_path, "label.bin", 6, b"\x01")
    content = spec.to_dict()
    for name in spec.channel("numerical"):
        content["feature_spec"][name]["dtype"] = dtype
    numbers = np.zeros([20, 2], dtype)
    numbers[:, 0] = min(np.finfo(dtype).max, np.finfo("f").max)
    numbers.tofile(tmp_path / "num.bin")
    spec = type(spec).from_dict(content, spec.base_directory, spec.origin)
    assert len(StoredDataset(spec, "train", 8).stored_samples(0, 20)) > 0
    numbers[13, 1] = value
    numbers.tofile(tmp_path / "num.bin")
    with pytest.raises(ValueError, match=rf"'y': found {re.escape(str(value))} in row 13 .*must"):
        StoredDataset(spec, "train", 8).stored_samples(0, 20)


REFUSED = {
    "batch_size": ({"batch_size": 0}, "batch_size 0 "),
    "too few rows": ({"world_size": 9}, "batch_size 8 .* each of 9 ranks .*; choose 9 or more"),
    "rank": ({"rank": 2, "world_size": 2}, "rank is 2; expected 0 to world_size - 1 = 1"),
    "split": ({"split": "test"}, "the split_binary loader needs the split 'test'"),
    "no samples": ({"samples": range(3, 3)}, "expected samples of the 5 of train, got"),
    "samples": ({"samples": range(3, 6)}, "expected samples of the 5 of train, got"),
}


@pytest.mark.parametrize(("settings", "message"), REFUSED.values(), ids=REFUSED)
def test_invalid_settings(tmp_path, settings, message):
    spec = numbered(tmp_path, 5)
    with pytest.raises(ValueError, match=message):
        StoredDataset(**{"spec": spec, "split": "train", "batch_size": 8, **settings})


def test_data_without_rows(tmp_path):
    with pytest.raises(ValueError, match=r"f.yaml: source_spec: split 'train' has no rows"):
        StoredDataset(numbered(tmp_path, 0), "train", 2)


def test_chunk_without_a_reader(tmp_path):
    content = {
        "feature_spec": {"a": {"dtype": "int8"}},
        "source_spec": {"train": [{"type": "csv", "features": ["a"], "files": ["a.csv"]}]},
        "channel_spec": {"numerical": ["a"]},
    }
    spec = FeatureSpec.from_dict(content, tmp_path)
    with pytest.raises(ValueError, match="split_binary, torch_tensor, tfrecord, got csv"):
        open_chunk(spec, "train", spec.source_spec["train"][0])
