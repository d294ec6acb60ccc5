"""Numerical features: statistics, fill values of missing values, and standardization.

Fill values and scales follow from the training rows. Fill values are in the units of the raw
feature: values are filled first, then standardized, then rounded once.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
import pyarrow as pa

from dataloading.spec import rules
from dataloading.spec.feature_spec import NUMERICAL_CHANNEL, TRAIN
from dataloading.table_input import values as table_values
from dataloading.transcode.arguments import ALL
from dataloading.transcode.encode.statistics import RunningStatistics, Scale
from dataloading.transcode.raw_spec import RawSpec

MEAN = "mean"
NONE = "none"
LARGE = 100  # a mean or a standard deviation above it is worth a warning
_LARGEST = float(np.finfo(np.float32).max)  # a model gets float32


@dataclass(frozen=True)
class NumericalRules:
    """Encoding of the numerical features.

    Attributes:
        fill: feature -> `MEAN` or the fill value. Other features may not miss a value.
        mark_missing: whether features that miss values in training get an indicator.
        standardize: features to standardize.
        known_indicators: feature -> name of its indicator in an earlier data set; None: new data.
        known_scales: feature -> its scale in an earlier data set; None: new data.
    """

    fill: Mapping[str, str | float] = field(default_factory=dict)
    mark_missing: bool = False
    standardize: tuple[str, ...] = ()
    known_indicators: Mapping[str, str] | None = None
    known_scales: Mapping[str, Scale] | None = None


def parse_fill(text: str | None, spec: RawSpec) -> dict[str, str | float]:
    """Returns the fill values of `--fill_missing`: `mean`, a number, or `feature=mean,feature=0`.

    Raises:
        ValueError: the text is something else, or names a feature that is not numerical.
    """
    numericals = spec.channels.get(NUMERICAL_CHANNEL, ())
    values: dict[str, str | float] = {}
    default = None
    for item in text.split(",") if text is not None else ():
        name, _, value = item.rpartition("=")
        try:
            number = value if value == MEAN else float(value)
        except ValueError:
            number = math.nan
        if number != MEAN and not math.isfinite(number):
            raise ValueError(
                f"--fill_missing is '{text}': expected '{MEAN}' or a finite number, got '{value}'"
            )
        if not name and "=" not in item and default is None:
            default = number
        elif name in numericals and name not in values:
            values[name] = number
        else:
            raise ValueError(
                f"--fill_missing has '{item}'; expected 'mean' or a number, for all numerical "
                "features, or feature=mean or feature=number, each feature once; the numerical "
                f"features of {spec.origin} are {rules.listing(numericals)}"
                + rules.suggestion(name, numericals)
            )
    if default is not None:
        values = {name: values.get(name, default) for name in numericals}
    return values


def parse_standardize(text: str, spec: RawSpec) -> tuple[str, ...]:
    """Returns the features of `--standardize`: `all`, `none`, or names of numerical features.

    Raises:
        ValueError: a name is not that of a numerical feature, or occurs twice.
    """
    numericals = spec.channels.get(NUMERICAL_CHANNEL, ())
    if text in (ALL, NONE):
        return numericals if text == ALL else ()
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
    return names


def known_rules(own: Mapping, origin: str) -> NumericalRules:
    """Returns the rules of an earlier data set, from its metadata.

    Raises:
        ValueError: the metadata are damaged.
    """
    try:
        fill = {name: float(value) for name, value in own.get("fill_missing", {}).items()}
        indicators = dict(own.get("missing_indicators", {}))
        scales = {name: Scale(**scale) for name, scale in own.get("standardize", {}).items()}
        valid = set(indicators) <= set(fill) and all(
            math.isfinite(scale.mean) and 0 <= scale.standard_deviation < math.inf
            for scale in scales.values()
        )
    except (AttributeError, TypeError, ValueError):
        valid = False
    if not valid:
        raise ValueError(
            f"{origin}: metadata: 'standardize', 'fill_missing' or 'missing_indicators' is "
            "damaged; expected finite numbers per feature, as transcode writes them"
        )
    return NumericalRules(fill, False, tuple(scales), indicators, scales)


class NumericalFeature:
    """Reads, fills and standardizes the values of one feature.

    Attributes:
        statistics: of the values in training.
        fill_value: replaces missing values; None: they are errors.
        scale: of a standardized feature, None for another one.
        indicator: name of the feature that marks missing values; may be empty.

    Raises:
        ValueError: there is no value in training to take a mean of, a value does not fit into the
            dtype, or the name of an indicator is taken.
    """

    def __init__(self, name: str, spec: RawSpec, rules: NumericalRules):
        self.name, self._spec, self._rules = name, spec, rules
        self._dtype = np.dtype(spec.features[name]["dtype"])
        self._read_dtype = np.dtype(np.float64) if name in rules.standardize else self._dtype
        self.statistics = RunningStatistics()
        self.fill_value: float | None = None
        self.scale: Scale | None = None
        self.indicator = ""

    def read(self, values: pa.Array) -> np.ndarray:
        """Returns float64 values, rounded to the dtype unless they are standardized later; NaN is
        a missing value. Raises `BadValue`."""
        fills = self.name in self._rules.fill
        numbers = table_values.numericals(values, self._read_dtype, may_miss=fills)
        return numbers.astype(np.float64)

    @property
    def needs_statistics(self) -> bool:
        """True if the values in training are to be added to `statistics`."""
        return self._rules.known_scales is None

    def complete(self, misses_values: bool) -> None:
        """Fixes scale, fill value and indicator when all rows are read.

        misses_values: whether values are missing in training.
        """
        rules = self._rules
        if rules.known_scales is not None:
            self.scale = rules.known_scales.get(self.name)
        elif self.name in rules.standardize:
            if not self.statistics.count:
                raise ValueError(
                    f"--standardize {self.name}: the feature has no value in '{TRAIN}': leave it "
                    f"out, or name the features to standardize (--standardize {NONE}: no feature)"
                )
            self.scale = self.statistics.scale
        if self.name in rules.fill:
            self.fill_value = self._rounded(rules.fill[self.name])
        if rules.known_indicators is not None:
            self.indicator = rules.known_indicators.get(self.name, "")
        elif rules.mark_missing and misses_values:
            self.indicator = f"{self.name}_missing"
        if self.indicator in (*self._spec.features, *self._spec.unused):
            raise ValueError(
                f"--missing_indicator: the indicator of '{self.name}' is called "
                f"'{self.indicator}', but {self._spec.origin} has a feature of that name: rename it"
            )

    def _rounded(self, fill: str | float) -> float:
        if fill == MEAN:
            if not self.statistics.count:
                raise ValueError(
                    f"--fill_missing {self.name}=mean: the feature has no value in '{TRAIN}': "
                    f"leave it out, or give a value with --fill_missing {self.name}=0"
                )
            fill = self.statistics.scale.mean
        with np.errstate(over="ignore"):
            rounded = float(np.asarray(fill).astype(self._read_dtype))
        if not np.isfinite(rounded):
            raise ValueError(
                f"--fill_missing {self.name}={fill:g}: expected a value that {self._read_dtype} "
                f"holds, at most {float(np.finfo(self._read_dtype).max):g}; give the feature "
                "'dtype: float32'"
            )
        return rounded

    def stored(self, values: np.ndarray, split: str, first_row: int) -> list[np.ndarray]:
        """Returns the values of the feature, and of its indicator if it has one.

        Args:
            values: float64 [rows, hotness], NaN where missing.
            first_row: number of the first row in the split, from 0.
        """
        missing = np.isnan(values)
        if self.fill_value is not None:
            values = np.where(missing, self.fill_value, values)
        if self.scale is not None:
            values = self._standardized(values, self.scale, split, first_row)
        return [values.astype(self._dtype), *([missing] if self.indicator else [])]

    def _standardized(
        self, values: np.ndarray, scale: Scale, split: str, first_row: int
    ) -> np.ndarray:
        largest = min(_LARGEST, float(np.finfo(self._dtype).max))
        with np.errstate(over="ignore"):
            result = (values - scale.mean) / (scale.standard_deviation or 1)
            fits = np.abs(result.astype(self._dtype).astype(np.float64)) <= largest
        if not fits.all():
            row, column = np.argwhere(~fits)[0]
            raise ValueError(
                f"feature '{self.name}': found {values[row, column]:g}, standardized "
                f"{result[row, column]:g}, in row {first_row + row + 1} of '{split}' (rows are "
                f"counted from 1); expected a standardized value that {self._dtype} holds, at most "
                f"{largest:g}: correct the value, or encode the training rows again with "
                "'dtype: float32' or without --standardize"
            )
        return result

    @property
    def is_large(self) -> bool:
        """True for training values so large that they should be standardized."""
        if self.scale is not None or not self.statistics.count:
            return False
        scale = self.statistics.scale
        return max(abs(scale.mean), scale.standard_deviation) > LARGE


def with_indicators(spec: RawSpec, numericals: Collection[NumericalFeature]) -> RawSpec:
    """Returns the raw data with the indicators among its numerical features, each after its
    feature."""
    features, channel = dict(spec.features), []
    for feature in numericals:
        channel.append(feature.name)
        if feature.indicator:
            channel.append(feature.indicator)
            features[feature.indicator] = dict(features[feature.name])
    channels = spec.channels | ({NUMERICAL_CHANNEL: tuple(channel)} if channel else {})
    return dataclasses.replace(spec, features=features, channels=channels)


def numerical_metadata(
    numericals: Collection[NumericalFeature], missing_share: Mapping[str, Mapping[str, float]]
) -> dict:
    """Returns what the data set stores: fill values, indicators, shares of missing values, scales,
    and features that may need one; `missing_share` has split -> feature -> share."""
    filled = [feature for feature in numericals if feature.fill_value is not None]
    scales = {feature.name: asdict(feature.scale) for feature in numericals if feature.scale}
    unscaled = [feature.name for feature in numericals if feature.is_large]
    metadata = {}
    if filled:
        metadata = {
            "fill_missing": {feature.name: feature.fill_value for feature in filled},
            "missing_indicators": {f.name: f.indicator for f in filled if f.indicator},
            "missing_share": {
                split: {feature.name: shares[feature.name] for feature in filled}
                for split, shares in missing_share.items()
            },
        }
    parts = {"standardize": scales, "unscaled": unscaled}
    return metadata | {name: part for name, part in parts.items() if part}
