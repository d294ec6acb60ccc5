"""Means, deviations and quantiles against NumPy, and hashes of row numbers."""

import itertools

import numpy as np
import pytest

from preproc.engines.engine import ROW
from preproc.fitting.distribution import Moments, moments, numbers_of, quantiles
from preproc.fitting.expressions import HASH_RANGE, hashed

MISSING = ("", "NA")


@pytest.fixture
def numbers(duckdb, read, count):
    """Returns the numbers of a column, of the lines of a CSV or of an array."""

    def numbers_of_rows(rows):
        counts, _ = count(read(rows), missing=MISSING)
        return numbers_of(duckdb, counts, MISSING)

    return numbers_of_rows


def column(values):
    return "x,y\n" + "".join(f"{value},1\n" for value in values)


@pytest.mark.parametrize(
    "values",
    [
        np.repeat([3, 1, 4], [50, 1, 20]),
        np.random.default_rng(0).gamma(2, 10, 3001),
        1e9 + np.arange(300) % 3,  # a small deviation around a large mean
        np.random.default_rng(1).lognormal(0, 5, 500),
    ],
    ids=["repeated", "gamma", "large mean", "long tail"],
)
def test_moments(values, duckdb, numbers):
    for rows in (column(map(repr, values.tolist())), {"x": values}):
        own = moments(duckdb, numbers(rows))
        assert own.count == len(values)
        assert own.mean == pytest.approx(values.mean(), rel=1e-12, abs=values.std() * 1e-8)
        assert own.deviation == pytest.approx(values.std(), rel=1e-8)
    logs = np.copysign(np.log1p(np.abs(values.astype(float))), values)
    own = moments(duckdb, numbers({"x": values}), log=True)
    assert own.mean == pytest.approx(logs.mean(), rel=1e-14, abs=logs.std() * 1e-8)
    assert own.deviation == pytest.approx(logs.std(), rel=1e-5)


def test_moments_without_values(duckdb, numbers):
    assert moments(duckdb, numbers(column(["NA", "", "x"]))) == Moments(0)
    constant = column(["0.1", "NA", "1e-1", " 0.1 "])
    assert moments(duckdb, numbers(constant)) == Moments(3, 0.1, 0.0, 0.1, 0.1)
    values = {"x": [1.0, np.nan, 3.0, np.inf, None]}
    assert moments(duckdb, numbers(values)) == Moments(2, 2.0, 1.0, 1.0, 3.0)
    wide = moments(duckdb, numbers({"x": [-1e200, 1e200]}))
    assert wide == Moments(2, 0.0, pytest.approx(1e200), -1e200, 1e200)


def test_negative_zero(duckdb, numbers):
    for rows in (column(["-0.0", "-0"]), {"x": [-0.0, -0.0]}):
        assert str(quantiles(duckdb, numbers(rows), 1)) == "[0.0, 0.0]"


@pytest.mark.parametrize("num_steps", [1, 64, 999])
@pytest.mark.parametrize(
    "values",
    [
        np.repeat([7, 1, 3], [30, 1, 10]),
        np.array([5]),
        np.random.default_rng(0).normal(0, 1, 1000).round(2),
    ],
    ids=["repeated", "one", "normal"],
)
def test_quantiles(values, num_steps, duckdb, numbers):
    """The value of the next rank at or above a quantile's."""
    own = quantiles(duckdb, numbers({"x": values}), num_steps)
    assert len(own) == num_steps + 1
    if len(values) > 1:
        ranks = np.arange(num_steps + 1) * (len(values) - 1)
        sorted_values = np.sort(values)
        floor, ceiling = sorted_values[ranks // num_steps], sorted_values[-(-ranks // num_steps)]
        assert all(
            low <= value <= high for low, value, high in zip(floor, own, ceiling, strict=True)
        )
    assert own[0] == values.min() and own[-1] == values.max()
    assert own == sorted(own) and set(own) <= set(values.tolist())


def test_quantiles_without_values(duckdb, numbers):
    assert quantiles(duckdb, numbers(column(["NA"])), 4) == []


def test_hashes(duckdb, read):
    """Uniform, and independent of neighbours and of other seeds."""
    num_rows = 100_000
    table = read({"x": np.zeros(num_rows, np.int8)})
    rows = table.select(**{f"s{seed}": hashed(table[ROW], seed) for seed in (0, 1, 2, 10**6)})
    drawn = duckdb.fetch(rows)
    values = {name: drawn[name].to_numpy() / HASH_RANGE for name in drawn.column_names}
    for own in values.values():
        assert own.min() >= 0 and own.max() < 1
        shares = np.histogram(own, 50, (0, 1))[0] / num_rows
        assert np.abs(shares - 0.02).max() < 5 * np.sqrt(0.02 * 0.98 / num_rows)
        for distance in (1, 2, 7, 64, 1000):
            assert abs(np.corrcoef(own[:-distance], own[distance:])[0, 1]) < 0.02, distance
        # Parts of neighbours, as rows of one session are.
        parts = (own.reshape(-1, 2) < 0.5).sum(axis=1)
        np.testing.assert_allclose(np.bincount(parts) / len(parts), [0.25, 0.5, 0.25], atol=0.01)
    for one, other in itertools.combinations(values.values(), 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.02
