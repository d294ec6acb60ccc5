"""`python -m dataloading.describe` on users and items: facts by hand, and every broken rule."""

import copy
import re

import numpy as np
import pytest
import yaml

from dataloading.describe import __main__ as describe
from dataloading.describe import facts

# Five interactions; then three candidate lists of two rows.
CONTENT = {
    "feature_spec": {
        "user": {"dtype": "int16", "cardinality": 4},
        "item": {"dtype": "int32", "cardinality": 6},
        "label": {"dtype": "bool"},
    },
    "source_spec": {
        split: [
            {"type": "split_binary", "features": [name], "files": [f"{split}_{name}"]}
            for name in names
        ]
        for split, names in (
            ("train", ("user", "item")),
            ("test", ("user", "item", "label")),
        )
    },
    "channel_spec": {"user": ["user"], "item": ["item"], "label": ["label"]},
    "metadata": {"test_samples_per_series": 2},
}
FILES = {
    "train_user": np.array([0, 1, 2, 3, 0], "<i2"),
    "train_item": np.array([0, 1, 1, 2, 1], "<i4"),
    "test_user": np.array([0, 0, 1, 1, 0, 0], "<i2"),
    "test_item": np.array([5, 1, 2, 2, 5, 3], "<i4"),
    "test_label": np.array([1, 0, 0, 1, 1, 0], "u1"),
}


def described(folder, capsys, content=CONTENT, **files) -> tuple[int, str]:
    for name, array in {**FILES, **files}.items():
        array.tofile(folder / name)
    (folder / "feature_spec.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    code = describe.main([str(folder)])
    report = capsys.readouterr()
    return code, report.out + report.err


def changed(**sections) -> dict:
    """CONTENT with other keys in its sections."""
    return {**CONTENT, **{name: {**CONTENT[name], **keys} for name, keys in sections.items()}}


def test_facts_by_hand(tmp_path, capsys):
    code, report = described(tmp_path, capsys)
    assert code == 0
    assert report.splitlines() == [
        "train: 5 rows, each an interaction, 30 bytes",
        "  train_user: 10 bytes",
        "    user (user, int16): cardinality 4, 4 ids in use; most frequent: 0 40.0%, 1 20.0%, "
        "2 20.0%, 3 20.0%",
        "  train_item: 20 bytes",
        "    item (item, int32): cardinality 6, 3 ids in use; most frequent: 1 60.0%, 0 20.0%, "
        "2 20.0%",
        "test: 6 rows, 3 candidate lists of 2, 42 bytes",
        "  test_user: 12 bytes",
        "    user (user, int16): cardinality 4, 2 ids in use; most frequent: 0 66.7%, 1 33.3%",
        "  test_item: 24 bytes",
        "    item (item, int32): cardinality 6, 4 ids in use; most frequent: 2 33.3%, 5 33.3%, "
        "1 16.7%, 3 16.7%",
        "  test_label: 6 bytes",
        "    label (label, bool): min 0, mean 0.5, max 1, NaN 0, infinite 0",
        "complete: every file is there, has all its rows, and no value is out of range",
    ]


def test_items_without_rows(tmp_path, capsys):
    features = {"item": {"dtype": "int32", "cardinality": 1000}}
    code, report = described(tmp_path, capsys, changed(feature_spec=features))
    assert code == 0
    assert report.count("    note: ") == 1  # test has no such line
    assert "note: negatives are drawn from all 1,000 items, and 'train' has 3 of them; " in report


def test_positives_alone(tmp_path, capsys):
    content = changed(source_spec={"test": CONTENT["source_spec"]["test"][:2]})
    del content["metadata"]
    code, report = described(tmp_path, capsys, content)
    assert code == 0 and "test: 6 rows, each an interaction, 36 bytes" in report
    content = changed(source_spec={"train": CONTENT["source_spec"]["test"]})
    del content["source_spec"]["test"]
    code, report = described(tmp_path, capsys, content, test_label=np.ones(6, "u1"))
    assert code == 0 and "train: 6 rows, each an interaction, 42 bytes" in report
    code, report = described(tmp_path, capsys, content)
    assert code == 0 and "train: 6 rows, 3 of them stored negatives (label 0), 42" in report


BROKEN = {
    "two users": (
        {"test_user": np.array([0, 0, 1, 2, 0, 1], "<i2")},
        "feature 'user': 2 candidate lists of more than one user, the first in rows 2 to 3 ",
    ),
    "no positive": (
        {"test_label": np.array([1, 0, 0, 1, 0, 0], "u1")},
        "feature 'label': 1 candidate lists without exactly one label of 1, the first in rows 4 ",
    ),
    "two positives": (
        {"test_label": np.array([1, 1, 1, 1, 1, 0], "u1")},
        "feature 'label': 2 candidate lists without exactly one label of 1, the first in rows 0 ",
    ),
    "cut off": (
        {name: array[:5] for name, array in FILES.items() if name.startswith("test")},
        r"'test': 5 rows, not whole candidate lists of 2 \('test_samples_per_series' in ",
    ),
    "shorter than a candidate list": (
        {name: array[:1] for name, array in FILES.items() if name.startswith("test")},
        "'test': 1 rows, not whole candidate lists of 2 ",
    ),
}


@pytest.mark.parametrize("block_bytes", [3, 12, 1 << 20])
@pytest.mark.parametrize("fault", BROKEN)
def test_broken_lists(fault, block_bytes, tmp_path, capsys, monkeypatch):
    """Independent of the size of a block."""
    monkeypatch.setattr(facts, "_BLOCK_BYTES", block_bytes)
    files, message = BROKEN[fault]
    code, report = described(tmp_path, capsys, **files)
    assert code == 1 and "broken: 1 faults" in report
    assert re.search(message, report), report


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({**CONTENT, "metadata": {}}, "'test': metadata: 'test_samples_per_series' is missing"),
        (
            changed(metadata={"test_samples_per_series": -1}),
            "metadata: 'test_samples_per_series' is -1; expected the rows of a candidate list",
        ),
        (
            changed(metadata={"train_samples_per_series": 5}),
            "metadata: 'train_samples_per_series': rows of 'train' come in no candidate lists",
        ),
        (
            changed(source_spec={"test": CONTENT["source_spec"]["test"][:2]}),
            "'test': metadata: 'test_samples_per_series' is 2, and there is no label",
        ),
        (
            changed(channel_spec={"user": ["user", "item"], "item": []}),
            "1 faults.*channel 'user': 2 features .*needs one feature of one value",
        ),
        (
            changed(feature_spec={"user": {"dtype": "int16"}}),
            "feature 'user': cardinality is missing; the features of channel 'user' are ids",
        ),
        (
            changed(channel_spec={"label": ["label", "item"]}),
            "feature 'item' is in the channels 'item' and 'label'",
        ),
    ],
)
def test_broken_specs(content, message, tmp_path, capsys):
    code, report = described(tmp_path, capsys, copy.deepcopy(content))
    assert code == 1
    assert re.search("broken: .*" + message, report, re.DOTALL), report


def test_single_report_of_other_faults(tmp_path, capsys):
    """Candidate lists are not looked at where rows cannot be paired, or are of another type."""
    code, report = described(tmp_path, capsys, test_label=FILES["test_label"][:4])
    assert code == 1 and "broken: 1 faults" in report and "differ in their number of rows" in report
    content = copy.deepcopy(CONTENT)
    content["source_spec"]["test"][1]["type"] = "csv"
    code, report = described(tmp_path, capsys, content, test_label=np.zeros(6, "u1"))
    assert code == 0 and "those of type csv were not checked" in report
