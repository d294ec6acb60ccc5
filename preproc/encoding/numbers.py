"""Encodings of numbers: transformations, fill values, indicators, and bins."""

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from preproc.encoding.arrow_columns import InvalidValue, numbers
from preproc.encoding.encodings import FeatureEncoding, IdEncoding
from preproc.encoding.lists import FlatValues
from preproc.encoding.profile import ColumnProfile

NUM_BINS = 32  # of a model, for numbers of which a profile does not list all values
MEAN = "mean"  # a fill value
_LARGEST = float(np.finfo(np.float32).max)  # a model gets float32
_FILL = (
    "a value: fill missing values with --fill_missing mean (or 0, or another value) of "
    "preproc.transcode, or of deployment.deploy if a model is deployed"
)


@dataclass(frozen=True, kw_only=True)
class Number(FeatureEncoding):
    """Number: filled where missing, then transformed, then rounded to `dtype`.

    Transformations of x:

    - `none`: x
    - `standardize`: (x - mean) / deviation, where a deviation of 0 counts as 1
    - `log`: sign(x) log(1 + |x|), or with an offset log(max(x + offset, 1)), standardized
    - `quantile`: the normal score of the rank of x, linear between the quantiles

    Attributes:
        transformation: `none`, `standardize`, `log` or `quantile`.
        mean, deviation: statistics of x, or of the logarithm for `log`.
        offset: of `log`; None: the signed logarithm.
        quantiles: ascending; quantile i of m is that of probability i / (m - 1). Where quantiles
            are equal, the rank is the mean of their probabilities. The first and the last have
            the probabilities 1 / 2m and 1 - 1 / 2m, so that scores are finite.
        fill: value of missing values; None: they are errors.
        indicator: name of another feature, which is 1 where a value is missing and else 0.
    """

    kind = "number"
    dtype: str = "float32"
    transformation: str = "none"
    mean: float = 0.0
    deviation: float = 1.0
    offset: float | None = None
    quantiles: tuple[float, ...] = ()
    fill: float | None = None
    indicator: str | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """The feature, and its indicator."""
        return (self.name,) if self.indicator is None else (self.name, self.indicator)

    def _encode(self, values: FlatValues, missing: pa.Array) -> dict[str, NDArray]:
        raw = values.convert(lambda flat: numbers(flat, missing), np.nan)
        is_missing = np.isnan(raw)
        if is_missing.any():
            if self.fill is None:
                raise InvalidValue(int(np.argmax(is_missing)), "no value", _FILL)
            raw = np.where(is_missing, self.fill, raw)
        with np.errstate(over="ignore"):
            transformed = self.transform(raw)
            stored = transformed.astype(self.dtype)
        largest = min(_LARGEST, float(np.finfo(self.dtype).max))
        is_bad = ~(np.abs(stored) <= largest)
        if is_bad.any():
            slot = int(np.argmax(is_bad))
            rule = f"a number that {self.dtype} holds, at most {largest:g}: correct the value, "
            rule += "or use --transform log or quantile"
            if self.transformation == "standardize":
                rule += f" (it is {transformed[slot]:g} when standardized)"
            raise InvalidValue(slot, f"{raw[slot]:g}", rule)
        arrays = {self.name: stored}
        if self.indicator is not None:
            arrays[self.indicator] = is_missing.astype(self.dtype)
        return arrays

    def transform(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns numbers without missing values, before they are rounded to `dtype`."""
        if self.transformation == "none":
            return values
        if self.transformation == "quantile":
            return np.interp(values, *self.scores)
        if self.transformation == "log" and self.offset is not None:
            values = np.log(np.maximum(values + self.offset, 1.0))
        elif self.transformation == "log":
            values = signed_log(values)
        return (values - self.mean) / (self.deviation or 1.0)

    @functools.cached_property
    def scores(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See `normal_scores`."""
        return normal_scores(self.quantiles)

    def decode(self, values: ArrayLike) -> pa.Array:
        """Returns the numbers that have these encoded values, as far as the dtype resolves them;
        a filled value is the fill value."""
        result = np.asarray(values, np.float64).ravel()
        if self.transformation == "quantile":
            distinct, scores = self.scores
            return pa.array(np.interp(result, scores, distinct))
        if self.transformation != "none":
            result = result * (self.deviation or 1.0) + self.mean
        if self.transformation == "log" and self.offset is not None:
            result = np.exp(result) - self.offset
        elif self.transformation == "log":
            result = np.copysign(np.expm1(np.abs(result)), result)
        return pa.array(result)


def signed_log(values: ArrayLike) -> NDArray[np.float64]:
    """Returns sign(x) log(1 + |x|)."""
    values = np.asarray(values, np.float64)
    return np.copysign(np.log1p(np.abs(values)), values)


def normal_scores(
    quantiles: Sequence[float],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the distinct quantiles, and the normal score of each; see `Number`."""
    number = len(quantiles)
    ranks = np.linspace(0, 1, number) if number > 1 else np.array([0.5])
    distinct, index, counts = np.unique(
        np.array(quantiles), return_inverse=True, return_counts=True
    )
    means = np.bincount(index, ranks) / counts
    means = np.clip(means, 0.5 / number, 1 - 0.5 / number)
    normal = NormalDist()
    return distinct, np.array([normal.inv_cdf(rank) for rank in means])


@dataclass(frozen=True, kw_only=True)
class Bins(IdEncoding):
    """Number as the id of its bin: 0 is missing, 1 is below the first edge, and bin i + 1 has the
    values from edge i - 1 (included) to edge i.

    Attributes:
        least: numbers below count as missing; None: all numbers have bins.
    """

    kind = "bins"
    edges: tuple[float, ...]
    least: float | None = None

    @property
    def _num_values(self) -> int:
        return len(self.edges) + 2

    def _encode(self, values: FlatValues, missing: pa.Array) -> dict[str, NDArray]:
        raw = values.convert(lambda flat: numbers(flat, missing), np.nan)
        ids = 1 + np.searchsorted(np.array(self.edges, np.float64), raw, side="right")
        is_missing = np.isnan(raw) if self.least is None else ~(raw >= self.least)
        return {self.name: np.where(is_missing, 0, ids).astype(self._plain_dtype)}

    def decode(self, values: ArrayLike) -> pa.Array:
        """Returns bins as texts such as `[0.5, 2)`; null for a missing value."""
        ids = self._checked_ids(values)
        bounds = [
            "-inf" if self.least is None else f"{self.least:g}",
            *(f"{edge:g}" for edge in self.edges),
            "inf",
        ]
        names = [f"[{low}, {high})" for low, high in itertools.pairwise(bounds)]
        names[0] = names[0] if self.least is not None else "(" + names[0][1:]
        return pa.array(names).take(pa.array(ids - 1, mask=ids == 0))


def fill_value(text: str) -> str | float:
    """Returns the fill value of a `--fill_missing`: `MEAN` or a finite number."""
    with contextlib.suppress(ValueError):
        if text == MEAN or math.isfinite(float(text)):
            return text if text == MEAN else float(text)
    raise ValueError(f"--fill_missing: expected '{MEAN}' or a finite number, got '{text}'")


def unfilled(features: Iterable[FeatureEncoding]) -> list[str]:
    """Returns the names of the numbers without a fill value."""
    return [f.name for f in features if isinstance(f, Number) and f.fill is None]


def filled(
    features: Iterable[FeatureEncoding],
    fills: Mapping[str, str | float],
    profile: Mapping[str, ColumnProfile],
    origin: str,
) -> tuple[FeatureEncoding, ...]:
    """Returns encodings that fill numbers where missing; present values are encoded as before.

    Args:
        fills: feature -> `MEAN`, of the training, or a number.
        profile: of the encoder.
        origin: of the encoder, for messages.

    Raises:
        ValueError: a feature is filled already, with another value, or has no mean.
    """
    return tuple(
        _filled(feature, fills[feature.name], profile.get(feature.column), origin)
        if isinstance(feature, Number) and feature.name in fills
        else feature
        for feature in features
    )


def _filled(
    feature: Number, fill: str | float, profile: ColumnProfile | None, origin: str
) -> Number:
    mean = None if profile is None else profile.mean
    value = mean if fill == MEAN else float(fill)
    if value is None:
        raise ValueError(
            f"--fill_missing mean: {origin} has no mean of '{feature.name}': give a number, "
            f"--fill_missing {feature.name}=0"
        )
    if feature.fill is not None and feature.fill != value:
        raise ValueError(
            f"--fill_missing {feature.name}={value:g}: {origin} fills it with {feature.fill:g}, as "
            "in the training: leave it out"
        )
    return dataclasses.replace(feature, fill=value)


def bin_edges(
    encodings: Iterable[FeatureEncoding],
    profile: Mapping[str, ColumnProfile],
    features: Sequence[str],
    hotnesses: Sequence[int],
) -> list[NDArray[np.float32]] | None:
    """Returns the edges of the bins of numerical features, as a data set stores their values.

    A number with few different values in train has a bin between each two of them, another one
    `NUM_BINS` bins of about equally many values, fewer where quantiles are equal; the indicator of
    missing values has one bin, from 0 to 1. Values outside belong to the first or the last bin.

    Args:
        encodings, profile: of an encoder; vocabularies need no values (`folder.read`).
        features: names of the features.
        hotnesses: values per sample of each feature.

    Returns:
        Ascending edges, at least two, for each value of a sample; None if a feature is not a number
        of the encoder, or has no statistics in its profile.
    """
    makers = {name: encoding for encoding in encodings for name in encoding.features}
    result: list[NDArray[np.float32]] = []
    for feature, hotness in zip(features, hotnesses, strict=True):
        number = makers.get(feature)
        if not isinstance(number, Number):
            return None
        values = _raw_edges(profile.get(number.column))
        if feature == number.indicator:
            edges = np.array([0, 1], np.float32)
        elif len(values):
            edges = np.unique(number.transform(values).astype(number.dtype).astype(np.float32))
        else:
            return None
        result += [edges if len(edges) > 1 else np.append(edges, edges + 1)] * hotness
    return result


def _raw_edges(profile: ColumnProfile | None) -> NDArray[np.float64]:
    """Returns all values of a column, or quantiles; none without statistics."""
    if profile is None or profile.values or not profile.quantiles:
        return np.array(profile.values if profile else (), np.float64)
    ranks = np.linspace(0, len(profile.quantiles) - 1, NUM_BINS + 1)
    return np.interp(ranks, np.arange(len(profile.quantiles)), profile.quantiles)
