"""Columns of times as values that are ordered as the times are."""

import ibis
import ibis.expr.types as ir

from preproc.encoding.columns import NUMBER
from preproc.engines.engine import ROW, Engine, fetch_row
from preproc.fitting.expressions import text

_WHOLE = r"^[+-]?[0-9]{1,18}$"
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ISO = _DAY + r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?$"
_OFFSET = r"(Z|:[0-9]{2}(\.[0-9]+)?[+-][0-9]{2}:?[0-9]{2})$"
RULE = (
    "only whole numbers, only finite numbers, or only ISO 8601 dates or times, all with or all "
    "without an offset, such as 2024-05-31, 2024-05-31T23:59:59 or 2024-05-31T23:59:59Z"
)


def time_of(
    engine: Engine, table: ir.Table, column: str, missing: tuple[str, ...], flag: str
) -> ir.Value:
    """Returns the times of a column of texts, numbers, dates or timestamps.

    Args:
        table: rows of `Engine.read`.
        flag: name of the column in messages.

    Raises:
        ValueError: a value is missing, or is not a time of the kind of the others.
    """
    values = table[column]
    kind = values.type()
    if kind.is_date() or kind.is_timestamp() or kind.is_integer() or kind.is_decimal():
        _check(engine, table, column, values.isnull(), flag)
        # Python has no nanoseconds.
        return values.cast(kind.copy(scale=6)) if kind.is_timestamp() else values
    if kind.is_floating():
        is_bad = values.isnull() | values.isnan() | values.isinf()
        _check(engine, table, column, is_bad, flag)
        return values
    if not kind.is_string():
        raise ValueError(f"{flag}: expected {RULE}, got a column of {kind}")
    values = text(values, missing)
    numbers = values.try_cast("float64")
    kinds = {
        "whole": values.re_search(_WHOLE),
        "number": values.re_search(NUMBER) & ~numbers.isinf(),
        "offset": values.re_search(_ISO) & values.re_search(_OFFSET),
        "time": values.re_search(_ISO) & ~values.re_search(_OFFSET),
    }
    checks = {name: ibis.ifelse(is_kind, 1, 0).sum() for name, is_kind in kinds.items()}
    counts = fetch_row(engine, table.agg(**checks))
    best = max(kinds, key=lambda name: (counts[name] or 0, name == "whole"))
    types = {"whole": "int64", "number": "float64", "offset": "timestamp('UTC')"}
    times = ibis.ifelse(kinds[best], values, ibis.null("string"))
    times = times.try_cast(types.get(best, "timestamp"))
    _check(engine, table, column, times.isnull(), flag)
    return times


def _check(
    engine: Engine, table: ir.Table, column: str, is_bad: ir.BooleanValue, flag: str
) -> None:
    rows = table.select(row=table[ROW], value=table[column], is_bad=is_bad)
    first = engine.fetch(rows.filter(rows.is_bad).order_by("row").limit(1)).to_pylist()
    for row in first:
        value = "no value" if row["value"] in (None, "") else repr(row["value"])
        place = engine.place(table, row["row"], column)
        raise ValueError(f"{place}: {flag}: expected {RULE}, got {value:.100}")
