"""Choice of the transformation of numbers by the shape of their distribution in train."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from preproc.encoding.numbers import normal_scores, signed_log
from preproc.fitting.distribution import Moments

AUTO, STANDARDIZE, LOG, QUANTILE = "auto", "standardize", "log", "quantile"
BINS, NONE = "bins", "none"
TRANSFORMATIONS = (AUTO, STANDARDIZE, LOG, QUANTILE, BINS, NONE)
NUM_STEPS = 100  # of the quantiles that decide
# Measured in benchmarks/results/scales_xeon_202611.md.
_LINEAR = 0.7  # linearity from which on standardized values show what ranks do
_LOG_LINEAR = 0.85
_FEW_ROWS = 30  # fewer have no shape
_DECIDED = 0.5  # below it, few values decide mean and deviation


class Scale(NamedTuple):
    """Shape of numbers under a transformation.

    Attributes:
        transformation: one of `TRANSFORMATIONS`, without `AUTO`.
        linearity: covariance of the values between the quantiles of 1 % and 99 % with the normal
            scores of their ranks, over the deviations of the scores and of all values. About 0.96
            for normal values, 0.84 for exponential ones, 0.68 for log-normal ones of deviation 1,
            0 where one value decides the deviation; 1 for two values and for few rows. None
            where all values between the two quantiles are equal.
        quartiles: distance of the quartiles, in standard deviations.
        farthest: distance of the farthest value from the mean, in standard deviations.
        extreme: the farthest value.
        is_chosen: whether the transformation follows from the shape of the raw numbers, which
            the other attributes describe then.
    """

    transformation: str
    linearity: float | None
    quartiles: float
    farthest: float
    extreme: float = 0.0
    is_chosen: bool = False

    def __str__(self) -> str:
        half = f"half of the values lie within {self.quartiles:.2f} standard deviations"
        near = "98 % of the values are equal" if self.linearity is None else half
        return f"{near}, the farthest, {self.extreme:g}, is {self.farthest:.0f} from the mean"

    @property
    def is_decided_by_few(self) -> bool:
        """True if few values decide mean and deviation."""
        return self.linearity is not None and self.linearity < _DECIDED


def scale_of(
    transformation: str,
    steps: Sequence[float],
    moments: Moments,
    log_moments: Callable[[], Moments],
) -> Scale:
    """Returns the shape of numbers under a transformation, which is chosen for `AUTO`.

    Args:
        steps: quantiles at `NUM_STEPS` equal steps, from the least to the most.
        moments: of all numbers.
        log_moments: returns those of signed logarithms.
    """
    if transformation == LOG:
        return _measured(LOG, signed_log(steps), log_moments())
    scale = _measured(transformation, np.asarray(steps), moments)
    if transformation == AUTO:
        chosen = _choose(scale, steps, moments.count, log_moments)
        return scale._replace(transformation=chosen, is_chosen=True)
    return scale


def _choose(
    raw: Scale, steps: Sequence[float], count: int, log_moments: Callable[[], Moments]
) -> str:
    """Returns the transformation that `AUTO` stands for.

    Standardized values if they grow evenly enough with their ranks: normal, uniform, exponential
    and bimodal ones, and most counts. Otherwise logarithms if they do, and none stands out, as a
    placeholder such as 999999999999 does. Otherwise quantiles.
    """
    if raw.linearity is not None and raw.linearity >= _LINEAR:
        return STANDARDIZE
    log = _measured(LOG, signed_log(steps), log_moments())
    # Logarithms of a power law reach about log(count) standard deviations.
    stands_out = log.farthest > 2 + math.log(count)
    is_even = log.linearity is not None and log.linearity >= _LOG_LINEAR
    return LOG if is_even and not stands_out else QUANTILE


def _measured(transformation: str, steps: np.ndarray, moments: Moments) -> Scale:
    if not moments.deviation or moments.count < _FEW_ROWS:
        return Scale(transformation, 1.0, 0.0, 0.0)
    z = (steps - moments.mean) / moments.deviation
    extreme = max(moments.most, moments.least, key=lambda end: abs(end - moments.mean))
    farthest = abs(extreme - moments.mean) / moments.deviation
    quarter = NUM_STEPS // 4
    distance = float(z[-1 - quarter] - z[quarter])
    return Scale(transformation, _linearity(z), distance, farthest, extreme)


def _linearity(z: np.ndarray) -> float | None:
    inner = z[1:-1]
    if inner[0] == inner[-1]:
        return None
    scores = np.interp(inner, *normal_scores(z))
    scores -= scores.mean()
    return float((inner * scores).mean() / scores.std())
