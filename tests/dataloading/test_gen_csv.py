"""`python -m preproc.gen_csv`: the files of a simplified spec, with rows to learn from."""

import gzip

import numpy as np
import pyarrow.parquet as pq
import yaml

from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.dataset import SyntheticDataset
from dataloading.synthetic.rows import stored_spec
from preproc import gen_csv
from preproc.transcode import __main__ as transcode

TABS = {"type": "csv", "header": True, "delimiter": "\t"}
PLAIN = {"features": ["price", "place", "user", "tags", "junk"], "files": ["e.csv"]}
SPEC = {
    "feature_spec": {
        "clicked": {},
        "price": {},
        "place": {"dtype": "float64", "hotness": 2},
        "user": {"cardinality": "auto"},
        "tags": {"hotness": 2, "cardinality": 50},
        "junk": {},
    },
    "source_spec": {
        "train": [
            {"type": "csv", "features": ["clicked", "price", "junk"], "files": ["a.csv", "b.csv"]},
            {"type": "parquet", "features": ["place", "tags"], "files": ["c.parquet"]},
            {**TABS, "features": ["user"], "files": ["sub/d.tsv"]},
        ],
        "validation": [{"type": "csv", **PLAIN}],
    },
    "channel_spec": {
        "label": ["clicked"],
        "numerical": ["price", "place"],
        "categorical": ["user", "tags"],
    },
}


def generate(tmp_path, spec, *flags) -> int:
    path = tmp_path / "simple.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return gen_csv.main(
        [f"--feature_spec_in={path}", f"--output={tmp_path / 'raw'}", *map(str, flags)]
    )


def test_files_and_rows(tmp_path):
    """Transcoded, the files hold the very rows of the generator, over a boundary of its blocks."""
    rows = 9001
    assert generate(tmp_path, SPEC, "--size", rows, "--seed=3", "--auto_cardinality=70") == 0
    raw = tmp_path / "raw"
    assert (raw / "sub/d.tsv").read_text().startswith("user\n")
    assert len((raw / "a.csv").read_text().splitlines()) == rows // 2
    assert pq.read_metadata(raw / "c.parquet").num_rows == rows
    assert transcode.main([f"--input={raw}", f"--output={tmp_path / 'made'}"]) == 0
    data_set = FeatureSpec.from_yaml(tmp_path / "made/feature_spec.yaml")
    features = {name: dict(keys) for name, keys in data_set.feature_spec.items()}
    features["user"]["cardinality"] = 70  # an id that was not drawn is not known
    spec = stored_spec(features, data_set.channel_spec, ["train"])
    for split in ("train", "validation"):
        (batch,) = SyntheticDataset(spec, split, rows, num_samples=rows, seed=3).dataset()
        read = np.fromfile(tmp_path / "made" / split / "cat_1.bin", np.int8).reshape(-1, 2)
        np.testing.assert_array_equal(read, batch.inputs.categorical[1])
        read = np.fromfile(tmp_path / "made" / split / "cat_0.bin", np.int8)
        np.testing.assert_array_equal(read, batch.inputs.categorical[0][:, 0])
        price = np.fromfile(tmp_path / "made" / split / "numerical.bin", np.float16)
        np.testing.assert_array_equal(price, batch.inputs.numerical[:, 0])
        place = np.fromfile(tmp_path / "made" / split / "numerical_1.bin", np.float64)
        np.testing.assert_array_equal(place.reshape(-1, 2), batch.inputs.numerical[:, 1:])
        if split == "train":
            clicks = np.fromfile(tmp_path / "made/train/label.bin", np.bool_)
            np.testing.assert_array_equal(clicks, batch.labels[:, 0])
    assert not (tmp_path / "made/validation/label.bin").exists()


def test_refusals(tmp_path, capsys):
    labelled_only = {"train": SPEC["source_spec"]["train"]}
    no_label = {**SPEC, "source_spec": labelled_only}
    no_label["channel_spec"] = {**SPEC["channel_spec"], "label": []}
    short = {**SPEC, "feature_spec": {**SPEC["feature_spec"], "user": {"dtype": "int8"}}}
    for spec, message in (
        (no_label, "channel 'label' has no feature, and clicks are drawn with their labels"),
        (short, "simple.yaml: feature_spec: feature 'user': dtype int8 holds ids up to 127"),
    ):
        assert generate(tmp_path, spec) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "raw").exists()
    assert generate(tmp_path, SPEC, "--size=3") == 0
    assert generate(tmp_path, SPEC, "--size=3") == 2
    assert "raw/feature_spec.yaml exists; remove it or choose" in capsys.readouterr().err


def test_compressed_files_of_any_split(tmp_path):
    """Each split has rows of its own, the same in every run."""
    chunks = SPEC["source_spec"]["validation"]
    sources = {name: [{**chunks[0], "files": [f"{name}.gz"]}] for name in ("dev", "later")}
    spec = {**SPEC, "source_spec": sources}
    spec["source_spec"]["dev"][0] |= {"header": True, "quoting": False}
    assert generate(tmp_path, spec, "--size=300") == 0
    assert transcode.main([f"--input={tmp_path / 'raw'}", f"--output={tmp_path / 'made'}"]) == 0
    dev = gzip.decompress((tmp_path / "raw/dev.gz").read_bytes()).decode().splitlines()
    later = gzip.decompress((tmp_path / "raw/later.gz").read_bytes()).decode().splitlines()
    assert dev[0] == "price,place,user,tags,junk"
    assert len(dev) == 301 and len(later) == 300
    assert dev[1:] != later
    # The seed of other names than train, validation and test never changes.
    assert dev[1] == "0.28100586,0.6200326681137085;1.2986774444580078,55,14;1,0"
