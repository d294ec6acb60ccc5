"""Columns of fractions of which most are different, whose values are not counted."""

import re
from collections.abc import Sequence

import ibis
import ibis.expr.types as ir

from preproc.encoding.arrow_columns import NUMBER
from preproc.engines.engine import ROW, Engine, fetch_row
from preproc.fitting.expressions import CODE, number, text
from preproc.fitting.infer import ColumnFacts

SAMPLE_ROWS = 200_000
_FIRST_ROWS = 1000  # most columns are seen to be others without a pass over the table


def sample_of(rows: ir.Table, num_rows: int, most: int | None = None) -> ir.Table:
    """Returns at most `most` of the rows (None: `SAMPLE_ROWS`), the same ones on every engine."""
    step = -(-num_rows // (most or SAMPLE_ROWS))
    return rows.filter(rows[ROW] % step == 0) if step > 1 else rows


def continuous_columns(
    engine: Engine, rows: ir.Table, columns: Sequence[str], missing: tuple[str, ...], num_rows: int
) -> list[str]:
    """Returns the columns of a large table that hold fractions of which most are different, by a
    sample: counting each value would take most of the time and the memory of a run.

    Args:
        rows: table of `Engine.read`.
    """
    if num_rows <= SAMPLE_ROWS or any(re.match(NUMBER, spelling) for spelling in missing):
        return []
    names = [n for n in columns if rows[n].type().is_string() or rows[n].type().is_floating()]
    for sample in (rows.order_by(ROW).limit(_FIRST_ROWS), sample_of(rows, num_rows)):
        tests: dict[str, ir.Scalar] = {}
        for i, name in enumerate(names):
            x = number(sample[name], missing)
            tests[f"present{i}"], tests[f"distinct{i}"] = x.count(), x.nunique()
            tests[f"fractions{i}"] = ibis.ifelse(x % 1 != 0, 1, 0).sum()
        row = fetch_row(engine, sample.agg(**tests)) if tests else {}
        names = [
            name
            for i, name in enumerate(names)
            if row[f"fractions{i}"] and 2 * row[f"distinct{i}"] > row[f"present{i}"]
        ]
    return names


def continuous_facts(
    engine: Engine, rows: ir.Table, column: str, missing: tuple[str, ...]
) -> ColumnFacts | None:
    """Returns the facts of a column of `continuous_columns`; None if not all rows are like that."""
    value = rows[column]
    if value.type().is_string():
        is_number = value.re_search(NUMBER).fill_null(False)
        # Branches of a condition are evaluated for their rows only.
        others = ibis.ifelse(is_number, ibis.null("string"), text(value, missing)).count()
        codes = ibis.ifelse(value.re_search(CODE), 1, 0).sum()
    else:
        is_number = value.notnull() & ~value.isnan().fill_null(False)
        others = codes = ibis.literal(0)
    row = fetch_row(
        engine,
        rows.agg(
            rows=rows.count(),
            present=ibis.ifelse(is_number, 1, 0).sum(),
            others=others,
            codes=codes,
        ),
    )
    if row["others"] or row["codes"]:
        return None
    return ColumnFacts(row["present"], row["rows"] - row["present"], 0, is_number=True)
