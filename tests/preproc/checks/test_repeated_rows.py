"""Rows of train in other splits: copies, rows that are equal by chance, pairs of interactions."""

import csv
import re

import numpy as np
import pytest

from dataloading.spec.data_checks import read_findings
from preproc.checks.repeated_rows import most_repeated
from preproc.checks.report import PASSED, WARNING
from tests.preproc.transcode.test_transcode import run


def write(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


@pytest.mark.parametrize(
    ("rows", "repeated", "different", "expected", "level"),
    [
        (1000, 9, 0, 4.5, PASSED),  # too few
        (1000, 20, 0, 10.0, WARNING),
        (10_000, 20, 0, 10.0, PASSED),  # too small a share
        (1000, 20, 2, 10.0, PASSED),  # labels differ as by chance
        (1000, 200, 0, 4.0, PASSED),  # too few positive labels to decide
        (1000, 20, 0, None, WARNING),
    ],
)
def test_level(rows, repeated, different, expected, level):
    splits = [("validation", 9000, 0, 0, 9.0), ("test", rows, repeated, different, expected)]
    assert most_repeated(splits, True).level == level


def clicks(num_copies, num_prices):
    rng = np.random.default_rng(0)
    rows = [[f"c{rng.integers(5)}", rng.integers(num_prices), int(rng.random() < 0.4)]
            for _ in range(2000)]  # fmt: skip
    return [["city", "price", "click"], *rows, *rows[:num_copies]]


def test_copies_are_told_from_equal_rows(tmp_path, capsys):
    flags = ("--label=click", "--split=0.8,0.1,0.1", "--numerical=price")
    path = write(tmp_path / "copies.csv", clicks(400, 100_000))
    assert run(path, *flags, "--strict", output=tmp_path / "strict") == 2
    error = capsys.readouterr().err
    share = re.search(r"--strict: 1 checks warn:\n  repeated_rows: ([\d.]+)%", error)[1]
    assert 10 < float(share) < 35
    assert not (tmp_path / "strict").exists()
    # The remedy: without copies.
    head, *rows = clicks(400, 100_000)
    rows = dict.fromkeys(map(tuple, rows))
    path = write(tmp_path / "single.csv", [head, *rows])
    assert run(path, *flags, "--strict", output=tmp_path / "single") == 0
    # Of 50 different rows, equal ones with other labels are everywhere.
    path = write(tmp_path / "few.csv", clicks(0, 10))
    assert run(path, *flags, "--strict", output=tmp_path / "few") == 0


def pairs():
    rng = np.random.default_rng(0)
    rows = [[f"u{u}", f"i{i}"] for u in range(100) for i in rng.choice(50, 8, replace=False)] * 3
    rng.shuffle(rows)
    return [["user", "item"], *rows]


def test_given_splits_of_interactions(tmp_path):
    _, *rows = pairs()
    write(tmp_path / "a.csv", rows[:1500])
    write(tmp_path / "b.csv", rows[1500:])
    chunk = "{type: csv, features: [user, item], files: [%s.csv]}"
    (tmp_path / "feature_spec.yaml").write_text(
        "feature_spec: {user: {}, item: {}}\n"
        "source_spec:\n"
        + f"  train: [{chunk % 'a'}]\n  test: [{chunk % 'b'}]\n"
        + "channel_spec: {user: [user], item: [item]}\n"
    )
    flags = ("--categorify=all", "--frequency_threshold=0")
    assert run(tmp_path, *flags, output=tmp_path / "out") == 0
    (pair,) = read_findings(tmp_path / "out")
    repeated = len([row for row in rows[1500:] if row in rows[:1500]]) / 900
    assert pair.seen == f"{repeated:.1%} of the interactions of test are in train, too"
