"""A log in an engine: typed events, and the tables of users' and items' features."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ibis.expr import types as ir

SKIP_HELP = "Fix the file, or leave such rows out with --on_bad_line skip"  # of a bad row


@dataclass(frozen=True)
class FeatureTable:
    """Features of users or of items.

    Attributes:
        table: columns `user` (or `item`), and a column for each feature; any users, repeated or
            not, null where a feature is unknown.
        titles: column of a feature -> its name in messages.
        gaps_count: whether a null means that there is no value, and so contradicts a row that has
            one. If not, a row with a null is ignored.
        source: files of the table; empty for columns of the log.
    """

    table: ir.Table
    titles: Mapping[str, str]
    gaps_count: bool = True
    source: str = ""


@dataclass(frozen=True)
class EventLog:
    """Raw values are int64 or UTF-8 text.

    Attributes:
        events: user, item (each of one type in all tables), time (int64 or float64), no nulls, and
            row, the number of the row in the log; a stored table.
        num_events: rows of `events`.
        num_bad: lines and rows that were left out.
        columns: "user" and "item" -> column of the log.
        num_below: events below --min_rating, which were left out.
        features: "user" or "item" -> its features, if it has any.
    """

    events: ir.Table
    num_events: int
    num_bad: int
    columns: Mapping[str, str]
    num_below: int = 0
    features: Mapping[str, FeatureTable] = field(default_factory=dict)
