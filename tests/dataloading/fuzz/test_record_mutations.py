"""Mutated split TFRecords: rejected with a message by loader and `describe`, or read correctly.

The reference is TensorFlow's own readers and parsers. A file with damaged bytes may be rejected or
read as before, never read as other values.
"""

import json
import tempfile
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import strategies as st

from dataloading import describe
from dataloading.formats.split_tfrecords.dataset import SplitTFRecordsDataset
from dataloading.pipeline.ragged import Ragged
from dataloading.spec.feature_spec import FeatureSpec
from tests.dataloading.formats.test_split_tfrecords import SPEC, original, rows_of, write_folder
from tests.dataloading.fuzz.test_mutations import sweep

pytestmark = pytest.mark.long

NUM_ROWS = 7
CONTENT = {
    **SPEC,
    "feature_spec": {
        **SPEC["feature_spec"],
        "pair": {"dtype": "int16", "cardinality": 20, "hotness": 2},
    },
    "channel_spec": {**SPEC["channel_spec"], "categorical": ["one", "many", "pair"]},
}
# Folder -> dtype, whether it is multi-hot, in the order of the loader's columns.
FOLDERS = {
    "numerical": (tf.float16, False),
    "categorical_0": (tf.int32, False),
    "categorical_1": (tf.int32, True),
    "categorical_2": (tf.int32, True),
    "label": (tf.int8, False),
}
ODD_VALUES = [None, True, False, 0, 1, -1, 2, 3, 2.5, 2**70, float("nan"), "", "data", "int8"]
ODD_VALUES += ["int32", "float16", ">i4", "i4,(", "(2,)i4", "tfrecords", "\ud800", [], {}, [1]]
ODD_TEXTS = [b"", b"{", b"[" * 5000, b"9" * 5000, b"\xff", b"null", b"3", b"4", b"NaN", b'"4"']
KEYS = ["format", "dtype", "multihot", "feature_name", "num_features", "batches_per_file"]
KEYS += ["prebatch", "hotness", "other"]


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> dict[str, bytes]:
    """A data set of 7 rows in prebatches of 2, two of them a file: path -> content."""
    folder = tmp_path_factory.mktemp("good")
    original(folder, rows_of(NUM_ROWS), CONTENT, prebatch=2, per_file=2)
    pairs = [[i, 19 - i] for i in range(NUM_ROWS)]
    layout = {"prebatch": 2, "per_file": 2, "multihot": True, "hotness": 2}
    write_folder(folder / "train/categorical_2", pairs, "int32", **layout)
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def framed(content: bytes) -> bytes:
    """Returns the record of this content."""
    with tempfile.NamedTemporaryFile() as file:
        with tf.io.TFRecordWriter(file.name) as writer:
            writer.write(content)
        return Path(file.name).read_bytes()


def contents(file: bytes) -> list[bytes]:
    """Returns the content of each record."""
    result = []
    while file:
        length = int.from_bytes(file[:8], "little")
        result.append(file[12 : 12 + length])
        file = file[16 + length :]
    return result


def edited(draw, content: bytes) -> bytes:
    """One change of some bytes."""
    place = draw(st.integers(0, max(0, len(content) - 1)))
    kind = draw(st.sampled_from(["flip", "set", "cut", "delete", "insert"]))
    if kind in ("flip", "set") and content:
        byte = content[place] ^ (1 << draw(st.integers(0, 7)))
        if kind == "set":
            byte = draw(st.integers(0, 255))
        return content[:place] + bytes([byte]) + content[place + 1 :]
    if kind == "insert":
        return content[:place] + draw(st.binary(min_size=1, max_size=12)) + content[place:]
    return content[:place] + (b"" if kind == "cut" else content[place + 1 :])


@st.composite
def mutations(draw, good: dict[str, bytes]) -> tuple[str, dict[str, bytes]]:
    """Mutated files: the kind of the mutation, and path -> content."""
    files = dict(good)
    kind = draw(st.sampled_from(["bytes", "content", "content", "records", "json", "text", "file"]))
    data = sorted(name for name in files if name.endswith(".tfrecords"))
    name = draw(st.sampled_from(data))
    if kind == "bytes":
        files[name] = edited(draw, files[name])
    elif kind == "content":
        records = contents(files[name])
        index = draw(st.integers(0, len(records) - 1))
        for _ in range(draw(st.integers(1, 2))):
            records[index] = edited(draw, records[index])
        files[name] = b"".join(map(framed, records))
    elif kind == "records":
        chosen = draw(st.lists(st.sampled_from(contents(files[name])), max_size=3))
        files[name] = b"".join(map(framed, chosen))
    elif kind == "json":
        folder = draw(st.sampled_from(sorted(FOLDERS)))
        message = json.loads(files[f"train/{folder}/format.json"])
        key = draw(st.sampled_from(KEYS))
        if draw(st.booleans()):
            message[key] = draw(st.sampled_from(ODD_VALUES))
        else:
            message.pop(key, None)
        files[f"train/{folder}/format.json"] = json.dumps(message).encode()
    elif kind == "text":
        name = draw(st.sampled_from([n for n in sorted(files) if n.endswith(".json")]))
        files[name] = draw(st.sampled_from(ODD_TEXTS))
    else:
        name = draw(st.sampled_from(sorted(files)))
        content = files.pop(name)
        renamed = draw(st.sampled_from([None, name + "x", name.replace("0", "2")]))
        if renamed is not None:
            files[renamed] = content
    return kind, files


