"""Types of raw columns: number, ids or list, inferred once from the different values of each."""

from collections.abc import Sequence
from dataclasses import dataclass

import ibis
import ibis.expr.types as ir

from preproc.encoding.arrow_columns import NUMBER
from preproc.encoding.lists import SEPARATOR
from preproc.engines.engine import Engine, fetch_row
from preproc.events.times import TIMESTAMP
from preproc.fitting.expressions import (
    CODE,
    DIGITS,
    EXPONENT,
    INTEGER,
    LEAST_CODE,
    POINT,
    SCALARS,
    STRINGS,
    lists,
    text,
)
from preproc.fitting.near_numbers import FORMATTED, SHARE, NearNumbers, near_numbers
from preproc.fitting.unsplit_lists import SHARE as UNSPLIT_SHARE
from preproc.fitting.unsplit_lists import UnsplitLists, bracketed, separators, unsplit_lists

NUMBERS, IDS, OTHER = "numbers", "ids", "other"
_LIST_SHARE = 0.01  # of the texts with a separator, from which on a column holds lists
VALUE, COUNT = "value", "count"  # columns of the tables of `count_values`


@dataclass(frozen=True)
class ColumnFacts:
    """Facts about the values of a column in train.

    Attributes:
        present, missing: numbers of values.
        distinct: number of different values; 0: most are different, see `continuous`.
        is_number, is_whole: whether all present values are numbers, and whole ones.
        is_code: whether a whole number has 16 digits or more, or, as a text, leading zeros, or
            digits with an `E` between them where all others are digits.
        has_point: whether a whole number is written as `7.0`.
        list_form: form of lists, see `expressions.lists`; empty: single values.
        hotness: length of the longest list.
        other_type: type that is neither text nor number; empty for others.
        are_dates: whether all values are dates or times of dates, as text or as a type.
        near_numbers: of texts of which nearly all are numbers; None for others.
        unsplit_lists: of texts that look like lists and are single values; None for others.
    """

    present: int
    missing: int
    distinct: int
    is_number: bool = False
    is_whole: bool = False
    is_code: bool = False
    has_point: bool = False
    list_form: str = ""
    hotness: int = 1
    other_type: str = ""
    are_dates: bool = False
    near_numbers: NearNumbers | None = None
    unsplit_lists: UnsplitLists | None = None

    @property
    def is_continuous(self) -> bool:
        """True if most values are different; they are not counted."""
        return self.present > 0 and not self.distinct

    @property
    def kind(self) -> str:
        """`NUMBERS`, `IDS`, or `OTHER` for a column without values and for other types."""
        if self.other_type or not self.present:
            return OTHER
        return NUMBERS if self.is_number and not self.is_code and not self.list_form else IDS

    def __str__(self) -> str:
        if self.other_type or not self.present:
            return self.other_type or "no value"
        kind = "text" if self.kind == IDS else "integers" if self.is_whole else "numbers"
        if self.list_form:
            kind = f"lists of up to {self.hotness}"
        return f"{kind}, {'most' if self.is_continuous else f'{self.distinct:,}'} different"


def count_values(
    engine: Engine, rows: ir.Table, column: str, missing: Sequence[str], name: str
) -> ir.Table:
    """Returns a table, stored under a name, of the different values of a column and the number of
    rows of each; texts are those of `expressions.text`."""
    grouped = rows.group_by(rows[column].name(VALUE)).agg(**{COUNT: rows.count()})
    if grouped[VALUE].type().is_string():  # different values are fewer than rows
        texts = grouped.select(text(grouped[VALUE], tuple(missing)).name(VALUE), COUNT)
        grouped = texts.group_by(VALUE).agg(**{COUNT: texts[COUNT].sum()})
    return engine.store_table(grouped, name)


def column_facts(
    engine: Engine, counts: ir.Table, missing: Sequence[str], is_list: bool | None = None
) -> ColumnFacts:
    """Returns the facts of a column, from its table of `count_values`.

    Args:
        is_list: whether its texts are lists; None: that is inferred.
    """
    kind = counts[VALUE].type()
    if kind.is_array():
        return _list_facts(engine, counts, "list", tuple(missing))
    if kind.is_string():
        return _text_facts(engine, counts, tuple(missing), is_list)
    if not (kind.is_numeric() or kind.is_boolean()):
        are_dates = kind.is_date() or kind.is_timestamp()
        return ColumnFacts(1, 0, 1, other_type=str(kind), are_dates=are_dates)
    value = counts[VALUE]
    present = ~value.isnan() & value.notnull() if kind.is_floating() else value.notnull()
    whole = ibis.literal(True)
    if kind.is_floating():
        whole = (value % 1 == 0) & (value.abs() <= 1 << 53)
    elif kind.is_decimal():
        whole = value % 1 == 0
    is_number = not kind.is_boolean()
    is_code = (value >= LEAST_CODE) | (value <= -LEAST_CODE) if is_number else ibis.literal(False)
    row = fetch_row(
        engine,
        counts.agg(
            present=_sum(counts, present),
            rows=counts[COUNT].sum(),
            distinct=present.cast("int64").sum(),
            is_whole=(whole | ~present).all(),
            is_code=(is_code & present).any(),
        ),
    )
    is_whole = is_number and bool(row["is_whole"])
    return ColumnFacts(
        row["present"] or 0, (row["rows"] or 0) - (row["present"] or 0), row["distinct"] or 0,
        is_number, is_whole, is_whole and bool(row["is_code"]),
    )  # fmt: skip


