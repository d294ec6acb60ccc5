"""The simple models of the table of default settings, on rows whose best model is known."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.quality.simple_models import evaluate_linear_model, sequence_popularity
from dataloading.spec.feature_spec import FeatureSpec


def test_popularity(tmp_path):
    """Item 1 is frequent in training and item 2 is not, whatever the test rows hold."""
    rows = {"train": ([1, 1, 1, 0], [1, 1, 2, 2]), "test": ([1, 0, 0], [1, 2, 2])}
    for split, (labels, items) in rows.items():
        (tmp_path / split).mkdir()
        table = pa.table({"label": labels, "item_id_trgt": items})
        pyarrow.parquet.write_table(table, tmp_path / split / "0.parquet")
    assert sequence_popularity(tmp_path, "test") == 1
    table = pa.table({"label": [1, 1, 1], "item_id_trgt": [2, 2, 1]})
    pyarrow.parquet.write_table(table, tmp_path / "train" / "0.parquet")
    assert sequence_popularity(tmp_path, "test") == 0


def test_linear_model(tmp_path):
    """Clicks follow from one feature; the other feature and the numerical one are noise."""
    rng = np.random.default_rng(0)
    sources = {}
    for split, num_rows in (("train", 2000), ("test", 1000)):
        ids = rng.integers(0, 2, num_rows)
        columns = {
            "label": (rng.random(num_rows) < 0.1 + 0.8 * ids).astype(np.int8),
            "a": ids.astype(np.int8),
            "b": rng.integers(0, 9, num_rows).astype(np.int8),
            "x": rng.normal(size=num_rows).astype(np.float16),
        }
        for name, values in columns.items():
            values.tofile(tmp_path / f"{split}_{name}.bin")
        sources[split] = [
            {"type": "split_binary", "features": [name], "files": [f"{split}_{name}.bin"]}
            for name in columns
        ]
    content = {
        "feature_spec": {
            "label": {"dtype": "int8"},
            "a": {"dtype": "int8", "cardinality": 2},
            "b": {"dtype": "int8", "cardinality": 9},
            "x": {"dtype": "float16"},
        },
        "source_spec": sources,
        "channel_spec": {"label": ["label"], "numerical": ["x"], "categorical": ["a", "b"]},
        "metadata": {},
    }
    FeatureSpec.from_dict(content, tmp_path).to_yaml(tmp_path / "feature_spec.yaml")
    assert 0.85 < evaluate_linear_model(tmp_path) < 0.95  # 0.9 at best
