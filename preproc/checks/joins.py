"""Users or items of a log, joined with a table of their features."""

import ibis.expr.types as ir

from preproc.checks.report import PASSED, WARNING, Finding, Kind
from preproc.engines.engine import Engine, count_rows

_LEAST_SHARE = 0.5
_EXAMPLES = 3
_KIND = Kind(
    "joined_tables", "all users or items that a table lacks share one value of each of its features"
)


def joined_table(engine: Engine, kind: str, ids: ir.Table, table: ir.Table, source: str) -> Finding:
    """Returns whether most of the users or items of a log are in a table of their features.

    Args:
        kind: "user" or "item".
        ids: a column `value`, each once.
        table: a column `kind`, of the same type.
        source: files of the table.

    Raises:
        ValueError: none of them is.
    """
    log, rows = ids.select("value"), table.select(value=kind)
    num, matched = count_rows(engine, log), count_rows(engine, log.semi_join(rows, "value"))
    if matched >= _LEAST_SHARE * num:
        return _KIND.finding(PASSED)
    share = f"{matched:,}" if matched else "none"
    seen = f"{share} of the {num:,} {kind}s of the log are in {source}"
    for what, one, other in (("log", log, rows), ("table", rows, log)):
        lacking = one.anti_join(other, "value").distinct().order_by("value").limit(_EXAMPLES)
        if values := engine.fetch(lacking)["value"].to_pylist():
            seen += f"; only the {what} has {', '.join(map(repr, values))}"
    remedy = f"write the {kind}s of both in the same way, or pass the table of this log"
    if not matched:
        raise ValueError(f"{seen}; {remedy}")
    return _KIND.finding(WARNING, seen=seen, remedy=remedy)
