"""New rows against those of training: units, missing values, exchanged columns, growth."""

import csv

import numpy as np
import pytest

from dataloading.spec.data_checks import read_findings
from preproc.checks.drift import amount_of_move
from tests.preproc.transcode.test_transcode import run


def rows(seed, num_rows=1000, **changes):
    """Orders; changes: column -> function of its values."""
    rng = np.random.default_rng(seed)
    columns = {
        "user": rng.integers(60, size=num_rows),
        "city": rng.choice(["Bern", "Oslo", "Rome"], num_rows),
        "price": rng.exponential(20, num_rows).round(2),
        "visits": rng.poisson(0.3, num_rows) / 2,
        "click": rng.integers(2, size=num_rows),
    }
    columns["user"] = [f"u{user}" for user in columns["user"]]
    return {name: changes.get(name, list)(values) for name, values in columns.items()}


def write(path, columns):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([[*columns], *zip(*columns.values(), strict=True)])
    return path


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drift")
    flags = ("--label=click", "--fill_missing=mean", "--split=0.8,0.1,0.1", "--strict")
    flags += ("--numerical=visits",)
    assert run(write(folder / "a.csv", rows(0)), *flags, output=folder / "out") == 0
    return folder / "out"


def cents(values):
    return [value * 100 for value in values]


def half_missing(values):
    return [value if i % 2 else "" for i, value in enumerate(values)]


def some_far(values):
    return [value if i % 50 else 99_999.0 for i, value in enumerate(values)]


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({}, {}),
        ({"price": cents}, {"price": "(+90 standard deviations); 92.6% of"}),
        ({"price": half_missing}, {"price": "50.0% of the values are missing, 0.0% in training"}),
        ({"price": some_far}, {"price": "2.2% of the numbers are outside of its range from"}),
        ({"city": half_missing}, {"city": "50.0% of the values are missing"}),
        ({"visits": lambda values: [v + 1 for v in values]}, {"visits": "standard deviations"}),
        ({"price": cents, "visits": half_missing}, {"price": "", "visits": ""}),
    ],
)
def test_columns_that_moved(changes, seen, known, tmp_path):
    path = write(tmp_path / "new.csv", rows(1, **changes))
    assert run(path, f"--vocabulary={known}", output=tmp_path / "out") == 0
    findings = [each for each in read_findings(tmp_path / "out") if each.check == "drift"]
    assert [finding.columns for finding in findings] == [(name,) for name in seen]
    for finding, text in zip(findings, seen.values(), strict=True):
        assert text in finding.seen
    # The remedy: training with such rows.
    if seen:
        flags = ("--label=click", "--fill_missing=mean", "--numerical=visits,price")
        assert run(path, *flags, output=tmp_path / "again") == 0
        known = f"--vocabulary={tmp_path / 'again'}"
        path = write(tmp_path / "later.csv", rows(2, **changes))
        assert run(path, known, "--strict", output=tmp_path / "later") == 0


@pytest.mark.parametrize(
    ("rows", "distance", "is_moved"),
    [(9, 1.0, False), (10, 0.96, True), (100, 0.4, False), (10_000, 0.3, True)],
)
def test_few_rows_must_move_farther(rows, distance, is_moved):
    assert (amount_of_move(rows, 1000, 0.0, distance, 0.0) >= 1) == is_moved


def test_growth_with_mostly_new_values(known, tmp_path, capsys):
    lost = write(tmp_path / "lost.csv", rows(1, user=lambda values: [v[1:] for v in values]))
    grow = (f"--vocabulary={known}", "--grow")
    assert run(lost, *grow, output=tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert "--grow: 100.0% of the values of 'user' are unknown to" in error
    assert error.strip().endswith("if the values are right, add --allow_mostly_new")
    assert run(lost, *grow, "--allow_mostly_new", output=tmp_path / "out") == 0
    # 24 of 60 users are new.
    some = rows(1, user=lambda values: [v + "x" if int(v[1:]) < 24 else v for v in values])
    assert run(write(tmp_path / "some.csv", some), *grow, output=tmp_path / "some") == 0
    assert run(lost, "--label=click", "--allow_mostly_new", output=tmp_path / "b") == 2
    assert "expected --grow" in capsys.readouterr().err
