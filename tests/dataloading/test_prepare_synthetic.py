"""`python -m dataloading.prepare_synthetic_dataset`: files for any feature spec."""

import numpy as np
import pytest
import yaml

from dataloading import prepare_synthetic_dataset
from dataloading.formats.stored_dataset import StoredDataset
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.dataset import SyntheticDataset

FEATURES = {
    "clicked": {"dtype": "int32"},
    "unused": {"dtype": "int64", "hotness": 2},
    "price": {"dtype": "float64"},
    "place": {"dtype": "float64", "hotness": 2},
    "user": {"dtype": "int64", "cardinality": 50},
    "tags": {"dtype": "int64", "cardinality": 9, "hotness": 3},
}
CHANNELS = {"label": ["clicked"], "numerical": ["place", "price"], "categorical": ["tags", "user"]}


def chunk(features: str, files: str) -> dict:
    return {"type": "split_binary", "features": features.split(), "files": files.split()}


CHUNKS = [chunk("unused user tags", "i"), chunk("place price", "x")]


def prepare(tmp_path, spec, *flags, batch=50) -> int:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    return prepare_synthetic_dataset.main(
        ["--feature_spec", str(tmp_path / "spec.yaml"), "--synthetic_dataset_train_batches=3"]
        + ["--synthetic_dataset_valid_batches=2", f"--synthetic_dataset_batch_size={batch}"]
        + [f"--synthetic_dataset_dir={tmp_path / 'made'}", *flags]
    )


@pytest.mark.parametrize("sources", ["null", "its own"])
def test_rows(sources, tmp_path, capsys):
    """Rows of any layout equal those of the generator, across a boundary of its blocks."""
    spec = {"feature_spec": FEATURES, "channel_spec": CHANNELS, "source_spec": None}
    own = [
        chunk("unused user tags", "ids/0 ids/1 ids/2 ids/3"),
        chunk("clicked", "y"),
        chunk("place price", "x/all.bin"),
    ]
    if sources == "its own":
        spec["source_spec"] = {
            "test": [{**c, "files": [f"t/{f}" for f in c["files"]]} for c in own[:1] + own[2:]],
            "train": own,
        }
    assert prepare(tmp_path, spec, "--seed=5", batch=3000) == 0
    assert "train: 9,000 rows" in capsys.readouterr().out
    data_set = FeatureSpec.from_yaml(tmp_path / "made/feature_spec.yaml")
    expected = {"its own": ["test", "train"]}.get(sources, ["train", "validation", "test"])
    assert list(data_set.source_spec) == expected
    assert data_set.metadata["seed"] == 5
    for split in expected:
        rows = 9000 if split == "train" else 6000
        labelled = (sources, split) != ("its own", "test")
        (batch,) = StoredDataset(data_set, split, rows, with_labels=labelled).dataset()
        (same,) = SyntheticDataset(data_set, split, rows, num_samples=rows, seed=5).dataset()
        np.testing.assert_array_equal(batch.inputs.numerical, same.inputs.numerical)
        for ids, others in zip(batch.inputs.categorical, same.inputs.categorical, strict=True):
            np.testing.assert_array_equal(ids, others)
        if labelled:
            np.testing.assert_array_equal(batch.labels, same.labels)
    if sources == "its own":
        sizes = [(tmp_path / f"made/ids/{i}").stat().st_size for i in range(4)]
        assert sizes == [9000 // 4 * 6 * 8] * 4
        ids = np.fromfile(tmp_path / "made/ids/0", np.int64).reshape(-1, 6)
        assert not ids[:, :2].any() and ids[:, 2].max() > 9


def test_file_of_two_splits(tmp_path, capsys):
    others = [{**c, "files": [f"test/{f}" for f in c["files"]]} for c in CHUNKS]
    sources = {
        "train": [chunk("clicked", "y"), *CHUNKS],
        "test": [chunk("clicked", "./y"), *others],
    }
    spec = {"feature_spec": FEATURES, "channel_spec": CHANNELS, "source_spec": sources}
    assert prepare(tmp_path, spec) == 2
    message = capsys.readouterr().err
    assert "file 'y'" in message and "'train' and 'test'" in message
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"source_spec": {"seed": [chunk("clicked", "y"), *CHUNKS]}}, "source_spec: split 'seed'"),
        (
            {"source_spec": {"train": [{**chunk("clicked", "y"), "type": "csv"}, *CHUNKS]}},
            "chunk 0: type 'csv'",
        ),
        ({"channel_spec": {"label": ["clicked"]}}, "the generator needs the channel 'numerical'"),
    ],
)
def test_refusals(spec, message, tmp_path, capsys):
    spec = {"feature_spec": FEATURES, "channel_spec": CHANNELS, **spec}
    assert prepare(tmp_path, spec) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_features_of_the_flags(tmp_path, capsys):
    """The flags of NVIDIA's tool, without a feature spec."""
    folder = tmp_path / "made"
    flags = ["--num_numerical_features=2", "--synthetic_dataset_table_sizes=7,300"]
    flags += ["--synthetic_dataset_num_entries=130", "--synthetic_dataset_batch_size=50"]
    flags += ["--synthetic_dataset_valid_batches=1", f"--synthetic_dataset_dir={folder}"]
    assert prepare_synthetic_dataset.main(flags) == 0
    assert "train: 130 rows" in capsys.readouterr().out
    spec = FeatureSpec.from_yaml(folder / "feature_spec.yaml")
    assert spec.cardinalities("categorical") == [7, 300]
    assert len(spec.channel("numerical")) == 2
    assert (spec.num_samples("train"), spec.num_samples("test")) == (130, 50)


@pytest.mark.parametrize("flag", ["--num_numerical_features=2", "--synthetic_dataset_table_sizes="])
def test_features_given_twice(tmp_path, capsys, flag):
    assert prepare(tmp_path, {"feature_spec": FEATURES, "channel_spec": CHANNELS}, flag) == 2
    assert "is only read without --feature_spec" in capsys.readouterr().err
