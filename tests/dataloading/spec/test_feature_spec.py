"""The feature spec: reading, each rule of the format, writing."""

import copy
import stat

import numpy as np
import pytest
import yaml

from dataloading.spec import rules
from dataloading.spec.feature_spec import Chunk, FeatureSpec, smallest_id_dtype

VALID = {
    "feature_spec": {
        "label": {"dtype": "bool"},
        "age": {"dtype": "torch.float16"},
        "height": {"dtype": "float16"},
        "user": {"dtype": "torch.int8", "cardinality": 100},
        "tags": {"dtype": "int16", "cardinality": 1000, "hotness": 3, "alpha": 1.2},
    },
    "source_spec": {
        "train": [
            {"type": "split_binary", "features": ["label"], "files": ["train/label.bin"]},
            {"type": "split_binary", "features": ["age", "height"], "files": ["train/num.bin"]},
            {"type": "split_binary", "features": ["user"], "files": ["u0.bin", "u1.bin"]},
            {"type": "split_binary", "features": ["tags"], "files": ["train/../tags.bin"]},
        ]
    },
    "channel_spec": {
        "numerical": ["age", "height"],
        "categorical": ["user", "tags"],
        "label": ["label"],
    },
    "metadata": {"made": "by hand", "sizes": [1, 2.5, None], 3: {"nested": True}},
}
ABSENT = object()


def changed(path: str, value):
    """VALID with the value at a path such as `source_spec.train.0.type` replaced or removed."""
    content = copy.deepcopy(VALID)
    *parents, last = [int(key) if key.isdigit() else key for key in path.split("/")]
    target = content
    for key in parents:
        target = target[key]
    if value is ABSENT:
        del target[last]
    else:
        target[last] = value
    return content


def test_valid_spec():
    spec = FeatureSpec.from_dict(VALID, "somewhere")
    assert spec.dtype("user") == np.int8 and spec.dtype("age") == np.float16
    assert spec.cardinality("tags") == 1000
    assert (spec.hotness("tags"), spec.hotness("age")) == (3, 1)
    assert spec.channel("categorical") == ("user", "tags")
    assert spec.cardinalities("categorical") == [100, 1000]
    assert spec.hotnesses("categorical") == [1, 3]
    assert spec.source_spec["train"][2] == Chunk("split_binary", ("user",), ("u0.bin", "u1.bin"))
    assert spec.sample_bytes(spec.source_spec["train"][3]) == 6
    spec.require(
        "DLRM",
        channels=("numerical", "categorical", "label"),
        splits=("train",),
        chunk_types=("split_binary",),
    )


BROKEN = {
    "no mapping": ("feature_spec", ["a"], r"feature_spec: found \['a'\] \(list\); expected"),
    "absent section": ("channel_spec", ABSENT, "section channel_spec is missing; needed"),
    "unknown section": ("chanel_spec", {}, "unknown section 'chanel_spec'.*mean 'channel_spec'"),
    "metadata no mapping": ("metadata", [1], r"metadata: found \[1\]; expected a mapping"),
    "metadata not plain": ("metadata/x", {1, 2}, "metadata: .*is a set; expected numbers"),
    "feature name no string": ("feature_spec/1", {"dtype": "bool"}, "feature name 1 is a int"),
    "no dtype": ("feature_spec/user", {}, "feature 'user': dtype is missing; expected bool"),
    "unknown dtype": ("feature_spec/user/dtype", "int33", "unknown dtype 'int33'"),
    "unknown key": ("feature_spec/user/cardinalty", 3, "unknown key 'cardinalty'"),
    "no cardinality": ("feature_spec/user/cardinality", ABSENT, "'user': cardinality is missing"),
    "cardinality 0": ("feature_spec/user/cardinality", 0, "cardinality is 0; expected a positive"),
    "dtype too small": ("feature_spec/user/cardinality", 1000, "'user': dtype int8 holds ids up"),
    "ids in float": ("feature_spec/age/cardinality", 3, "'age': dtype float16 with a cardinality"),
    "hotness 0": ("feature_spec/tags/hotness", 0, "'tags': hotness is 0; expected a positive"),
    "negative alpha": ("feature_spec/tags/alpha", -1, "'tags': alpha is -1; expected a number"),
    "dimensions number": ("feature_spec/tags/dimensions", 3, "dimensions is 3; expected a list"),
    "dimensions differ": ("feature_spec/tags/dimensions", [2], "hotness 3 and dimensions .2. dis"),
    "split without chunks": ("source_spec/train", [], "split 'train': chunks: nothing there"),
    "chunk lacks files": ("source_spec/train/0/files", ABSENT, "chunk 0: files is missing; needed"),
    "unknown feature in chunk": ("source_spec/train/2/features", ["usr"], "unknown feature 'usr'"),
    "feature twice": ("source_spec/train/1/features", ["age", "height", "age"], "again in"),
    "feature in no chunk": ("source_spec/train/1/features", ["age"], "feature 'height' is in no"),
    "mixed dtypes": ("source_spec/train/1/features", ["age", "user"], "chunk 1: feature 'user'"),
    "file twice": ("source_spec/train/2/files", ["u0.bin", "./tags.bin"], "file 'tags.bin' is in"),
    "absolute file": ("source_spec/train/0/files", ["/x.bin"], "'/x.bin' is an absolute path"),
    "file outside": ("source_spec/train/0/files", ["a/../../x"], "'a/../../x' leaves the data set"),
    "file no string": ("source_spec/train/0/files", [3], "chunk 0: file 3; expected a path"),
    "feature twice in channel": ("channel_spec/label", ["label"] * 2, "'label' is there twice"),
}


