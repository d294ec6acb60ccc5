"""Profile of a source column in the training split, for checks of later rows."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_QUANTILES, MAX_FREQUENT, MAX_VALUES = 101, 20, 64


@dataclass(frozen=True)
class ColumnProfile:
    """Statistics of a source column.

    Attributes:
        count: values, missing ones included.
        missing: missing values.
        unknown: share of id 0 among the values; None: not encoded as ids.
        mean, deviation: of numbers; None for other columns.
        quantiles: of numbers, ascending from the minimum to the maximum at equal steps of
            probability, at most `MAX_QUANTILES`; those of a sample of a large table in which most
            numbers are different.
        values: all different numbers, ascending, where there are at most `MAX_VALUES`.
        frequent: the most frequent values and their counts, by falling count, at most
            `MAX_FREQUENT`.
    """

    count: int
    missing: int
    unknown: float | None = None
    mean: float | None = None
    deviation: float | None = None
    quantiles: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    frequent: tuple[tuple[str, int], ...] = ()

    @property
    def missing_share(self) -> float:
        """Share of missing values."""
        return self.missing / self.count if self.count else 0.0

    def to_json(self) -> dict[str, Any]:
        """Returns the statistics that exist, as JSON has them."""
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if value not in (None, ())}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "ColumnProfile":
        """Returns the profile that `to_json` describes."""
        frequent = tuple((value, count) for value, count in values.get("frequent", ()))
        lists = {name: tuple(values.get(name, ())) for name in ("quantiles", "values")}
        return cls(**{**values, **lists, "frequent": frequent})
