"""New rows against the training rows that an encoder was fitted to."""

import math
from collections.abc import Mapping

import ibis
import ibis.expr.types as ir
import numpy as np
from numpy.typing import NDArray

from preproc.checks.report import PASSED, WARNING, Finding, Kind
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
_KIND = Kind(
    "drift", "the model has not seen such values: units, columns or joins may have changed"
)
_QUANTILES = (0, 10, 25, 50, 75, 90, 100)  # of a profile, in percent


def amount_of_move(
    rows: int, trained_rows: int, gap: float, distance: float, outside: float
) -> float:
    """Returns the size of the move of a column, to compare columns; 1 or more is worth a warning.

    Args:
        rows, trained_rows: number of new rows, and of those of training.
        gap: difference of the shares of missing values.
        distance: largest difference of the distribution functions at quantiles of training.
        outside: share of the numbers below the least or above the largest one of training.
    """
    if rows < _LEAST_ROWS:
        return 0.0
    chance = _CHANCE / math.sqrt(rows)
    outside = outside * (outside * rows >= _LEAST_OUTSIDE)
    return max(
        distance / (_MOVED + chance),
        gap / (_MISSING_MOVED + chance),
        outside / (_OUTSIDE + _EXTREMES / max(trained_rows, 1)),
    )


def moved_columns(engine: Engine, table: ir.Table, encoder: Encoder) -> list[Finding]:
    """Returns whether the values of each column of new rows are distributed as in training; the
    column that moved most is the first.

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
            own = _number_sums(table[name], profile, encoder.missing_values)
        elif isinstance(feature, Vocabulary):
            own = {"present": text(table[name], encoder.missing_values).count()}
        else:
            continue
        sums |= {f"{key}_{len(columns)}": value for key, value in own.items()}
        columns[name] = profile
    row = fetch_row(engine, table.aggregate(**sums)) if columns else {}
    checks = []
    for i, (name, profile) in enumerate(columns.items()):
        end = f"_{i}"
        own = {key.removesuffix(end): row[key] for key in row if key.endswith(end)}
        checks.append(_moved(name, profile, own, row["rows"]))
    return [finding for _, finding in sorted(checks, key=lambda check: -check[0])]


def _number_sums(
    column: ir.Value, profile: ColumnProfile, missing: tuple[str, ...]
) -> dict[str, ir.Scalar]:
    x = number(column, missing)
    x = ibis.ifelse(x.isinf(), ibis.null("float64"), x)
    sums = {"present": x.count(), "mean": x.mean()}
    for i, edge in enumerate(_edges(profile)):
        sums[f"below{i}"] = ibis.ifelse(x < edge, 1, 0).sum()
        sums[f"upto{i}"] = ibis.ifelse(x <= edge, 1, 0).sum()
    return sums


def _edges(profile: ColumnProfile) -> list[float]:
    last = len(profile.quantiles) - 1
    return [profile.quantiles[round(percent / 100 * last)] for percent in _QUANTILES]


def _moved(name: str, profile: ColumnProfile, sums: Mapping, rows: int) -> tuple[float, Finding]:
    """Returns the amount of the move of a column, and its check."""
    present = sums["present"] or 0
    missing, trained_missing = 1 - present / max(rows, 1), profile.missing_share
    distance = outside = 0.0
    parts = []
    if (gap := abs(missing - trained_missing)) >= _MISSING_MOVED:
        parts.append(f"{missing:.1%} of the values are missing, {trained_missing:.1%} in training")
    if sums.get("mean") is not None and profile.quantiles:
        steps, last = profile.quantiles, len(profile.quantiles) - 1
        for i, edge in enumerate(_edges(profile)):
            # Where quantiles are equal, training had a value often, and all of its shares are
            # right.
            least, most = steps.index(edge) / last, (last - steps[::-1].index(edge)) / last
            below, upto = (sums[f"{side}{i}"] / present for side in ("below", "upto"))
            distance = max(distance, least - upto, below - most)
        outside = (sums["below0"] + present - sums[f"upto{len(_QUANTILES) - 1}"]) / present
        if max(distance / _MOVED, outside / _OUTSIDE) >= 1:
            trained_mean = profile.mean or 0.0
            moved = (sums["mean"] - trained_mean) / (profile.deviation or 1.0)
            parts.append(
                f"the mean is {sums['mean']:.6g}, {trained_mean:.6g} in training ({moved:+.3g} "
                f"standard deviations); {outside:.1%} of the numbers are outside of its range "
                f"from {steps[0]:.6g} to {steps[-1]:.6g}"
            )
    amount = amount_of_move(rows, profile.count, gap, distance, outside)
    finding = _KIND.finding(
        WARNING if amount >= 1 else PASSED,
        (name,),
        f"'{name}': {'; '.join(parts)}",
        f"compare '{name}' in both files; if the new values are right, train with such rows",
    )
    return amount, finding


def moved_numbers(
    column: str, values: NDArray[np.float64], trained: NDArray[np.float64]
) -> Finding:
    """Returns whether numbers are distributed as in training, [rows] each, NaN where missing."""
    present, known = values[~np.isnan(values)], trained[~np.isnan(trained)]
    profile = ColumnProfile(len(trained), len(trained) - len(known))
    sums: dict[str, float] = {"present": len(present)}
    if len(known) and len(present):
        steps = np.quantile(known, np.linspace(0, 1, MAX_QUANTILES), method="lower")
        statistics = (None, float(known.mean()), float(known.std()), tuple(steps.tolist()))
        profile = ColumnProfile(profile.count, profile.missing, *statistics)
        sums["mean"] = float(present.mean())
        for i, edge in enumerate(_edges(profile)):
            sums |= {
                f"below{i}": int((present < edge).sum()),
                f"upto{i}": int((present <= edge).sum()),
            }
    return _moved(column, profile, sums, len(values))[1]
