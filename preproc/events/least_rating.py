"""Ratings of events, of which only those of a least value count."""

import ibis.expr.types as ir

from preproc.engines.engine import Engine, count_rows
from preproc.events.raw_table import RATING


def rating_number(rows: ir.Table) -> ir.FloatingValue:
    """Returns the rating of each row, null for invalid ones."""
    rating = rows[RATING]
    number = rating.try_cast("float64") if rating.type().is_string() else rating.cast("float64")
    return number.nullif(float("nan"))


def above_rating(engine: Engine, rows: ir.Table, least: float | None) -> tuple[ir.Table, int]:
    """Returns the rows with at least a rating, and the number of the others.

    Args:
        rows: with a column `rating`, unless all rows count.
        least: None: all rows count.

    Raises:
        ValueError: no row is left.
    """
    if least is None:
        return rows, 0
    is_above = rating_number(rows) >= least
    above = rows.filter(is_above)
    num_below = count_rows(engine, rows.filter(~is_above))
    if num_below and not count_rows(engine, above):
        raise ValueError(f"--min_rating {least:g}: all {num_below:,} ratings are below")
    return above, num_below