@pytest.mark.parametrize(("path", "value", "message"), BROKEN.values(), ids=BROKEN)
def test_messages_about_broken_rules(path, value, message):
    content = changed(path, value)
    with pytest.raises(ValueError, match=message) as caught:
        FeatureSpec.from_dict(content, ".", origin="data/feature_spec.yaml")
    assert str(caught.value).startswith("data/feature_spec.yaml: ")
    assert "\n" not in str(caught.value)


def test_content_other_than_a_mapping():
    with pytest.raises(ValueError, match=r"found \[\]; expected a mapping of"):
        FeatureSpec.from_dict([], ".")


UNREADABLE = {
    "absent": (None, "the file does not exist"),
    "empty": (b"# nothing\n", "holds a NoneType, not a mapping"),
    "not text": (b"\xff\xfe\x00", "is not valid YAML: .*utf-8"),
    "not yaml": (b"feature_spec: [a\nb: c", "is not valid YAML: .*line 2"),
    "key twice": (b"a:\n  x: 1\n  y: 2\n  x: 3\n", r"key 'x' is there twice \(lines 2 and 4\)"),
}


@pytest.mark.parametrize(("content", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_file(tmp_path, content, message):
    path = tmp_path / "feature_spec.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        FeatureSpec.from_yaml(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_data_of_csv_files():
    """Allowed in a spec; models require other types and ids."""
    content = changed("source_spec/train/0/type", "csv")
    spec = FeatureSpec.from_dict(content, ".")
    with pytest.raises(ValueError, match=r"chunk 0: type 'csv'; NCF reads split_binary"):
        spec.require("NCF", chunk_types=("split_binary",))
    with pytest.raises(ValueError, match=r"'age': cardinality is missing"):
        spec.require("NCF", channels=("numerical",), id_channels=("numerical",))


def test_dimensions_and_aliases_of_the_sim_example(tmp_path):
    (tmp_path / "f.yaml").write_text(
        """
channel_spec: {label: [label], positive_history: [item_id_pos]}
feature_spec:
  item_id_pos: {cardinality: 1209081, dimensions: [100], dtype: int64}
  label: {dtype: bool}
source_spec:
  test:
  - {features: &id001 [label, item_id_pos], files: [test.tfrecord], type: tfrecord}
  train:
  - {features: *id001, files: [train.tfrecord], type: tfrecord}
"""
    )
    spec = FeatureSpec.from_yaml(tmp_path / "f.yaml")
    assert spec.hotness("item_id_pos") == 100 and spec.metadata == {}
    assert spec.source_spec["train"][0].features == ("label", "item_id_pos")
    for name in ("test.tfrecord", "train.tfrecord"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"rows can be counted in split_binary and ragged_binary"):
        spec.num_samples("train")
    spec.to_yaml(tmp_path / "g.yaml")
    assert "&" not in (tmp_path / "g.yaml").read_text()
    assert FeatureSpec.from_yaml(tmp_path / "g.yaml") == spec


def test_merge_keys(tmp_path):
    content = yaml.safe_dump(VALID).replace("user:\n", "user:\n    <<: {hotness: 2}\n", 1)
    (tmp_path / "f.yaml").write_text(content)
    assert FeatureSpec.from_yaml(tmp_path / "f.yaml").hotness("user") == 2


def test_round_trip(tmp_path):
    spec = FeatureSpec.from_dict(VALID, tmp_path)
    path = tmp_path / "feature_spec.yaml"
    path.write_text("old")
    spec.to_yaml(path)
    again = FeatureSpec.from_yaml(path)
    assert again == spec and again.to_dict() == spec.to_dict()
    assert list(again.feature_spec) == list(VALID["feature_spec"])
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600
    assert path.read_text().startswith("feature_spec:\n  label:\n    dtype: bool\n")


def test_numpy_values_in_metadata(tmp_path):
    content = changed("metadata", {"auc": np.float32(0.5), "counts": (np.int64(1), 2)})
    spec = FeatureSpec.from_dict(content, tmp_path)
    spec.to_yaml(tmp_path / "f.yaml")
    assert spec.metadata == {"auc": 0.5, "counts": [1, 2]}
    assert FeatureSpec.from_yaml(tmp_path / "f.yaml") == spec


def test_fingerprint_of_the_content():
    spec = FeatureSpec.from_dict(VALID, "here")
    reordered = {**VALID, "feature_spec": dict(reversed(VALID["feature_spec"].items()))}
    assert FeatureSpec.from_dict(reordered, "there").fingerprint() == spec.fingerprint()
    other = FeatureSpec.from_dict(changed("feature_spec/user/cardinality", 99), "here")
    assert other.fingerprint() != spec.fingerprint()
    swapped = FeatureSpec.from_dict(changed("channel_spec/categorical", ["tags", "user"]), "here")
    assert swapped.fingerprint() != spec.fingerprint()


@pytest.mark.parametrize(
    ("name", "suggested"),
    [("BOUGHT", "Bought"), ("bougt", "Bought"), ("target", ""), ("bought_date", "")],
)
def test_suggestions(name, suggested):
    expected = f"; did you mean '{suggested}'?" if suggested else ""
    assert rules.suggestion(name, ["tag", "price", "Bought"]) == expected


def test_messages_about_unknown_names():
    spec = FeatureSpec.from_dict(VALID, ".")
    with pytest.raises(ValueError, match="DLRM needs the channel 'user'; there are numerical,"):
        spec.require("DLRM", channels=("user",))
    with pytest.raises(ValueError, match="DLRM needs the split 'test'; there are train"):
        spec.require("DLRM", splits=("test",))
    with pytest.raises(ValueError, match=r"unknown feature 'usr'; there are .*did you mean 'user'"):
        spec.dtype("usr")
    with pytest.raises(ValueError, match=r"no channel 'labels'; .*did you mean 'label'"):
        spec.channel("labels")
    with pytest.raises(ValueError, match=r"feature 'age': cardinality is missing"):
        spec.cardinality("age")
    with pytest.raises(ValueError, match=r"requested the split 'trian'; .*did you mean 'train'"):
        spec.num_samples("trian")


def test_disjoint_channels_and_a_single_label():
    channels = ("numerical", "categorical", "label")
    shared = FeatureSpec.from_dict(changed("channel_spec/numerical", ["age", "user"]), ".")
    with pytest.raises(ValueError, match=r"'user' is in the channels 'numerical' and"):
        shared.require("DLRM", channels=channels)
    shared.require("other", channels=("numerical", "label"))
    for labels in ([], ["label", "age"]):
        spec = FeatureSpec.from_dict(changed("channel_spec/label", labels), ".")
        with pytest.raises(ValueError, match=rf"'label': {len(labels)} features.*DLRM needs one"):
            spec.require("DLRM", channels=("label",))
    long_label = FeatureSpec.from_dict(changed("feature_spec/label/hotness", 2), ".")
    with pytest.raises(ValueError, match=r"1 features \(label\) of \[2\] values per row"):
        long_label.require("DLRM", channels=("label",))


@pytest.fixture
def stored(tmp_path):
    """VALID with files of 4 rows."""
    (tmp_path / "train").mkdir()
    (tmp_path / "train/label.bin").write_bytes(bytes(4))
    (tmp_path / "train/num.bin").write_bytes(bytes(4 * 2 * 2))
    (tmp_path / "u0.bin").write_bytes(bytes(1))
    (tmp_path / "u1.bin").write_bytes(bytes(3))
    (tmp_path / "tags.bin").write_bytes(bytes(4 * 3 * 2))
    return FeatureSpec.from_dict(VALID, tmp_path, origin="f.yaml")


def test_damaged_files(stored):
    stored.validate_files()
    assert stored.num_samples("train") == 4, "of several files"
    folder = stored.base_directory
    (folder / "u1.bin").write_bytes(bytes(4))
    with pytest.raises(ValueError, match=r"chunk 0 \(train/label.bin\) has 4 rows and chunk 2"):
        stored.num_samples("train")
    (folder / "tags.bin").write_bytes(bytes(25))
    with pytest.raises(ValueError, match=r"'train/../tags.bin' has 25 bytes, not a whole number"):
        stored.validate_files("train")
    (folder / "u0.bin").unlink()
    with pytest.raises(ValueError, match=r"split 'train': chunk 2: file 'u0.bin' is not there"):
        stored.validate_files()
    (folder / "u0.bin").mkdir()
    with pytest.raises(ValueError, match=r"chunk 2: file 'u0.bin' is not there"):
        stored.validate_files()


@pytest.mark.parametrize(
    ("cardinality", "dtype"), [(128, "i1"), (129, "i2"), (2**31, "i4"), (2**31 + 1, "i8")]
)
def test_smallest_dtype(cardinality, dtype):
    assert smallest_id_dtype(cardinality) == np.dtype(dtype)
