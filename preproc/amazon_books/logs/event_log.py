"""A log in an engine: typed events, and the tables of users' and items' features."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ibis.expr import types as ir

from preproc.events.raw_table import RawTable


@dataclass(frozen=True)
class FeatureTable:
    """Features of users or of items.

    Attributes:
        table: columns `user` (or `item`), and a column for each feature; any users, repeated or
            not, null where a feature is unknown.
        titles: column of a feature -> its name in messages.
        gaps_count: whether a null means that there is no value, and so contradicts a row that has
            one. If not, a row with a null is ignored.
    """

    table: ir.Table
    titles: Mapping[str, str]
    gaps_count: bool = True


@dataclass(frozen=True)
class EventLog:
    """Raw values are int64 or UTF-8 text.

    Attributes:
        events: user, item (each of one type in all tables), time (int64 or float64), no nulls, and
            row, the number of the row in the log; a stored table.
        num_events: rows of `events`.
        num_bad: lines and rows that were left out.
        features: "user" or "item" -> its features, if it has any.
    """

    events: ir.Table
    num_events: int
    num_bad: int
    features: Mapping[str, FeatureTable] = field(default_factory=dict)


def bad_row(table: RawTable, faults: Mapping[str, ir.BooleanValue]) -> ValueError:
    """Returns the error of the first row that lacks a value, or whose time is not an integer."""
    row, place, value, column = table.first_fault(faults)
    title = table.titles[column]
    fault = f"{title} is {value!r:.60}; it must be an integer of 64 bits"
    if value is None:
        fault = f"no {title}{table.spelling(row, column)}"
    return ValueError(
        f"{place}: {fault}. Fix the file, or leave such rows out with --on_bad_line skip"
    )
