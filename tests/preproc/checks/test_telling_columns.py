"""Columns that predict the label or the row are left out, honest ones are not."""

import csv

import numpy as np
import pyarrow as pa
import pytest
import yaml

from dataloading.spec.data_checks import read_findings
from dataloading.spec.feature_spec import FeatureSpec
from preproc.checks.telling_columns import column_auc, rank_auc
from tests.preproc.transcode.test_transcode import run

ROWS = 2000
RNG = np.random.default_rng(0)
LABEL = (RNG.random(ROWS) < 0.3).astype(int)
NUMBER = np.arange(ROWS)
HONEST = {
    "city": RNG.choice(["Bern", "Oslo", "Rome"], ROWS),
    "user": RNG.integers(200, size=ROWS),
    "price": RNG.normal(50, 10, ROWS).round(3) + 9 * LABEL,  # AUC .74
    "income": RNG.permutation(60_000)[:ROWS],  # all different
    "year": RNG.integers(1950, 2020, ROWS),
    "sku": [f"{i:05}" for i in NUMBER % 300],  # counts up, again and again
    "shelf": NUMBER % 300,
    "click": LABEL,
}
FAULTS = {
    "Unnamed: 0": (NUMBER, "row_numbers"),
    "order": (7000 + 2 * NUMBER, "row_numbers"),
    "countdown": (ROWS - NUMBER, "row_numbers"),
    "saved": (RNG.permutation(ROWS), "row_numbers"),
    "sampled": (RNG.permutation(int(1.8 * ROWS))[:ROWS], "row_numbers"),
    "index": (RNG.permutation(10**6)[:ROWS], "row_numbers"),
    "hash": ([f"{i:x}" for i in RNG.integers(1 << 60, 1 << 62, ROWS)], "unique_values"),
    "session_id": (RNG.permutation(10**6)[:ROWS], "unique_values"),
    "refund": (np.where(LABEL, RNG.normal(90, 3, ROWS).round(2), 0.0), "tells_label"),
    "paid_at": (np.where(LABEL, "2026-11-0" + RNG.choice([*"123"], ROWS), ""), "dates"),
    "total": ((100 * LABEL + RNG.normal(0, 5, ROWS)).round(4), "tells_label"),
    "inverse": ((RNG.normal(0, 5, ROWS) - 100 * LABEL).round(4), "tells_label"),
    "state": (np.where(LABEL, RNG.choice(["x", "z"], ROWS), "w"), "tells_label"),
}


FLAGS = ("--label=click", "--split=0.8,0.1,0.1", "--strict")


def write(path, columns):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([[*columns], *zip(*columns.values(), strict=True)])
    return path


def test_columns_that_are_left_out(tmp_path):
    columns = HONEST | {name: values for name, (values, _) in FAULTS.items()}
    path = write(tmp_path / "a.csv", columns)
    assert run(path, *FLAGS, output=tmp_path / "out") == 0
    checks = {
        finding.columns[0]: finding.check
        for finding in read_findings(tmp_path / "out")
        if finding.columns and "left out" in finding.remedy
    }
    assert checks == {name: check for name, (_, check) in FAULTS.items()}
    used = set(FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml").feature_spec)
    assert used == set(HONEST)


def test_kept_columns(tmp_path):
    """The remedy of the notes: --keep, or naming the channel."""
    names = ("order", "hash", "state", "refund", "saved")
    columns = {"click": LABEL} | {name: FAULTS[name][0] for name in names}
    kept = ("--keep=order,hash,state", "--numerical=refund", "--categorical=saved")
    path = write(tmp_path / "a.csv", columns)
    assert run(path, *FLAGS, *kept, output=tmp_path / "out") == 0
    used = set(FeatureSpec.from_yaml(tmp_path / "out/feature_spec.yaml").feature_spec)
    assert used == set(columns)


def test_listed_columns_are_warned_of(tmp_path, capsys):
    rows = zip(LABEL, HONEST["price"], HONEST["city"], FAULTS["state"][0], strict=True)
    (tmp_path / "a.csv").write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n")
    content = {
        "feature_spec": {name: {} for name in ("click", "price", "city", "state")},
        "channel_spec": {
            "label": ["click"], "numerical": ["price"], "categorical": ["city", "state"],
        },
    }  # fmt: skip
    chunk = {"type": "csv", "features": ["click", "price", "city", "state"], "files": ["a.csv"]}
    content["source_spec"] = {"train": [chunk]}
    (tmp_path / "feature_spec.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    assert run(tmp_path, "--categorify=all", "--strict", output=tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert "tells_label: 'state' alone predicts the label with an AUC of 1.0000: remove" in error
    # The remedy, for a feature that is then in no channel.
    content["channel_spec"]["categorical"] = ["city"]
    (tmp_path / "feature_spec.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    assert run(tmp_path, "--categorify=all", "--strict", output=tmp_path / "out") == 0


def test_few_rows_are_not_judged(tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("id,leak,click\n" + "".join(f"{i},{i % 2},{i % 2}\n" for i in range(60)))
    assert run(path, "--label=click", output=tmp_path / "out") == 0
    assert read_findings(tmp_path / "out") == []


def test_auc_of_a_column():
    labels = np.array([0, 0, 1, 1, 0, 1] * 500, bool)
    folds = np.arange(3000) // 3 % 5
    values = np.array([1.0, 2.0, 3.0, 3.0, 3.0, 1.0] * 500)
    # Of 9 pairs: a positive 1 wins 1.5, each of two positive 3s 2.5. By value 2 < 1 < 3.
    expected = (1.5 + 2 * 2.5) / 9
    assert rank_auc(np.array([1, 2, 3]), np.array([0, 1, 2])) == pytest.approx(expected)
    assert column_auc(pa.array(values), labels, folds) == pytest.approx(expected, abs=1e-3)
    texts = pa.array(["a", "b", "c", "c", "c", "a"] * 500)
    assert column_auc(texts, labels, folds) == pytest.approx(expected, abs=1e-3)
    missing = pa.array(np.where(labels, np.nan, values))
    assert column_auc(missing, labels, folds) == 1.0
    unique = pa.array([f"v{i}" for i in range(3000)])
    assert column_auc(unique, labels, folds) < 0.6
