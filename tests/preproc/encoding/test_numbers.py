"""Transformations of numbers, and bins."""

import math

import numpy as np
import pyarrow as pa
import pytest

from preproc.encoding.arrow_columns import InvalidValue
from preproc.encoding.numbers import Bins, Number


def number(**settings):
    return Number(**{"name": "x", "column": "x"} | settings)


def encoded(encoding, values):
    return encoding.encode(pa.array(values))["x"][:, 0].tolist()


def test_standardize():
    encoding = number(transformation="standardize", mean=3.0, deviation=2.0)
    assert encoded(encoding, [3, 5, 0]) == [0, 1, -1.5]
    assert encoding.decode([0, 1, -1.5]).to_pylist() == [3, 5, 0]
    constant = number(transformation="standardize", mean=3.0, deviation=0.0)
    assert encoded(constant, [3, 5]) == [0, 2]


def test_log():
    encoding = number(transformation="log", mean=1.0, deviation=0.5, dtype="float64")
    values = [0.0, math.e - 1, -(math.e - 1), 1e300]
    np.testing.assert_allclose(
        encoded(encoding, values), [-2, 0, -4, 2 * (math.log(1e300) - 1)], atol=1e-15
    )
    np.testing.assert_allclose(encoding.decode([-2, 0, -4]).to_numpy(), values[:3], atol=1e-15)


def test_log_with_offset():
    """log(x + 3); 0 where x is missing or at most -2."""
    encoding = number(transformation="log", offset=3.0, fill=-2.0, dtype="float64")
    values = [0, -2, -3, -(10**18), None, 10**18 - 1]
    expected = [math.log(3), 0, 0, 0, 0, math.log(10**18)]
    np.testing.assert_allclose(encoded(encoding, values), expected, rtol=1e-15)
    np.testing.assert_allclose(encoding.decode([math.log(8)]).to_numpy(), [5])


def test_quantiles():
    """Normal scores of the probabilities 0.25 and 0.75 are -0.6745 and 0.6745."""
    encoding = number(transformation="quantile", quantiles=(0.0, 10.0, 20.0, 30.0, 40.0))
    scores = encoded(encoding, [20, 10, 30, 15, 0, -9, 40, 99])
    end = 1.2815516  # of 0.1 and 0.9
    expected = [0, -0.6744898, 0.6744898, -0.3372449, -end, -end, end, end]
    np.testing.assert_allclose(scores, expected, rtol=1e-6)
    np.testing.assert_allclose(encoding.decode([0, -0.3372449, 9]).to_numpy(), [20, 15, 40])


def test_equal_quantiles():
    """Half of the values are 0: their rank is 0.25, the mean of 0, 0.25 and 0.5."""
    encoding = number(transformation="quantile", quantiles=(0.0, 0.0, 0.0, 1.0, 2.0))
    np.testing.assert_allclose(encoded(encoding, [0, 1]), [-0.6744898, 0.6744898], rtol=1e-6)
    constant = number(transformation="quantile", quantiles=(5.0,))
    assert encoded(constant, [5, 6]) == [0, 0]


def test_missing_values():
    encoding = number(
        transformation="standardize", mean=1.0, deviation=2.0, fill=5.0, indicator="m"
    )
    arrays = encoding.encode(pa.array(["NA", "1", None]))
    assert encoding.features == ("x", "m")
    assert arrays["x"].tolist() == [[2], [0], [2]]
    assert arrays["m"].tolist() == [[1], [0], [1]]
    assert arrays["m"].dtype == np.float32
    with pytest.raises(InvalidValue, match="--fill_missing") as error:
        number().encode(pa.array([1.0, None]))
    assert error.value.index == 1


@pytest.mark.parametrize(
    ("settings", "value", "message"),
    [
        ({"dtype": "float16"}, 70000.0, "float16 holds, at most 65504"),
        ({"dtype": "float64"}, 1e39, "float64 holds, at most 3.40282e"),
        ({"transformation": "standardize", "deviation": 1e-30}, 1e9, "1e\\+39 when standardized"),
    ],
)
def test_too_large(settings, value, message):
    with pytest.raises(InvalidValue, match=message) as error:
        number(**settings).encode(pa.array([0, value]))
    assert error.value.index == 1


def test_bins():
    bins = Bins(name="x", column="x", edges=(0.0, 2.5))
    assert encoded(bins, ["-1", "0", "2.4", "2.5", "NA"]) == [1, 2, 2, 3, 0]
    assert (bins.num_ids, bins.dtype) == (4, "int8")
    assert bins.decode([0, 1, 2, 3]).to_pylist() == [None, "(-inf, 0)", "[0, 2.5)", "[2.5, inf)"]
    bins = Bins(name="x", column="x", edges=(0.0, 2.5), least=-1.0)
    assert encoded(bins, ["-1.5", "-1", "0", "NA"]) == [0, 1, 2, 0]
    assert bins.decode([1]).to_pylist() == ["[-1, 0)"]
