"""`python -m dataloading.describe` on users and items: facts by hand, and every broken rule."""

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


def test_candidate_lists(tmp_path, capsys):
    code, report = described(tmp_path, capsys)
    assert code == 0
    assert "train: 5 rows, 30 bytes" in report
    assert "item (item, int32): cardinality 6, about 3 ids in use, min 0, mean 1, max 2" in report
    assert "test: 6 rows, share of 1 in label 0.5000, 3 candidate lists of 2, 42 bytes" in report


@pytest.mark.parametrize(
    "files",
    [
        {"test_user": np.array([0, 0, 1, 2, 0, 1], "<i2")},
        {"test_label": np.array([1, 0, 0, 1, 0, 0], "u1")},
        {name: array[:1] for name, array in FILES.items() if name.startswith("test")},
    ],
    ids=["two users", "no positive", "shorter than a list"],
)
def test_broken_lists(files, tmp_path, capsys):
    code, report = described(tmp_path, capsys, **files)
    assert code == 1
    assert re.search("broken: 1 faults\n.*split 'test'.*test_samples_per_series", report), report