def _sum(counts: ir.Table, condition: ir.BooleanValue) -> ir.IntegerScalar:
    return ibis.ifelse(condition, counts[COUNT], 0).sum()


def _text_facts(
    engine: Engine, counts: ir.Table, missing: tuple[str, ...], is_list: bool | None
) -> ColumnFacts:
    value = counts[VALUE]
    row = fetch_row(
        engine,
        counts.agg(
            present=_sum(counts, value.notnull()),
            rows=counts[COUNT].sum(),
            distinct=value.count(),
            numbers=_sum(counts, value.re_search(NUMBER)),
            formatted=_sum(counts, value.re_search(FORMATTED)),
            dates=_sum(counts, value.re_search(TIMESTAMP)),
        ),
    )
    present, rows, distinct = (row[name] or 0 for name in ("present", "rows", "distinct"))
    numbers = row["numbers"]
    if is_list or (present and numbers < present):
        form, lists = "", None
        if is_list is not False:
            form, lists = _list_form(engine, counts, value, present)
        form = form or (SEPARATOR if is_list else "")
        if form:
            facts = _list_facts(engine, counts, form, missing)
            # Texts of single values in JSON are not divided when they are encoded.
            if is_list or (facts.distinct <= distinct if form == SEPARATOR else facts.hotness > 1):
                return facts
        near = None
        if numbers + row["formatted"] >= SHARE * present:
            near = near_numbers(engine, counts, VALUE, COUNT, present, numbers)
        return ColumnFacts(
            present,
            rows - present,
            distinct,
            are_dates=row["dates"] == present,
            near_numbers=near,
            unsplit_lists=None if near else lists,
        )
    row = fetch_row(
        engine,
        counts.agg(
            whole=_sum(counts, value.re_search(INTEGER)),
            codes=_sum(counts, value.re_search(CODE)),
            exponents=_sum(counts, value.re_search(EXPONENT)),
            digits=_sum(counts, value.re_search(DIGITS)),
            points=_sum(counts, value.re_search(POINT)),
        ),
    )
    exponents = row["exponents"] or 0
    return ColumnFacts(
        present,
        rows - present,
        distinct,
        is_number=True,
        is_whole=row["whole"] == present,
        is_code=bool(row["codes"] or (exponents and row["digits"] + exponents == present)),
        has_point=bool(row["points"]),
    )


def _list_form(
    engine: Engine, counts: ir.Table, value: ir.StringValue, present: int
) -> tuple[str, UnsplitLists | None]:
    """Returns the form of lists of texts, some of which are not numbers, empty for other texts; and
    what these are if they look like lists."""
    is_json = value.startswith("[") & value.endswith("]")
    others = separators(value)
    row = fetch_row(
        engine,
        counts.agg(
            separated=_sum(counts, value.contains(SEPARATOR)),
            json=_sum(counts, is_json),
            quoted=_sum(counts, is_json & value.contains('"')),
            strings=_sum(counts, is_json & value.re_search(STRINGS)),
            scalars=_sum(counts, is_json & value.re_search(SCALARS)),
            escaped=_sum(counts, is_json & value.contains("\\")),
            bracketed=_sum(counts, bracketed(value)),
            **{f"other{i}": _sum(counts, test) for i, test in enumerate(others.values())},
        ),
    )
    is_uniform = row["strings" if row["quoted"] else "scalars"] == present
    if row["json"] == present and not row["escaped"] and is_uniform:
        return "strings" if row["quoted"] else "numbers", None
    if row["separated"] >= _LIST_SHARE * present:
        return SEPARATOR, None
    for i, separator in enumerate(others):
        if row[f"other{i}"] >= UNSPLIT_SHARE * present:
            is_sure = separator == "|" or row["bracketed"] == present
            return "", unsplit_lists(engine, counts, VALUE, COUNT, separator, is_sure)
    return "", None


def _list_facts(
    engine: Engine, counts: ir.Table, form: str, missing: tuple[str, ...]
) -> ColumnFacts:
    value = counts[VALUE]
    kind = value.type().value_type if form == "list" else None
    if kind is not None and not (kind.is_string() or kind.is_numeric() or kind.is_boolean()):
        return ColumnFacts(1, 0, 1, other_type=f"lists of {kind}")
    values = lists(value, form, missing)
    unnested = counts.select(element=values.unnest(), **{COUNT: counts[COUNT]})
    element = text(unnested.element, missing)
    row = fetch_row(
        engine,
        unnested.agg(
            present=_sum(unnested, element.notnull()),
            rows=unnested[COUNT].sum(),
            distinct=element.nunique(),
            whole=_sum(unnested, element.re_search(INTEGER)),
            points=_sum(unnested, element.re_search(POINT)),
        ),
    )
    longest = fetch_row(engine, counts.agg(hotness=values.length().max()))
    present = row["present"] or 0
    are_fractions = kind is not None and not _are_whole(engine, unnested)
    return ColumnFacts(
        present,
        (row["rows"] or 0) - present,
        row["distinct"] or 0,
        is_whole=row["whole"] == present and not are_fractions,
        has_point=bool(row["points"]),
        list_form=form,
        hotness=max(1, longest["hotness"] or 0),
        other_type=f"lists of {kind}" if are_fractions else "",
    )


def _are_whole(engine: Engine, unnested: ir.Table) -> bool:
    element = unnested.element
    kind = element.type()
    if not (kind.is_floating() or kind.is_decimal()):
        return True
    is_whole = (element % 1 == 0) | element.isnull()
    if kind.is_floating():
        is_whole |= element.isnan()
    return bool(fetch_row(engine, unnested.agg(whole=is_whole.all()))["whole"])
