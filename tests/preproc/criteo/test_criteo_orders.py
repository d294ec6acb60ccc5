"""Seeded orders of the training rows: permutations that can be computed for any row alone."""

import numpy as np
import pytest

from dataloading.spec.feature_spec import FeatureSpec
from preproc.criteo.generate_logs import generate_day
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output.output_order import OutputOrder, output_order, permuted
from preproc.criteo.output.splits import split_by_day, split_by_fraction
from preproc.criteo.prepare import prepare
from tests.preproc.criteo import criteo_reference as reference


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    for day in range(3):
        generate_day(folder / f"day_{day}", 400 + day, [11, day])
    return folder


def run(source, output, **changes):
    changes = {"frequency_threshold": 2, "memory_limit_bytes": 1 << 30, "threads": 2} | changes
    return prepare(CriteoOptions(input=source, output=output, **changes))


def rows_of(spec: FeatureSpec, split: str) -> list[bytes]:
    """Each row's bytes from all files, in the order in which they are stored."""
    columns = []
    for chunk in spec.source_spec[split]:
        data = (spec.base_directory / chunk.files[0]).read_bytes()
        columns.append(np.frombuffer(data, f"V{spec.sample_bytes(chunk)}"))
    return [b"".join(value.tobytes() for value in row) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("size", [1, 2, 7, 16, 1000, 65_537])
@pytest.mark.parametrize("key", [(0, 0), (1, 1)])
def test_permutation(size, key):
    everything = np.arange(size)
    result = permuted(everything, size, key)
    np.testing.assert_array_equal(np.sort(result), everything)
    some = everything[::3][::-1]
    np.testing.assert_array_equal(permuted(some, size, key), result[some])


def test_randomness_of_permutations():
    """Every row comes to every place equally often, and neighbours part: chi-square tests."""
    counts = np.zeros((30, 30))
    for seed in range(2000):
        counts[np.arange(30), permuted(np.arange(30), 30, (seed, 0))] += 1
    expected = 2000 / 30
    assert ((counts - expected) ** 2 / expected).sum() < 29**2 + 5 * np.sqrt(2 * 29**2)
    result = permuted(np.arange(200_000), 200_000, (0, 0))
    for step in (1, 447, 448):  # the network's width is 447
        joint, _, _ = np.histogram2d(result[:-step], result[step:], bins=20)
        expected = joint.sum() / 400
        assert ((joint - expected) ** 2 / expected).sum() < 399 + 5 * np.sqrt(2 * 399), step


def test_runs():
    """Days of 4, 3 and 6 rows, the last one validates and tests; by hand where rows may go."""
    splits = tuple(split_by_day([4, 3, 6]))
    assert output_order("input", 5, splits, [4, 3, 6]) == OutputOrder()
    assert output_order("any", 5, splits, [4, 3, 6]).is_sequential
    assert output_order("total_random", 5, splits, [4, 3, 6]) == OutputOrder(((0, 7),), 5)
    by_day = output_order("day_random", 5, splits, [4, 3, 6])
    assert by_day == OutputOrder(((0, 4), (4, 7)), 5)
    positions = by_day.positions(np.arange(13))
    assert sorted(positions[:4].tolist()) == [0, 1, 2, 3]
    assert sorted(positions[4:7].tolist()) == [4, 5, 6]
    assert positions[7:].tolist() == [7, 8, 9, 10, 11, 12]
    # A day without rows has no run, and so does not change the others' permutations.
    with_empty = tuple(split_by_day([4, 0, 3, 6]))
    assert output_order("day_random", 5, with_empty, [4, 0, 3, 6]) == by_day
    # Half of the second day's rows are held out.
    splits = tuple(split_by_fraction(8, 0.25, 0.0))
    assert output_order("day_random", 0, splits, [4, 4]).runs == ((0, 4), (4, 6))


def test_random_order_of_days(log, tmp_path):
    """Whole rows move within a day; validation and test rows stay; the seed decides."""
    plain = run(log, tmp_path / "plain", output_ordering="input")
    spec = run(log, tmp_path / "out", output_ordering="day_random", seed=3)
    before, after = rows_of(plain, "train"), rows_of(spec, "train")
    assert after[:400] != before[:400] and sorted(after[:400]) == sorted(before[:400])
    assert after[400:] != before[400:] and sorted(after[400:]) == sorted(before[400:])
    for split in ("validation", "test"):
        assert rows_of(spec, split) == rows_of(plain, split)
    assert spec.metadata["output_ordering"] == "day_random" and spec.metadata["seed"] == 3
    again = run(log, tmp_path / "again", output_ordering="day_random", seed=3, threads=1)
    assert rows_of(again, "train") == after


def test_any_order(log, tmp_path):
    spec = run(log, tmp_path / "out", output_ordering="any")
    assert "output_ordering" not in spec.metadata
    expected = reference.prepare(sorted(log.iterdir()), 2, seed=None)
    assert reference.files_of(tmp_path / "out") == expected


def test_flags():
    common = ["--input", "raw", "--output", "out", "--output_ordering"]
    assert reference.parse([*common, "day_random", "--seed", "7"]).seed == 7
    assert reference.parse([*common, "total_random"]).output_ordering == "total_random"
    assert reference.parse([*common[:-1], "--seed", "7"]).output_ordering == "total_random"
    with pytest.raises(ValueError, match="--seed .*--output_ordering"):
        reference.parse([*common, "input", "--seed", "7"])
    with pytest.raises(ValueError, match="--seed: .*-1"):
        reference.parse([*common, "total_random", "--seed", "-1"])
