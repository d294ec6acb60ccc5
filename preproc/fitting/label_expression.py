"""Labels as an Ibis expression that means what `encodings.Label` does."""

import ibis
import ibis.expr.types as ir

from preproc.encoding.encodings import Label
from preproc.fitting.expressions import number, text


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
