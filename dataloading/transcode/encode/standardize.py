"""Standardized numerical values: (x - mean) / standard deviation, both of the training rows.

While raw rows are read, the statistics are accumulated in float64 and the files of standardized
features are stored as float64. When all rows are read, `transcode_missing` rewrites these files,
so that each value is rounded once.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from dataloading.spec import rules
from dataloading.spec.feature_spec import NUMERICAL_CHANNEL, TRAIN, FeatureSpec
from dataloading.transcode.arguments import ALL
from dataloading.transcode.raw_spec import RawSpec

NONE = "none"
LARGE = 100  # a mean or a standard deviation above it is worth a warning
_LARGEST = float(np.finfo(np.float32).max)  # a model gets float32


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of a feature; a deviation of 0 does not divide."""

    mean: float
    standard_deviation: float


@dataclass(frozen=True)
class StandardizeRule:
    """Features to standardize.

    Attributes:
        features: their names.
        known: feature -> its scale in an earlier data set; None: from the training rows.
    """

    features: tuple[str, ...] = ()
    known: Mapping[str, Scale] | None = None


def parse_standardize(text: str, spec: RawSpec) -> StandardizeRule:
    """Returns the rule of `--standardize`: `all`, `none`, or names of numerical features.

    Raises:
        ValueError: a name is not that of a numerical feature, or occurs twice.
    """
    numericals = spec.channels.get(NUMERICAL_CHANNEL, ())
    if text in (ALL, NONE):
        return StandardizeRule(numericals if text == ALL else ())
    names = tuple(text.split(","))
    for name in names:
        if name not in numericals:
            raise ValueError(
                f"--standardize names '{name}'; expected '{ALL}', '{NONE}' or numerical features, "
                f"comma-separated; the numerical features of {spec.origin} are "
                f"{rules.listing(numericals)}" + rules.suggestion(name, numericals)
            )
        if names.count(name) > 1:
            raise ValueError(f"--standardize names '{name}' twice; expected each feature once")
    return StandardizeRule(names)


def known_standardize(own: Mapping, origin: str) -> StandardizeRule:
    """Returns the rule of an earlier data set, from its metadata.

    Raises:
        ValueError: the metadata are damaged.
    """
    stored = own.get("standardize", {})
    try:
        known = {name: Scale(**scale) for name, scale in stored.items()}
        valid = all(
            math.isfinite(scale.mean) and 0 <= scale.standard_deviation < math.inf
            for scale in known.values()
        )
    except (AttributeError, TypeError):
        valid = False
    if not valid:
        raise ValueError(
            f"{origin}: metadata: 'standardize' is {stored!r:.100}; expected a finite mean and "
            "standard_deviation per feature, as transcode writes them"
        )
    return StandardizeRule(tuple(known), known)


class RunningStatistics:
    """Mean and population standard deviation of a stream of values; NaN is a missing value.

    The deviations from the first value are accumulated with the update of Chan et al., "Updating
    Formulae and a Pairwise Algorithm for Computing Sample Variances", so a small deviation around
    a large mean is exact, and that of a constant is 0.
    """

    def __init__(self):
        self.count = 0
        self._first = self._mean = self._squares = 0.0

    def add(self, values: np.ndarray) -> None:
        """Accumulates values."""
        present = values[~np.isnan(values)].astype(np.float64)
        if not present.size:
            return
        if not self.count:
            self._first = float(present[0])
        present -= self._first
        mean = float(present.mean())
        count, change = self.count + present.size, mean - self._mean
        self._squares += float(np.square(present - mean).sum())
        self._squares += change * change * self.count * present.size / count
        self._mean += change * present.size / count
        self.count = count

    @property
    def scale(self) -> Scale:
        """Mean and standard deviation of the values; there must be one."""
        return Scale(self._first + self._mean, math.sqrt(self._squares / self.count))


class Standardization:
    """Accumulates the statistics of the training rows, and applies them.

    Args:
        spec: the raw data.
        layout: the data set.
        rule: the features to standardize.
    """

    def __init__(self, spec: RawSpec, layout: FeatureSpec, rule: StandardizeRule):
        self._layout, self._rule = layout, rule
        numericals = spec.channels.get(NUMERICAL_CHANNEL, ())
        self._statistics = {name: RunningStatistics() for name in numericals}
        self._scales: dict[str, Scale] = dict(rule.known or {})

    def applies_to(self, features: Sequence[str]) -> bool:
        """Returns whether any of the features is standardized."""
        return any(name in self._rule.features for name in features)

    def raw_dtype(self, features: Sequence[str]) -> np.dtype:
        """Returns the dtype of features of one file until it is rewritten."""
        if self.applies_to(features):
            return np.dtype(np.float64)
        return self._layout.dtype(features[0])

    def add(self, mapping: str, feature: str, values: np.ndarray) -> None:
        """Accumulates values of a numerical feature; NaN is a missing one."""
        if mapping == TRAIN and self._rule.known is None:
            self._statistics[feature].add(values)

    def mean(self, feature: str) -> float | None:
        """Returns the mean of the training rows; None where they have no value."""
        statistics = self._statistics[feature]
        return statistics.scale.mean if statistics.count else None

    def complete(self) -> None:
        """Fixes the scales when all rows are read.

        Raises:
            ValueError: a feature has no value of which to take the mean.
        """
        for name in self._rule.features if self._rule.known is None else ():
            if not self._statistics[name].count:
                raise ValueError(
                    f"--standardize {name}: the feature has no value in '{TRAIN}': leave it out, "
                    f"or name the features to standardize (--standardize {NONE}: no feature)"
                )
            self._scales[name] = self._statistics[name].scale

    def apply(self, feature: str, values: np.ndarray, first_row: int, mapping: str) -> np.ndarray:
        """Returns values [rows, hotness] as they are stored, standardized where that is the rule.

        Args:
            first_row: number of the first row in the mapping, from 0.

        Raises:
            ValueError: a standardized value is too large for the dtype of the feature.
        """
        scale, dtype = self._scales.get(feature), self._layout.dtype(feature)
        if scale is None:
            return values.astype(dtype)
        with np.errstate(over="ignore"):
            result = values.astype(np.float64) - scale.mean
            if scale.standard_deviation:
                result /= scale.standard_deviation
            stored = result.astype(dtype)
        largest = min(_LARGEST, float(np.finfo(dtype).max))
        fits = np.abs(stored.astype(np.float64)) <= largest
        if not fits.all():
            row, column = np.argwhere(~fits)[0]
            raise ValueError(
                f"feature '{feature}': found {values[row, column]:g}, standardized "
                f"{result[row, column]:g}, in row {first_row + row + 1} of '{mapping}' (rows are "
                f"counted from 1); expected a standardized value that {dtype} holds, at most "
                f"{largest:g}: correct the value, or encode the training rows again with "
                "'dtype: float32' or without --standardize"
            )
        return stored

    def metadata(self) -> dict:
        """Returns what the data set stores: scales, and features that may need one."""
        unscaled = [
            name
            for name, statistics in self._statistics.items()
            if name not in self._scales and statistics.count and _is_large(statistics.scale)
        ]
        scales = {name: asdict(scale) for name, scale in self._scales.items()}
        parts = {"standardize": scales, "unscaled": unscaled}
        return {name: part for name, part in parts.items() if part}


def _is_large(scale: Scale) -> bool:
    return max(abs(scale.mean), scale.standard_deviation) > LARGE