def spec_of(folder: Path, named: bool) -> FeatureSpec:
    """Returns the original's spec, which lists no files, or (`named`) one that lists them."""
    sources = None
    if named:
        features = [["x", "y"], ["one"], ["many"], ["pair"], ["label"]]
        sources = {
            "train": [
                {
                    "type": "tfrecord",
                    "features": names,
                    "files": [f"train/{name}/data_{k}.tfrecords" for k in range(2)],
                }
                for name, names in zip(FOLDERS, features, strict=True)
            ]
        }
    spec = FeatureSpec.from_dict({**CONTENT, "source_spec": sources}, folder)
    spec.to_yaml(folder / "feature_spec.yaml")
    return FeatureSpec.from_yaml(folder / "feature_spec.yaml")


def as_lists(array) -> list:
    if isinstance(array, Ragged):
        return tf.RaggedTensor.from_row_splits(*array).to_list()
    return array.tolist()


def loaded(spec: FeatureSpec) -> list[list] | None:
    """Each column's rows, in file order and by their numbers; None where they are refused."""
    try:
        loader = SplitTFRecordsDataset(spec, "train", 4)
        rows = [as_lists(array) for array in loader.stored_samples(0, loader.num_samples)]
        shuffled = SplitTFRecordsDataset(spec, "train", 4, shuffle=True)
        order = shuffled._order.samples(0, 0, loader.num_samples)
        picked = [as_lists(array) for array in shuffled.stored_samples(0, loader.num_samples)]
    except ValueError as error:
        assert "train" in str(error) and len(str(error)) > 30, error
        return None
    assert picked == [[column[row] for row in order] for column in rows]
    return rows


def read_by_tensorflow(folder: Path) -> list[list]:
    """Returns each column's rows, read by TensorFlow's reader and parsers."""
    columns = []
    for name, (dtype, multihot) in FOLDERS.items():
        rows = []
        files = sorted(map(str, (folder / "train" / name).glob("data_?.tfrecords")))
        for record in tf.data.TFRecordDataset(files):
            feature = {"data": tf.io.FixedLenFeature([], tf.string)}
            content = tf.io.parse_single_example(record, feature)["data"]
            if multihot:
                values, splits = tf.io.parse_tensor(content, tf.string)
                values = tf.io.parse_tensor(values, dtype)
                splits = tf.io.parse_tensor(splits, tf.int32)
                rows += tf.RaggedTensor.from_row_splits(values, splits).to_list()
            else:
                width = 2 if name == "numerical" else 1
                rows += tf.reshape(tf.io.parse_tensor(content, dtype), [-1, width]).numpy().tolist()
        columns.append(rows)
    return columns


def check(mutation, named: bool, expected: list[list], capsys) -> bool:
    """Compares loader, `describe` and `expected`; returns True if the files were rejected."""
    kind, files = mutation
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
        spec = spec_of(folder, named)
        rows = loaded(spec)
        code = describe.main([name])
        message = capsys.readouterr()
        assert (code != 0) == (rows is None), (kind, message)
        if rows is None:
            return True
        if kind in ("content", "records"):
            assert rows == read_by_tensorflow(folder)
        else:
            assert rows == expected, kind
        return False


def test_mutated_files(good, capsys):
    refused = []
    expected = [
        [[i, -i] for i in range(NUM_ROWS)],
        [[i] for i in range(NUM_ROWS)],
        [list(row.many) for row in rows_of(NUM_ROWS)],
        [[i, 19 - i] for i in range(NUM_ROWS)],
        [[i % 2] for i in range(NUM_ROWS)],
    ]
    for named in (False, True):
        assert not check(("text", good), named, expected, capsys)

    def one(example):
        refused.append(check(*example, expected, capsys))

    sweep(1000, st.tuples(mutations(good), st.booleans()), one)
    assert {True, False} == set(refused), "some are refused, and some are not"
