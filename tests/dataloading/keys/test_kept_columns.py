"""Columns that predictions keep: every format, values by row, and names that are not stored."""

import numpy as np
import pyarrow as pa
import pytest
import yaml

from dataloading.keys.kept_columns import generated_columns, history_columns, stored_columns
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.dataset import SyntheticDataset
from dataloading.synthetic.rows import BLOCK_SAMPLES, synthetic_spec
from dataloading.transcribe import main as transcribe
from tests import sequence_data

ROWS = 7


@pytest.fixture
def binaries(tmp_path):
    """Seven rows: two numerical features, an id with a vocabulary, two tags, a time, a label."""
    folder = tmp_path / "binaries"
    (folder / "test").mkdir(parents=True)
    stored = {
        "numerical": np.arange(2 * ROWS).reshape(ROWS, 2).astype(np.float16) / 2,
        "city": np.array([0, 1, 2, 1, 0, 2, 2], np.int8),
        "tags": np.arange(2 * ROWS).reshape(ROWS, 2).astype(np.int8) % 5,
        "time": 1_700_000_000_000 + np.arange(ROWS),
        "label": np.arange(ROWS) % 2 == 0,
    }
    for name, values in stored.items():
        values.tofile(folder / f"test/{name}.bin")
    chunks = {name: ["age", "height"] if name == "numerical" else [name] for name in stored}
    content = {
        "feature_spec": {
            "label": {"dtype": "bool"},
            "age": {"dtype": "float16"},
            "height": {"dtype": "float16"},
            "city": {"dtype": "int8", "cardinality": 3},
            "tags": {"dtype": "int8", "cardinality": 5, "hotness": 2},
            "time": {"dtype": "int64"},
        },
        "source_spec": {
            "test": [
                {"type": "split_binary", "features": names, "files": [f"test/{file}.bin"]}
                for file, names in chunks.items()
            ]
        },
        "channel_spec": {
            "label": ["label"],
            "numerical": ["age", "height"],
            "categorical": ["city", "tags"],
        },
        "metadata": {},
    }
    (folder / "feature_spec.yaml").write_text(yaml.safe_dump(content))
    return folder


def columns_of(folder, names):
    spec = FeatureSpec.from_yaml(folder / "feature_spec.yaml")
    cities = pa.array([None, "Rome", "Oslo"])
    return stored_columns(spec, "test", names, {"city": lambda ids: cities.take(pa.array(ids))})


def test_split_binaries(binaries):
    kept = columns_of(binaries, ["time", "city", "tags", "height", "label"])
    assert [name for name, _ in kept.fields] == ["time", "city", "tags", "height", "label"]
    time, city, tags, height, label = kept.read(1, 4)
    assert time.to_pylist() == [1_700_000_000_001, 1_700_000_000_002, 1_700_000_000_003]
    assert city.to_pylist() == ["Rome", "Oslo", "Rome"]
    assert tags.to_pylist() == [[2, 3], [4, 0], [1, 2]]
    assert height.to_pylist() == [1.5, 2.5, 3.5] and height.type == pa.float32()
    assert label.to_pylist() == [0, 1, 0]


def test_split_tfrecords(binaries, tmp_path):
    records = tmp_path / "records"
    flags = ("--dst_prebatch_size", "3", "--dst_batches_per_file", "2")
    paths = ("--src_dataset_path", str(binaries), "--dst_dataset_path", str(records))
    assert transcribe([*paths, *flags]) == 0
    city, tags = columns_of(records, ["city", "tags"]).read(2, 6)
    assert city.to_pylist() == ["Oslo", "Rome", None, "Oslo"]
    assert tags.to_pylist() == [[4, 0], [1, 2], [3, 4], [0, 1]]


def test_generated_samples():
    spec = synthetic_spec((5, 9), (1, 2), 1.1, 3)
    samples = SyntheticDataset(spec, "test", 4, num_samples=BLOCK_SAMPLES + 9, seed=3)
    names = list(spec.channel("categorical"))
    start, stop = BLOCK_SAMPLES - 2, BLOCK_SAMPLES + 5
    one, two = generated_columns(spec, "test", names, 3).read(start, stop)
    expected = samples.stored_samples(start, stop)
    assert one.to_pylist() == expected[1][:, 0].tolist()
    assert two.to_pylist() == expected[2].tolist()


def test_histories(tmp_path):
    """Values of ids, without padding; tests/recipes/test_sim.py has ids."""
    sequence_data.write(tmp_path, 11, splits=("test",))
    *_, history, _, _, _ = sequence_data.draw(np.random.default_rng(0), 11)
    spec = FeatureSpec.from_yaml(tmp_path / "feature_spec.yaml")
    names = {"item_id_pos": lambda ids: pa.array([f"sku-{item}" for item in ids])}
    kept = history_columns(spec, "test", ["item_id_pos"], ["item_id_pos"], names)
    (histories,) = kept.read(3, 9)
    assert histories.to_pylist() == [[f"sku-{i}" for i in row if i] for row in history[3:9]]
