"""Missing numerical values: filled with a value or the mean of the training rows.

While raw rows are read, a missing value is stored as NaN. When all rows are read, the means are
known and the files are rewritten with the fill values and, on request, a 0/1 feature per filled
feature that marks where values were missing. The same pass standardizes values, after filling:
fill values are in the units of the raw feature.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dataloading.spec import rules
from dataloading.spec.feature_spec import NUMERICAL_CHANNEL, TRAIN, FeatureSpec
from dataloading.transcode import stored_files
from dataloading.transcode.encode.standardize import Standardization
from dataloading.transcode.raw_spec import RawSpec

MEAN = "mean"
_SUFFIX = "_missing"  # of the name of an indicator
_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True)
class FillRule:
    """Fill values of missing numerical values.

    Attributes:
        values: feature -> `MEAN` or the fill value. Other features may not miss a value.
        indicators: whether features that miss values in training get an indicator.
        known_indicators: feature -> name of its indicator in an earlier data set; None for new
            data.
    """

    values: Mapping[str, str | float] = field(default_factory=dict)
    indicators: bool = False
    known_indicators: Mapping[str, str] | None = None


def parse_fill(text: str | None, spec: RawSpec, indicators: bool) -> FillRule:
    """Returns the rule of `--fill_missing`: `mean`, a number, or `feature=mean,feature=0`.

    Raises:
        ValueError: the text is something else, or names a feature that is not numerical.
    """
    if text is None:
        if indicators:
            raise ValueError(
                "--missing_indicator marks values that --fill_missing fills: expected both flags"
            )
        return FillRule()
    numericals = spec.channels.get(NUMERICAL_CHANNEL, ())
    values: dict[str, str | float] = {}
    default = None
    for item in text.split(","):
        name, _, value = item.rpartition("=")
        number = _fill_value(value, text)
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
    return FillRule(values, indicators)


def _fill_value(text: str, whole: str) -> str | float:
    if text == MEAN:
        return MEAN
    try:
        number = float(text)
    except ValueError:
        number = np.nan
    if not np.isfinite(number):
        raise ValueError(
            f"--fill_missing is '{whole}': expected '{MEAN}' or a finite number, got '{text}'"
        )
    return number


class MissingValues:
    """Counts missing values while rows are read, and fills them in the end.

    Args:
        spec: the raw data.
        layout: the data set without indicators.
        rule: what is filled.
        standardization: statistics of the numerical features, and what is standardized.
    """

    def __init__(
        self,
        spec: RawSpec,
        layout: FeatureSpec,
        rule: FillRule,
        standardization: Standardization,
    ):
        self._spec, self._layout, self._rule = spec, layout, rule
        self._standardization = standardization
        self._missing: dict[str, dict[str, int]] = {
            mapping: dict.fromkeys(rule.values, 0) for mapping in spec.sources
        }
        self._values: dict[str, float] = {}
        self._indicators: dict[str, str] = {}

    def fills(self, feature: str) -> bool:
        """Returns whether values of a feature may be missing."""
        return feature in self._rule.values

    def add(self, mapping: str, feature: str, values: np.ndarray) -> None:
        """Takes in the values of a numerical feature; NaN is a missing one."""
        self._standardization.add(mapping, feature, values)
        if self.fills(feature):
            self._missing[mapping][feature] += int(np.count_nonzero(np.isnan(values)))

    def complete(self) -> RawSpec:
        """Fixes fill values and indicators when all rows are read; returns the raw data with the
        indicators among its numerical features, each after its feature.

        Raises:
            ValueError: a feature has no value of which to take the mean, or a name is taken.
        """
        self._standardization.complete()
        self._values = {name: self._value(name) for name in self._rule.values}
        known = self._rule.known_indicators
        if known is not None:
            self._indicators = dict(known)
        elif self._rule.indicators:
            in_train = self._missing.get(TRAIN, {})
            self._indicators = {name: name + _SUFFIX for name, n in in_train.items() if n}
        features = dict(self._spec.features)
        for base, name in self._indicators.items():
            if name in features or name in self._spec.unused:
                raise ValueError(
                    f"--missing_indicator: the indicator of '{base}' is called '{name}', but "
                    f"{self._spec.origin} has a feature of that name: rename it"
                )
            features[name] = dict(features[base])
        numericals = [
            name
            for base in self._spec.channels.get(NUMERICAL_CHANNEL, ())
            for name in (base, *([self._indicators[base]] if base in self._indicators else []))
        ]
        channels = dict(self._spec.channels)
        if self._indicators:
            channels[NUMERICAL_CHANNEL] = tuple(numericals)
        sources = {
            mapping: tuple(
                dataclasses.replace(
                    chunk,
                    features=(
                        *chunk.features,
                        *(i for base, i in self._indicators.items() if base in chunk.features),
                    ),
                )
                for chunk in chunks
            )
            for mapping, chunks in self._spec.sources.items()
        }
        return dataclasses.replace(
            self._spec, features=features, channels=channels, sources=sources
        )

    def _value(self, feature: str) -> float:
        value, dtype = self._rule.values[feature], self._standardization.raw_dtype([feature])
        if value == MEAN:
            value = self._standardization.mean(feature)
            if value is None:
                raise ValueError(
                    f"--fill_missing {feature}=mean: the feature has no value in '{TRAIN}': leave "
                    f"it out, or give a value with --fill_missing {feature}=0"
                )
        with np.errstate(over="ignore"):
            stored = float(np.asarray(value).astype(dtype))
        if not np.isfinite(stored):
            raise ValueError(
                f"--fill_missing {feature}={value:g}: expected a value that {dtype} holds, at most "
                f"{float(np.finfo(dtype).max):g}; give the feature 'dtype: float32'"
            )
        return stored

    def rewrite(self, path: Path, features: tuple[str, ...]) -> None:
        """Fills the missing values in one file of the data set, adds the indicators, and
        standardizes.

        Args:
            features: those of the finished file; their indicators are not in it yet.
        """
        names = set(self._indicators.values())
        bases = [name for name in features if name not in names]
        dtype = self._layout.dtype(bases[0]).newbyteorder("<")
        raw_dtype = self._standardization.raw_dtype(bases).newbyteorder("<")
        if not any(map(self.fills, bases)) and not self._standardization.applies_to(bases):
            return
        widths = [self._layout.hotness(name) for name in bases]
        ends = np.cumsum(widths)
        raw, first_row = path.with_suffix(".raw"), 0
        path.rename(raw)
        with raw.open("rb") as source, path.open("wb") as target:
            while len(block := np.fromfile(source, raw_dtype, _BLOCK_ROWS * ends[-1])):
                rows, columns = block.reshape(-1, ends[-1]), []
                for name, width, end in zip(bases, widths, ends, strict=True):
                    values = rows[:, end - width : end]
                    if self.fills(name):
                        missing = np.isnan(values)
                        values = np.where(missing, raw_dtype.type(self._values[name]), values)
                    columns.append(
                        self._standardization.apply(name, values, first_row, path.parent.name)
                    )
                    if name in self._indicators:
                        columns.append(missing)
                filled = np.concatenate(columns, axis=1, dtype=dtype)
                stored_files.put(target, filled)
                first_row += len(rows)
        raw.unlink()

    def metadata(self, rows: Mapping[str, int]) -> dict:
        """Returns what the data set stores: fill values, indicators, shares of missing values, and
        the scales of standardized features.

        Args:
            rows: mapping -> its number of rows.
        """
        scales = self._standardization.metadata()
        if not self._rule.values:
            return scales
        shares = {
            mapping: {
                name: count / (rows[mapping] * self._layout.hotness(name))
                for name, count in counts.items()
            }
            for mapping, counts in self._missing.items()
        }
        return {
            "fill_missing": self._values,
            "missing_indicators": self._indicators,
            "missing_share": shares,
            **scales,
        }


def known_fill(own: Mapping, origin: str) -> FillRule:
    """Returns the rule of an earlier data set, from its metadata.

    Raises:
        ValueError: the metadata are damaged.
    """
    values, indicators = own.get("fill_missing", {}), own.get("missing_indicators", {})
    numbers = isinstance(values, dict) and all(
        isinstance(value, int | float) for value in values.values()
    )
    if not numbers or not isinstance(indicators, dict) or not set(indicators) <= set(values):
        raise ValueError(
            f"{origin}: metadata: 'fill_missing' is {values!r:.100} and 'missing_indicators' is "
            f"{indicators!r:.100}; expected numbers and names of features, as transcode writes them"
        )
    return FillRule(values, known_indicators=indicators)
