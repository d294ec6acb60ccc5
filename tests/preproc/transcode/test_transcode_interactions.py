"""Raw interactions to the data set that models of users and items read: by hand, every refusal."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataloading import describe
from dataloading.spec.feature_spec import FeatureSpec
from preproc import gen_csv
from preproc.encoding.encoder import Encoder
from preproc.transcode import __main__ as transcode
from tests.preproc.transcode.test_transcode import raw as write_raw
from tests.preproc.transcode.test_transcode import refused, run, vocabulary

# Four interactions, and two candidate lists of three rows.
TRAIN_ROWS = "ann,tea\nbob,tea\nann,milk\ncy,tea\n"
TEST_ROWS = "ann,soap,1\nann,tea,0\nann,milk,0\nbob,tea,0\nbob,milk,1\nbob,milk,0\n"
SPEC = {
    "feature_spec": {"label": {}, "user": {"cardinality": "auto"}, "item": {}},
    "source_spec": {
        "train": [{"type": "csv", "features": ["user", "item"], "files": ["train.csv"]}],
        "test": [{"type": "csv", "features": ["user", "item", "label"], "files": ["test.csv"]}],
    },
    "channel_spec": {"user": ["user"], "item": ["item"], "label": ["label"]},
    "metadata": {"test_samples_per_series": 3, "from": "a shop"},
}
NUMBERS = {"ann": 0, "bob": 1, "cy": 4, "tea": 0, "milk": 5, "soap": 2}
LABELLED = {"train": [{"type": "csv", "features": ["user", "item", "label"], "files": ["t"]}]}


def numbered(text: str) -> str:
    """Returns the rows with NUMBERS in place of names."""
    return re.sub("[a-z]+", lambda values_found: str(NUMBERS[values_found[0]]), text)


def changed(**sections) -> dict:
    """SPEC with other sections; a section that is a mapping replaces some of its keys."""
    return {**SPEC, **{name: {**SPEC[name], **content} for name, content in sections.items()}}


def raw(folder: Path, spec: dict = SPEC, train=TRAIN_ROWS, test=TEST_ROWS, **files) -> Path:
    return write_raw(folder, spec, **{"train.csv": train, "test.csv": test, **files})


def stored(folder: Path, split: str) -> dict[str, list]:
    """The values of each feature that a split stores."""
    spec = FeatureSpec.from_yaml(folder / "feature_spec.yaml")
    return {
        chunk.features[0]: np.fromfile(folder / chunk.files[0], spec.dtype(chunk.features[0]))
        .astype(int)
        .tolist()
        for chunk in spec.source_spec[split]
    }


def test_numbers_by_hand(tmp_path, capsys):
    """Ids as they are; lists stay together, in order, with their duplicates; metadata stay."""
    folder = raw(tmp_path, train=numbered(TRAIN_ROWS), test=numbered(TEST_ROWS))
    assert run(folder) == 0
    report = capsys.readouterr().out
    assert "train: 4 rows, each an interaction\ntest: 6 rows, 2 candidate lists of 3\n" in report
    assert re.findall(r"(\w+) +\w+ +(\d) ids\n", report) == [("user", "5"), ("item", "6")]
    out = tmp_path / "out"
    assert stored(out, "train") == {"user": [0, 1, 0, 4], "item": [0, 0, 5, 0]}
    assert stored(out, "test") == {
        "user": [0, 0, 0, 1, 1, 1],
        "item": [2, 0, 5, 0, 5, 5],
        "label": [1, 0, 0, 0, 1, 0],
    }
    spec = FeatureSpec.from_yaml(out / "feature_spec.yaml")
    assert spec.feature_spec == {
        "label": {"dtype": "bool"},
        "user": {"dtype": "int8", "cardinality": 5},
        "item": {"dtype": "int8", "cardinality": 6},
    }
    assert spec.channel_spec == {"user": ("user",), "item": ("item",), "label": ("label",)}
    own = {"rows": {"train": 4, "test": 6}, "unknown_share": {"train": {}, "test": {}}}
    encoder = Encoder.load(out / "encoder").digest
    assert spec.metadata == {
        "test_samples_per_series": 3, "from": "a shop", "transcode": own, "encoder": encoder,
    }  # fmt: skip
    assert describe.main([str(out)]) == 0


def test_texts_by_hand(tmp_path, capsys):
    """Names get ids by falling count in train; a list is one of raw users, known or not."""
    unknown = "dan,tea,1\ndan,soap,0\ndan,milk,0\nfay,tea,1\nfay,tea,0\nfay,tea,0\n"
    folder = raw(tmp_path, test=TEST_ROWS + unknown)
    assert run(folder, "--categorify=all") == 0
    assert "test: 12 rows, 4 candidate lists of 3\n" in capsys.readouterr().out
    out = tmp_path / "out"
    assert list(vocabulary(out, "user").items()) == [("ann", 2), ("bob", 1), ("cy", 1)]
    assert list(vocabulary(out, "item").items()) == [("tea", 3), ("milk", 1)]
    assert stored(out, "train") == {"user": [1, 2, 1, 3], "item": [1, 1, 2, 1]}
    assert stored(out, "test")["user"] == [1] * 3 + [2] * 3 + [0] * 6
    assert stored(out, "test")["item"] == [0, 1, 2, 1, 2, 2, 1, 0, 2, 1, 1, 1]
    # One that joins two unknown users would pass once they are ids.
    folder = raw(tmp_path / "joined", test=TEST_ROWS + unknown.replace("dan,milk", "eve,milk"))
    message = (
        "/test.csv, row 9 .*: the candidate list of 3 rows that ends there is of several users"
    )
    refused(capsys, message, folder, "--categorify=all")


def test_missing_users_and_items(tmp_path, capsys):
    """The first row without a user or item is named with the spelling; the remedy makes it one."""
    path, flags = tmp_path / "log.csv", ("--user=user", "--item=item", "--split=0.5,0.25,0.25")

    def error(*more) -> str:
        assert run(path, *flags, *more, output=tmp_path / "out") == 2
        return capsys.readouterr().err

    rows = "user,item\n" + "".join(f"u{i},i{i % 7}\n" for i in range(20))
    path.write_text(f"{rows}u1,\n NULL ,i1\n")
    assert re.search("log.csv, row 21 .*: 'item' is missing; possible solutions", error())
    path.write_text(f"{rows}u1,?\n NULL ,i1\n")
    message = r"row 22 .*: 'user' is missing \('NULL' is a spelling .* --missing_values '(=.*?)'"
    remedy = re.search(message, error())[1]
    assert run(path, *flags, f"--missing_values={remedy}", output=tmp_path / "kept") == 0
    assert re.search(r"row 21 .*: 'item' is missing \('\?' is", error("--missing_values=?"))
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"user": [1.0, None, 2.0], "item": ["a", "b", "-"]}), path)
    assert re.search("row 2 .*: 'user' is missing;", error())


def test_positives_alone(tmp_path, capsys):
    """No label anywhere, Parquet, a validation split, hashed users."""
    chunk, names = {"type": "parquet", "features": ["item", "user"]}, ("train", "validation")
    spec = {
        "feature_spec": {"user": {}, "item": {"dtype": "int64"}},
        "source_spec": {name: [{**chunk, "files": [name]}] for name in names},
        "channel_spec": {"item": ["item"], "user": ["user"]},
    }
    folder = raw(tmp_path, spec)
    for name in names:
        pq.write_table(pa.table({"user": ["x", "x", "z"], "item": [7, 2, 2]}), folder / name)
    assert run(folder, "--hash_buckets=user=50") == 0
    assert "validation: 3 rows, each an interaction\n" in capsys.readouterr().out
    users = stored(tmp_path / "out", "validation").pop("user")
    assert users[0] == users[1] != users[2]
    assert stored(tmp_path / "out", "train") == {"user": users, "item": [7, 2, 2]}
    data_set = FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml")
    assert data_set.channel_spec == {"user": ("user",), "item": ("item",)}
    assert data_set.feature_spec["item"] == {"dtype": "int64", "cardinality": 8}


def test_more_rows_of_an_earlier_data_set(tmp_path, capsys):
    """Candidate lists with labels next to a data set whose rows had none; and another feature."""
    spec = changed()
    spec["source_spec"] = {"train": SPEC["source_spec"]["train"]}
    spec["feature_spec"] = {"user": {}, "item": {}}
    spec["channel_spec"] = {"user": ["user"], "item": ["item"]}
    known = raw(tmp_path / "known", spec)
    assert run(known, "--categorify=all") == 0
    later = changed()
    later["source_spec"] = {"test": SPEC["source_spec"]["test"]}
    folder = raw(tmp_path / "later", later)
    assert run(folder, f"--vocabulary={known / 'out'}") == 0
    assert stored(folder / "out", "test") == {
        "user": [1, 1, 1, 2, 2, 2],
        "item": [0, 1, 2, 1, 2, 2],
        "label": [1, 0, 0, 0, 1, 0],
    }
    later["channel_spec"] = {"user": ["item"], "item": ["user"], "label": ["label"]}
    capsys.readouterr()
    message = "channel 'user' has item; .* has user; expected the same features"
    refused(capsys, message, raw(tmp_path / "other", later), f"--vocabulary={known / 'out'}")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (changed(channel_spec={"categorical": ["item"]}), "channels of two kinds of data: user"),
        (changed(channel_spec={"item": []}), "channel 'item': none; expected one feature"),
        (changed(channel_spec={"usr": ["user"]}), "unknown channel 'usr'.*did you mean 'user'"),
        (changed(feature_spec={"item": {"hotness": 2}}), "'item': hotness is 2; a row has one"),
        (changed(metadata={"train_samples_per_series": 3}), "'train_samples_per_series' is 3; "),
        ({**SPEC, "metadata": {}}, "split 'test': metadata: 'test_samples_per_series' is"),
        (changed(metadata={"test_samples_per_series": 4}), "test.csv, row 4 .*list of 4 rows"),
    ],
)
def test_bad_specs(spec, message, tmp_path, capsys):
    folder = raw(tmp_path, spec, train=numbered(TRAIN_ROWS), test=numbered(TEST_ROWS))
    refused(capsys, message, folder)


LIST = "0,0,1\n0,1,0\n0,2,0\n"


@pytest.mark.parametrize(
    ("test", "more", "message"),
    [
        ("0,0,1\n0,1,0\n1,2,0\n", "", "test.csv, row 3 .*3 rows .* several users in 'user'"),
        ("0,0,0\n0,1,0\n0,2,0\n", "", "test.csv, row 3 .*3 rows.*one label of 1 in 'label'"),
        (LIST * 2, LIST + "1,1,1\n" * 2 + "1,1,0\n", "/more, row 6 .*one label of 1"),
        (LIST + "0,1,1\n", "0,1,0\n2,1,0\n", "/more, row 2 .*several users"),
        (LIST, "0,1,1\n0,1,0\n", "'test': its last candidate list has 2 rows"),
    ],
    ids=["users", "no positive", "two positives", "across files", "cut off"],
)
def test_broken_rows(test, more, message, tmp_path, capsys):
    files = {"t": "0,0,1\n", "more": more, "test": test}
    test = [{**SPEC["source_spec"]["test"][0], "files": ["test.csv", "more"]}]
    folder = raw(tmp_path, changed(source_spec={**LABELLED, "test": test}), **files)
    refused(capsys, message, folder)


def test_labels_of_train(tmp_path):
    labels = [0, 1, 0, 1]
    rows = zip(numbered(TRAIN_ROWS).split(), labels, strict=True)
    text = "".join(f"{row},{label}\n" for row, label in rows)
    folder = raw(tmp_path, changed(source_spec=LABELLED), t=text, test=numbered(TEST_ROWS))
    assert run(folder) == 0
    assert stored(tmp_path / "out", "train")["label"] == labels


def test_original_names(tmp_path, capsys):
    """--path, and the names of channels in NVIDIA's recipe."""
    channels = {f"{name}_ch": features for name, features in SPEC["channel_spec"].items()}
    spec = {**SPEC, "channel_spec": channels}
    folder = raw(tmp_path, spec, train=numbered(TRAIN_ROWS), test=numbered(TEST_ROWS))
    flags = ["--feature_spec_in=feature_spec.yaml", "--feature_spec_out=f.yaml"]
    assert transcode.main([f"--path={folder}", f"--output={folder / 'out'}", *flags]) == 0
    assert set(FeatureSpec.from_yaml(folder / "out/f.yaml").channel_spec) == {*SPEC["channel_spec"]}
    flags = [f"--feature_spec_in={folder / 'feature_spec.yaml'}", f"--output={tmp_path / 'drawn'}"]
    assert gen_csv.main(flags) == 2
    assert "expected clicks, got users and items" in capsys.readouterr().err
