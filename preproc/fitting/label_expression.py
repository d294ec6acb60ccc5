"""Labels as an Ibis expression that means what `encodings.Label` does."""

from collections.abc import Iterator, Mapping

import ibis
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from preproc.encoding.encodings import Label
from preproc.engines.engine import ROW, Engine
from preproc.fitting.expressions import hashed, number, text

FOLDS = 5
_COLUMNS = 8  # fetched at a time


def label_number(column: ir.Value, label: Label, missing: tuple[str, ...]) -> ir.FloatingValue:
    """Returns 1.0 or 0.0 for each value of a column; null for missing and other values."""
    if label.above is not None:
        value = number(column, missing)
        return ibis.cases((value > label.above, 1.0), (value <= label.above, 0.0))
    kind = column.type()
    words = text(column, ()) if kind.is_boolean() or kind.is_string() else None
    numbers = None if kind.is_boolean() else number(column, ())

    def has(code: int) -> ir.BooleanValue:
        keys = [key for key, meaning in label.meanings.items() if meaning == code]
        result = ibis.literal(False)
        if words is not None:
            result |= words.lower().isin([key for key in keys if isinstance(key, str)])
        if numbers is not None:
            result |= numbers.isin([key for key in keys if isinstance(key, float)])
        return result.fill_null(False)

    others = None
    if label.others is not None:
        is_present = text(column, missing).notnull() if words is not None else numbers.notnull()
        others = ibis.ifelse(is_present, float(label.others), ibis.null("float64"))
    return ibis.cases((has(1), 1.0), (has(0), 0.0), else_=others)


def labelled_columns(
    engine: Engine,
    rows: ir.Table,
    values: Mapping[str, ir.Value],
    label: Label,
    missing: tuple[str, ...],
    seed: int,
) -> Iterator[tuple[str, pa.ChunkedArray, np.ndarray, np.ndarray]]:
    """Yields name and values of each column in the rows that have a label, labels (bool) and folds.

    Args:
        values: of the columns of `rows`, by name.
        seed: of the folds, from 0 to `FOLDS` - 1.
    """
    fold = (hashed(rows[ROW], seed) % FOLDS).cast("int8")
    number = label_number(rows[label.column], label, missing)
    for start in range(0, len(values), _COLUMNS):
        names = [*values][start : start + _COLUMNS]
        columns = {f"c{i}": values[name] for i, name in enumerate(names)}
        fetched = engine.fetch(rows.select(label=number, fold=fold, **columns))
        # Not by a condition of the query, which would cost more.
        fetched = fetched.filter(fetched["label"].is_valid())
        labels = fetched["label"].to_numpy().astype(bool)
        folds = fetched["fold"].to_numpy().astype(np.int64)
        for i, name in enumerate(names):
            yield name, fetched[f"c{i}"], labels, folds
