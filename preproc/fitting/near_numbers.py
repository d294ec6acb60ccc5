"""Columns of texts of which nearly all are numbers: what the others are, and the error of it."""

import shlex
from dataclasses import dataclass

import ibis
import ibis.expr.types as ir

from dataloading.spec.rules import listing
from preproc.encoding.arrow_columns import NUMBER
from preproc.engines.engine import ROW, Engine, fetch_row
from preproc.fitting.expressions import CODE, text

SHARE = 0.95  # of the values, from which on a column is to hold numbers
MOST_SPELLINGS = 5  # of missing values; more are the names of codes, as in ICD-9
_MANY_NUMBERS = 64  # up to here ids are as good as numbers
_FEW_NUMBERS, _FEW_FORMATTED = 20, 10  # suffice where values hardly repeat
_SPACES = " '\u00a0\u202f"
_DIGITS = rf"[0-9][0-9.,{_SPACES}]*"
_CURRENCY = "([$€£¥₹]|USD|EUR|GBP|CHF|JPY|CNY|INR)"
INFINITY = "infinity"
# Texts that people read as numbers; the first one wins where two match equally often.
_FORMATS = {
    "thousands separators": r"[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?|[0-9]{1,3}(\.[0-9]{3})+,[0-9]+|"
    rf"[0-9]{{1,3}}(\.[0-9]{{3}}){{2,}}|[0-9]{{1,3}}([{_SPACES}][0-9]{{3}})+([.,][0-9]+)?",
    "a decimal comma": "[0-9]*,[0-9]+",
    "a percent sign": rf"{_DIGITS} ?%",
    "a currency": rf"{_CURRENCY} ?[+-]?{_DIGITS}|{_DIGITS} ?{_CURRENCY}",
    INFINITY: "(?i:inf|infinity)",
}
FORMATS = {name: f"^[+-]?({pattern})$" for name, pattern in _FORMATS.items()}
FORMATTED = f"^[+-]?({'|'.join(_FORMATS.values())})$"


@dataclass(frozen=True)
class NearNumbers:
    """Facts about a column of texts of which nearly all are numbers.

    Attributes:
        share: part of the present values that are numbers.
        others: different texts that are not numbers, the most frequent first, one more than
            `MOST_SPELLINGS` at most.
        number_format: format that most of the others have, a key of `FORMATS`; empty: none.
    """

    share: float
    others: tuple[str, ...]
    number_format: str = ""

    @property
    def is_error(self) -> bool:
        """True if the column is to hold numbers, so that its other texts are errors."""
        return bool(self.number_format) or len(self.others) <= MOST_SPELLINGS


def near_numbers(
    engine: Engine, counts: ir.Table, value: str, count: str, present: int, numbers: int
) -> NearNumbers | None:
    """Returns the facts of a column; None where numbers in it are codes or few.

    Args:
        counts: different texts in the column `value`, and their rows in the column `count`.
        present, numbers: rows with a value, and with a number.
    """
    texts, rows = counts[value], counts[count]
    is_number = texts.re_search(NUMBER)
    tests = {f"format{i}": texts.re_search(form) for i, form in enumerate(FORMATS.values())}
    sums = fetch_row(
        engine,
        counts.agg(
            distinct=(is_number | texts.re_search(FORMATTED)).cast("int64").sum(),
            codes=(is_number & texts.re_search(CODE)).cast("int64").sum(),
            formatted=ibis.ifelse(texts.re_search(FORMATTED), rows, 0).sum(),
            **{name: ibis.ifelse(test, rows, 0).sum() for name, test in tests.items()},
        ),
    )
    distinct, others = sums["distinct"] or 0, present - numbers
    if sums["codes"]:
        return None
    repeats = 2 * distinct <= present
    best = max(FORMATS, key=lambda name: sums[f"format{[*FORMATS].index(name)}"])
    is_formatted = 2 * sums["formatted"] >= others
    if (
        is_formatted
        and best != INFINITY
        and distinct <= (_FEW_NUMBERS if repeats else _FEW_FORMATTED)
    ):
        return None
    too_few = distinct <= (_MANY_NUMBERS if repeats else _FEW_NUMBERS)
    if not is_formatted and (too_few or numbers < SHARE * present):
        return None
    shown = texts.re_search(FORMATS[best]) if is_formatted else texts.notnull() & ~is_number
    first = counts.filter(shown).order_by([ibis.desc(count), value]).limit(MOST_SPELLINGS + 1)
    names = tuple(row["text"] for row in engine.fetch(first.select(text=value)).to_pylist())
    return NearNumbers(numbers / present, names, best if is_formatted else "")


def refuse_near_numbers(
    engine: Engine, table: ir.Table, column: str, near: NearNumbers, missing: tuple[str, ...]
) -> None:
    """Raises the error of a column that is to hold numbers.

    Args:
        table: rows of `Engine.read`.
        missing: spellings of missing values.
    """
    rows = table.filter(text(table[column], missing) == near.others[0])
    place = engine.place(table, fetch_row(engine, rows.agg(row=rows[ROW].min()))["row"], column)
    flag = f"--categorical {shlex.quote(column)} to take the column as categorical"
    if near.number_format not in ("", INFINITY):
        raise ValueError(
            f"{place}: column '{column}': expected numbers such as 1234.5, got "
            f"{near.others[0]!r}, with {near.number_format}; possible solutions: write the numbers "
            f"of the column like this, or use {flag}"
        )
    what = " (infinite)" if near.number_format else ""
    spellings = shlex.quote(",".join(near.others))
    solutions = [f"--missing_values={spellings} to take such values as missing", flag]
    if any("," in other for other in near.others) or near.others[0].startswith("="):
        solutions = solutions[1:]
    if near.number_format:
        solutions.insert(0, "replace it by a finite number")
    raise ValueError(
        f"{place}: column '{column}': {near.share:.1%} of the values are numbers, but not "
        f"{listing(map(repr, near.others))}{what}; possible solutions: {', or '.join(solutions)}"
    )
