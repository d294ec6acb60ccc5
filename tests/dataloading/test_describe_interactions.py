"""`python -m dataloading.describe` on users and items: facts by hand, and every broken rule."""

import copy
import re

import numpy as np
import pytest
import yaml

from dataloading import describe

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
        for split, names in (("train", ("user", "item")), ("test", ("user", "item", "label")))
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


def test_candidate_lists(tmp_path, capsys):
    code, report = described(tmp_path, capsys)
    assert code == 0
    assert "train: 5 rows, 30 bytes" in report
    assert "item (item, int32): cardinality 6, about 3 ids in use, min 0, mean 1, max 2" in report
    assert "test: 6 rows, click rate 0.5000, 3 candidate lists of 2, 42 bytes" in report


@pytest.mark.parametrize(
    "files",
    [
        {"test_user": np.array([0, 0, 1, 2, 0, 1], "<i2")},
        {"test_label": np.array([1, 0, 0, 1, 0, 0], "u1")},
        {"test_label": np.array([1, 1, 1, 1, 1, 0], "u1")},
        {name: array[:5] for name, array in FILES.items() if name.startswith("test")},
        {name: array[:1] for name, array in FILES.items() if name.startswith("test")},
    ],
    ids=["two users", "no positive", "two positives", "cut off", "shorter than a list"],
)
def test_broken_lists(files, tmp_path, capsys):
    code, report = described(tmp_path, capsys, **files)
    assert code == 1
    assert re.search("broken: 1 faults\n.*split 'test'.*test_samples_per_series", report), report


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({**CONTENT, "metadata": {}}, "'test': metadata: 'test_samples_per_series' is missing"),
        (changed(metadata={"test_samples_per_series": -1}), "'test_samples_per_series' is -1"),
        (changed(metadata={"train_samples_per_series": 5}), "'train_samples_per_series': rows of"),
        (
            changed(source_spec={"test": CONTENT["source_spec"]["test"][:2]}),
            "_per_series' is 2, and",
        ),
        (
            changed(channel_spec={"user": ["user", "item"], "item": []}),
            "channel 'user': 2 features",
        ),
        (changed(feature_spec={"user": {"dtype": "int16"}}), "feature 'user': cardinality is"),
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
