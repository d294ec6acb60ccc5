"""`--transform auto`: shapes of generated columns, and the edges of the choice."""

import numpy as np
import pytest

from preproc.encoding.numbers import signed_log
from preproc.fitting.distribution import Moments
from preproc.fitting.transformation import AUTO, LOG, NUM_STEPS, QUANTILE, STANDARDIZE, scale_of

NUM_ROWS = 20_000
RNG = np.random.default_rng(0)
NORMAL = RNG.normal(40, 12, NUM_ROWS)
RARE = RNG.random(NUM_ROWS)  # for shares


def moments(values):
    return Moments(len(values), values.mean(), values.std(), values.min(), values.max())


def scale(values, transformation=AUTO):
    """The shape of numbers, of exact quantiles."""
    values = np.sort(np.asarray(values, float))
    steps = values[np.arange(NUM_STEPS + 1) * (len(values) - 1) // NUM_STEPS]
    own = moments(values)
    return scale_of(transformation, steps.tolist(), own, lambda: moments(signed_log(values)))


def placeholder(value, count):
    return np.where(np.arange(NUM_ROWS) < count, value, NORMAL)


SHAPES = {
    "normal": (NORMAL, STANDARDIZE),
    "ratings": (RNG.integers(1, 6, NUM_ROWS), STANDARDIZE),
    "flag": (RARE < 0.05, STANDARDIZE),
    "gamma": (RNG.gamma(2, 10, NUM_ROWS), STANDARDIZE),
    "bimodal": (NORMAL + 100 * (RARE < 0.3), STANDARDIZE),
    "bounded": (RNG.beta(0.1, 0.1, NUM_ROWS), STANDARDIZE),
    "log-normal": (RNG.lognormal(0, 1.5, NUM_ROWS), LOG),
    "Pareto": (np.floor(10 * RNG.pareto(0.8, NUM_ROWS)), LOG),
    "zeros and a tail": (RNG.lognormal(3, 1.5, NUM_ROWS) * (RARE < 0.5), LOG),
    "heavy negative tail": (-RNG.lognormal(3, 2, NUM_ROWS), LOG),
    "both tails": (1000 * RNG.standard_cauchy(NUM_ROWS), LOG),
    "small units": (RNG.lognormal(-12, 2, NUM_ROWS), QUANTILE),
    "nearly all zeros": (RNG.geometric(0.05, NUM_ROWS) * (RARE < 0.02), QUANTILE),
    "one placeholder": (placeholder(999_999_999_999, 1), QUANTILE),
    "0.1 % placeholders": (placeholder(-9999, 20), QUANTILE),
    "10 % placeholders": (placeholder(-999, 2000), QUANTILE),
    "a log-normal placeholder": ([*RNG.lognormal(3, 1, NUM_ROWS), -1e15], QUANTILE),
    "ratings and a placeholder": ([*RNG.integers(1, 6, NUM_ROWS), 999_999_999_999], QUANTILE),
    "60 rows and a placeholder": ([*range(60), 10**9], QUANTILE),
    "29 rows": ([*range(28), 10**9], STANDARDIZE),
    "one value": ([3.5] * 10, STANDARDIZE),
    "one row": ([3.5], STANDARDIZE),
    "two values": ([1, 10**9] * 30, STANDARDIZE),
}


@pytest.mark.parametrize("name", SHAPES)
def test_choices(name):
    values, expected = SHAPES[name]
    own = scale(values)
    assert own.transformation == expected, own
    assert own.is_chosen and own.farthest >= 0


def test_choices_of_other_units():
    """The choice between standardized values and others does not depend on units."""
    for name, (values, expected) in SHAPES.items():
        for factor, offset in ((1e6, 0), (0.5, -1000)):
            own = scale(np.asarray(values, float) * factor + offset)
            assert (own.transformation == STANDARDIZE) is (expected == STANDARDIZE), name


def test_measures_by_hand():
    """Values 0 to 100: mean 50, deviation 29.15; quartiles 25 and 75."""
    own = scale(np.arange(101), STANDARDIZE)
    assert own.quartiles == pytest.approx(50 / np.sqrt(850))
    assert own.farthest == pytest.approx(50 / np.sqrt(850))
    assert own.linearity == pytest.approx(0.97, abs=0.01) and not own.is_chosen
    assert scale(np.arange(101) % 2, STANDARDIZE).linearity == pytest.approx(1, abs=0.01)
    outlier = scale([*range(100), 10**9], STANDARDIZE)
    assert outlier.farthest == pytest.approx(10, abs=0.01)  # sqrt(100) of 101 values
    assert outlier.linearity < 1e-6 and outlier.is_decided_by_few
    rare = scale([0] * 995 + [1] * 5, STANDARDIZE)
    assert rare.linearity is None and not rare.is_decided_by_few


def test_given_transformations():
    tail, _ = SHAPES["Pareto"]
    assert scale(tail, STANDARDIZE).is_decided_by_few
    assert not scale(tail, LOG).is_decided_by_few
    assert scale(SHAPES["0.1 % placeholders"][0], LOG).linearity < 0.85
    assert scale(SHAPES["ratings and a placeholder"][0], STANDARDIZE).is_decided_by_few
    assert scale(SHAPES["small units"][0], LOG).is_decided_by_few
