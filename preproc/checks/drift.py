"""New rows against the training rows that an encoder was fitted to."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import ibis
import ibis.expr.types as ir
import numpy as np
from numpy.typing import NDArray

from preproc.checks.report import PASSED, WARNING, Check
from preproc.encoding.encoder import Encoder
from preproc.encoding.encodings import HashBuckets
from preproc.encoding.profile import MAX_QUANTILES, ColumnProfile
from preproc.encoding.vocabulary import Vocabulary
from preproc.engines.engine import Engine, fetch_row
from preproc.fitting.expressions import number, text

_LEAST_ROWS = 10
# Largest difference of the distribution functions. The second term is what chance alone reaches
# in one of ten thousand samples (Kolmogorov and Smirnov).
_MOVED, _CHANCE = 0.25, 2.2
_MISSING_MOVED = 0.1
_OUTSIDE, _LEAST_OUTSIDE = 0.01, 5
_EXTREMES = 4  # expected beyond the training's, per row of training, with a margin
_MOSTLY_NEW = 0.5
_QUANTILES = (0, 10, 25, 50, 75, 90, 100)  # of a profile, in percent


@dataclass(frozen=True)
class MovedColumn(Check):
    """A column of new rows whose values are not distributed as in training.

    Attributes:
        column: its name.
        rows, trained_rows: number of new rows, and of those of training.
        missing, trained_missing: shares of missing values.
        distance: largest difference of the distribution functions at quantiles of training.
        outside: share of the numbers below the least or above the largest one of training.
        mean, trained_mean: of the numbers.
        deviation: of the numbers of training.
        bounds: least and largest number of training.
    """

    name = "drift"
    why = "the model has not seen such values: units, columns or joins may have changed"
    column: str
    rows: int
    trained_rows: int
    missing: float
    trained_missing: float
    distance: float = 0.0
    outside: float = 0.0
    mean: float = 0.0
    trained_mean: float = 0.0
    deviation: float = 0.0
    bounds: tuple[float, float] = (0.0, 0.0)

    @property
    def amount(self) -> float:
        """Size of the move of the column, to compare columns; 1 or more: it warns."""
        if self.rows < _LEAST_ROWS:
            return 0.0
        chance = _CHANCE / math.sqrt(self.rows)
        gap = abs(self.missing - self.trained_missing)
        outside = self.outside * (self.outside * self.rows >= _LEAST_OUTSIDE)
        return max(
            self.distance / (_MOVED + chance),
            gap / (_MISSING_MOVED + chance),
            outside / (_OUTSIDE + _EXTREMES / max(self.trained_rows, 1)),
        )

    @property
    def level(self) -> str:
        return WARNING if self.amount >= 1 else PASSED

    @property
    def seen(self) -> str:
        parts = []
        if abs(self.missing - self.trained_missing) >= _MISSING_MOVED:
            parts.append(
                f"{self.missing:.1%} of the values are missing, {self.trained_missing:.1%} in "
                "training"
            )
        if max(self.distance / _MOVED, self.outside / _OUTSIDE) >= 1:
            moved = (self.mean - self.trained_mean) / (self.deviation or 1.0)
            parts.append(
                f"the mean is {self.mean:.6g}, {self.trained_mean:.6g} in training ({moved:+.3g} "
                f"standard deviations); {self.outside:.1%} of the numbers are outside of its range "
                f"from {self.bounds[0]:.6g} to {self.bounds[1]:.6g}"
            )
        return f"'{self.column}': {'; '.join(parts)}"

    @property
    def remedy(self) -> str:
        return (
            f"compare '{self.column}' in both files; if the new values are right, train with such "
            "rows"
        )

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)


def moved_columns(engine: Engine, table: ir.Table, encoder: Encoder) -> list[MovedColumn]:
    """Returns how much each column of new rows differs from training, the most first.

    Columns of lists, of hashed ids and those without a profile are not compared.
    """
    columns: dict[str, ColumnProfile] = {}
    sums = {"rows": table.count()}
    for feature in encoder.features:
        profile = encoder.profile.get(feature.column)
        name = feature.column
        if profile is None or name in columns or name not in table.columns:
            continue
        if feature.hotness > 1 or isinstance(feature, HashBuckets):
            continue
        if profile.mean is not None and profile.quantiles:
            sums |= _number_sums(len(columns), table[name], profile, encoder.missing_values)
        elif isinstance(feature, Vocabulary):
            value = text(table[name], encoder.missing_values)
            sums[f"present{len(columns)}"] = value.count()
        else:
            continue
        columns[name] = profile
    row = fetch_row(engine, table.aggregate(**sums)) if columns else {}
    checks = [
        _moved(name, profile, {key: row.get(f"{key}{i}") for key in _KEYS}, row["rows"])
        for i, (name, profile) in enumerate(columns.items())
    ]
    return sorted(checks, key=lambda check: -check.amount)


_KEYS = ("present", "mean", *(f"{side}{q}_" for side in ("below", "upto") for q in _QUANTILES))


def _number_sums(
    index: int, column: ir.Value, profile: ColumnProfile, missing: tuple[str, ...]
) -> dict[str, ir.Scalar]:
    x = number(column, missing)
    x = ibis.ifelse(x.isinf(), ibis.null("float64"), x)
    sums = {f"present{index}": x.count(), f"mean{index}": x.mean()}
    for quantile in _QUANTILES:
        edge = _edge(profile, quantile)
        sums[f"below{quantile}_{index}"] = ibis.ifelse(x < edge, 1, 0).sum()
        sums[f"upto{quantile}_{index}"] = ibis.ifelse(x <= edge, 1, 0).sum()
    return sums


def _edge(profile: ColumnProfile, percent: int) -> float:
    return profile.quantiles[_place(profile, percent)]


def _place(profile: ColumnProfile, percent: int) -> int:
    return round(percent / 100 * (len(profile.quantiles) - 1))


def _moved(name: str, profile: ColumnProfile, sums: Mapping, rows: int) -> MovedColumn:
    present = sums["present"] or 0
    shares = (1 - present / max(rows, 1), profile.missing_share)
    if sums["mean"] is None or not profile.quantiles:
        return MovedColumn(name, rows, profile.count, *shares)
    steps, last = profile.quantiles, len(profile.quantiles) - 1
    distance = 0.0
    for quantile in _QUANTILES:
        edge = _edge(profile, quantile)
        # Where quantiles are equal, training had a value often, and all of its shares are right.
        least, most = steps.index(edge) / last, (last - steps[::-1].index(edge)) / last
        below, upto = (sums[f"{side}{quantile}_"] / present for side in ("below", "upto"))
        distance = max(distance, least - upto, below - most)
    outside = (sums["below0_"] + present - sums["upto100_"]) / present
    return MovedColumn(
        name, rows, profile.count, *shares, distance, outside, sums["mean"],
        profile.mean or 0.0, profile.deviation or 0.0, (steps[0], steps[-1]),
    )  # fmt: skip


def moved_numbers(
    column: str, values: NDArray[np.float64], trained: NDArray[np.float64]
) -> MovedColumn:
    """Returns how much numbers differ from those of training, [rows] each, NaN where missing."""
    present, known = values[~np.isnan(values)], trained[~np.isnan(trained)]
    profile = ColumnProfile(len(trained), len(trained) - len(known))
    sums: dict[str, float | None] = {"present": len(present), "mean": None}
    if len(known) and len(present):
        steps = np.quantile(known, np.linspace(0, 1, MAX_QUANTILES), method="lower")
        statistics = (None, float(known.mean()), float(known.std()), tuple(steps.tolist()))
        profile = ColumnProfile(profile.count, profile.missing, *statistics)
        sums["mean"] = float(present.mean())
        for quantile in _QUANTILES:
            edge = _edge(profile, quantile)
            sums[f"below{quantile}_"] = int((present < edge).sum())
            sums[f"upto{quantile}_"] = int((present <= edge).sum())
    return _moved(column, profile, sums, len(values))


def refuse_new_values(
    column: str, rows: int, known: int, trained_unknown: float, vocabulary: str, flag: str
) -> None:
    """Raises ValueError where most values of a column are unknown to the vocabulary that grows.

    Args:
        rows, known: numbers of values, and of those that the vocabulary has.
        trained_unknown: share of id 0 in the rows of the vocabulary.
        vocabulary: data set of the vocabulary.
        flag: what allows it.
    """
    share = 1 - known / max(rows, 1)
    if share > max(_MOSTLY_NEW, 2 * trained_unknown) and rows >= _LEAST_ROWS:
        raise ValueError(
            f"--grow: {share:.1%} of the values of '{column}' are unknown to {vocabulary}: "
            f"columns, spelling or prefixes may have changed; if the values are right, add {flag}"
        )
