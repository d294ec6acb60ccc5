"""Times of a column as int64 or float64 that are ordered as the times are.

Timestamps become nanoseconds (in UTC unless they name another zone), numbers units of the last
digit after the point that occurs in the column. Numbers that do not fit into 64 bits then, or of
which one has an exponent, become float64, and each must be one that float64 represents without
loss.
"""

from collections.abc import Callable

import ibis
from ibis.expr import types as ir

from preproc.engines.engine import Engine, fetch_row

_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_ZONE = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
_CLOCK = r"[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
TIMESTAMP = rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}({_CLOCK}{_ZONE}?)?$"
_OFFSET = r":[0-9]{2}[+-][0-9:]+$"
_MOST_SECONDS = ((1 << 63) - 1) // 10**9 - 1
_LARGEST = 1.7976931348623157e308  # of float64
_NANOSECONDS = 9  # digits


# Number, place and value of the first row with a condition; None without one.
First = Callable[[ir.BooleanValue], tuple[int, str, object] | None]


def time_number(
    engine: Engine, rows: ir.Table, values: ir.Value, title: str, first: First
) -> ir.NumericValue:
    """Returns an expression of the columns of a table for the number of a time.

    Args:
        values: times of `rows`, null where they are missing.
        title: name of the column in messages.
        first: finds rows for messages.

    Raises:
        ValueError: a time is neither a number nor a timestamp, times are of both kinds, or digits
            would be lost.
    """
    if values.type().is_integer():
        return values.cast("int64")
    text = values.cast("string")
    is_number = text.re_search(_NUMBER) & (text.try_cast("float64").abs() <= _LARGEST)
    timestamp = _nanoseconds(text)
    fraction = text.re_extract(r"\.([0-9]*?)0*$", 1)
    counts = fetch_row(
        engine,
        rows.aggregate(
            num_rows=values.count(),
            numbers=is_number.sum(),
            timestamps=timestamp.notnull().sum(),
            digits=fraction.length().max(),
        ),
    )
    if (counts["numbers"] or 0) < counts["num_rows"]:
        if (counts["timestamps"] or 0) < counts["num_rows"]:
            raise _fault(title, first, is_number, timestamp.notnull())
        return timestamp
    before_point = text.re_extract(r"^([+-]?[0-9]*)", 1)
    has_exponent = text.re_search("[eE]")
    scaled = ibis.ifelse(
        has_exponent,
        ibis.null("int64"),
        (before_point + fraction.rpad(int(counts["digits"] or 0), "0")).try_cast("int64"),
    )
    if first(values.notnull() & scaled.isnull()) is None:
        return scaled
    exact = text.try_cast("decimal(38, 18)")
    number = text.cast("float64")
    stored = number.cast("string").try_cast("decimal(38, 18)")
    if inexact := first(exact != stored):
        _, place, value = inexact
        raise ValueError(
            f"{place}: {title} is {value}; expected times that fit into 64 bits, "
            "without a loss of digits, in the unit of the last digit after the point of all times "
            "(in float64 where a time has an exponent); write all times with fewer digits"
        )
    return number + 0.0  # -0.0 is 0.0


def _nanoseconds(text: ir.StringValue) -> ir.IntegerValue:
    """Returns the nanoseconds of a timestamp since 1970, null for other text."""
    # The engines' timestamps have microseconds, and DuckDB's without a zone ignore an offset.
    without = text.re_replace(r"\.[0-9]+", "")
    in_utc, in_zone = (
        without.try_cast(kind).epoch_seconds() for kind in ("timestamp", "timestamp('UTC')")
    )
    seconds = ibis.ifelse(without.re_search(_OFFSET), in_zone, in_utc)
    # DuckDB's seconds are float64, which Ibis takes for integers.
    seconds = seconds.cast("float64").cast("int64")
    fraction = text.re_extract(r"\.([0-9]+)", 1).rpad(_NANOSECONDS, "0")
    is_valid = text.re_search(TIMESTAMP) & seconds.between(-_MOST_SECONDS, _MOST_SECONDS)
    return ibis.ifelse(
        is_valid, seconds * 10**_NANOSECONDS + fraction.try_cast("int64"), ibis.null("int64")
    )


def _fault(
    title: str, first: First, is_number: ir.BooleanValue, is_timestamp: ir.BooleanValue
) -> ValueError:
    if invalid := first(~(is_number | is_timestamp)):
        _, place, value = invalid
        return ValueError(
            f"{place}: {title} is {str(value)!r:.100}; a time is a number or a timestamp like "
            "2014-07-23 or 2014-07-23 12:30:00, of the years 1678 to 2261, whose nanoseconds fit "
            "into 64 bits"
        )
    kinds = {"numbers": is_number, "timestamps": is_timestamp}
    (_, before), ((_, place, value), _) = sorted(
        (first(condition), kind) for kind, condition in kinds.items()
    )
    return ValueError(
        f"{place}: {title} is {str(value)!r}, and times before it are {before}; write all times in "
        "one way"
    )
