"""Texts, numbers, lists, hashes as Ibis expressions that mean what `arrow_columns` does."""

import re

import ibis
import ibis.expr.types as ir

from preproc.encoding.arrow_columns import NUMBER
from preproc.encoding.lists import SEPARATOR

INTEGER = r"^[+-]?[0-9]{1,18}(\.0*)?$"
# Numbers that are codes: with leading zeros, or longer than float64 holds exactly.
CODE = r"^[+-]?(0[0-9]|[0-9]{16})"
LEAST_CODE = 10**15  # with 16 digits
DIGITS = r"^[0-9]+$"
EXPONENT = r"^[0-9]+[eE][0-9]+$"  # of a number, or a code such as `12E5`
POINT = r"\.0*$"  # of a whole number that pandas wrote as a float
STRINGS = r'^\[\s*("[^"]*"(\s*,\s*"[^"]*")*)?\s*\]$'  # JSON list of strings
_SCALAR = r"(-?[0-9][0-9.eE+-]*|true|false|null)"
SCALARS = rf"^\[\s*({_SCALAR}(\s*,\s*{_SCALAR})*)?\s*\]$"  # JSON list of numbers or booleans
EMPTY_LIST = r"^\[\s*\]$"  # of JSON
HASH_RANGE = (1 << 31) - 1  # a prime; products of two numbers below it fit into int64
_FACTORS = (48271, 1_277_803_737)
_STRIDE = 1_597_334_677


def text(column: ir.Value, missing: tuple[str, ...], is_integer: bool = False) -> ir.StringValue:
    """Returns the text of each value without spaces around it; null for missing values.

    Args:
        column: text, boolean, integer, float or decimal; the last two must be whole.
        missing: spellings of missing values.
        is_integer: `7.0` becomes `7`.
    """
    kind = column.type()
    if kind.is_string():
        result = column.strip()
        if is_integer:
            result = result.re_replace(POINT, "")
    elif kind.is_boolean():
        result = ibis.ifelse(column, "true", ibis.ifelse(~column, "false", ibis.null("string")))
    elif kind.is_floating():
        result = _present(column).try_cast("int64").cast("string")
    elif kind.is_decimal():
        result = column.cast("decimal(38, 0)").cast("string")
    else:
        result = column.cast("string")
    return ibis.ifelse(result.isin(missing), ibis.null("string"), result)


def without_missing(text: ir.StringValue, missing: tuple[str, ...]) -> ir.StringValue:
    """Returns texts as they are, with the spaces around them; null for missing values."""
    # Most values differ from all spellings in their first character, whose test costs little.
    starts = {spelling[0] for spelling in missing if spelling}
    may_be = text < "!"
    for start in sorted(starts):
        may_be |= (text >= start) & (text < chr(ord(start) + 1))
    is_missing = text.strip().isin(missing)
    return ibis.ifelse(may_be, ibis.ifelse(is_missing, ibis.null("string"), text), text)


def number(column: ir.Value, missing: tuple[str, ...]) -> ir.FloatingValue:
    """Returns each value as float64, 0 for -0; null for missing values and other texts."""
    # Of -0 and 0, DuckDB keeps either in a group, Spark 0.
    if not column.type().is_string():
        return _present(column.cast("float64")) + 0.0
    result = _present(column.try_cast("float64")) + 0.0  # which trims; null for other texts
    spelled = [spelling for spelling in missing if re.match(NUMBER, spelling)]
    if not spelled:
        return result
    return ibis.ifelse(column.strip().isin(spelled), ibis.null("float64"), result)


def _present(column: ir.FloatingValue) -> ir.FloatingValue:
    return ibis.ifelse(column.isnan(), ibis.null(column.type()), column)


def hashed(row: ir.IntegerValue, seed: int) -> ir.IntegerValue:
    """Returns a pseudo-random integer in [0, HASH_RANGE) for each row number, in any SQL.

    Multiplications modulo a prime with shifts between them: every intermediate fits into int64.
    """
    # Seeds begin far apart in one sequence.
    result = (row + seed * _STRIDE % HASH_RANGE) % HASH_RANGE
    for factor in _FACTORS:
        result = (result ^ (result >> 15)) * factor % HASH_RANGE
    return result


def lists(column: ir.Value, form: str, missing: tuple[str, ...]) -> ir.ArrayValue:
    """Returns lists of values; null for an empty one of JSON.

    Args:
        column: lists, or texts of lists.
        form: "list" (Arrow lists), ";" (texts with separators), "strings" or "numbers" (JSON).
    """
    if form == "list":
        return column
    stripped = text(column, missing)
    if form == SEPARATOR:
        return stripped.split(SEPARATOR)
    quote = '"' if form == "strings" else ""
    inner = stripped.re_replace(rf"^\[\s*{quote}|{quote}\s*\]$", "")
    inner = ibis.ifelse(stripped.re_search(EMPTY_LIST), ibis.null("string"), inner)
    return inner.re_split(rf"{quote}\s*,\s*{quote}")
