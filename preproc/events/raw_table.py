"""Columns of raw files in an engine: their rows, types, and first rows with a fault."""

import bisect
import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import ibis
from ibis.expr import types as ir

from preproc.arguments import spelled_missing
from preproc.encoding.arrow_columns import MISSING_VALUES
from preproc.engines.engine import ROW, Engine, count_rows
from preproc.events.times import time_number
from preproc.fitting.expressions import without_missing
from preproc.sources.column_chunk import CSV, JSON, PARQUET, SourceChunk
from preproc.sources.header import check_names
from preproc.sources.part_files import LOCAL, csv_columns

TIME, RATING = "time", "rating"  # names in expressions
_KINDS = {RATING: "a number", TIME: "an integer of 64 bits"}
_MOST = (1 << 63) - 1


@dataclass(frozen=True)
class RawTable:
    """The columns of files that a preparation reads, as tables of an engine.

    Attributes:
        chunks, tables: each file, and what `Engine.read` made of it.
        names: name in expressions -> name of the column in the files.
        missing: spellings of missing values in texts.
    """

    engine: Engine
    chunks: Sequence[SourceChunk]
    tables: Sequence[ir.Table]
    names: Mapping[str, str]
    missing: tuple[str, ...] = MISSING_VALUES

    @functools.cached_property
    def rows(self) -> ir.Table:
        """The columns under their names in expressions, and the number of the row.

        Spellings of missing values are null, in keys also NaN; booleans and columns of several
        types are text.
        """
        types = {n: {table[own].type() for table in self.tables} for n, own in self.names.items()}
        parts = []
        for table, first in zip(self.tables, self._first_rows, strict=False):
            columns = {ROW: table[ROW] + first}
            for name, own in self.names.items():
                column = table[own] if name in (TIME, RATING) else _key(table[own])
                if len(types[name]) > 1:
                    column = column.cast("string")
                    if table[own].type().is_floating():
                        column = column.re_replace(r"\.0$", "")
                is_text = column.type().is_string()
                columns[name] = without_missing(column, self.missing) if is_text else column
            parts.append(table.select(**columns))
        return ibis.union(*parts) if len(parts) > 1 else parts[0]

    @functools.cached_property
    def _first_rows(self) -> list[int]:
        """The number of the first row of each file, and of all rows."""
        counts = [count_rows(self.engine, table) for table in self.tables]
        return [sum(counts[:i]) for i in range(len(counts) + 1)]

    @property
    def num_rows(self) -> int:
        return self._first_rows[-1]

    @property
    def num_skipped(self) -> int:
        """The number of malformed rows, which `rows` lacks."""
        return sum(map(self.engine.num_skipped, self.tables))

    def place(self, row: int) -> str:
        table, number = self._source(row)
        return self.engine.place(table, number)

    def _spelling(self, row: int, name: str) -> str:
        """Returns what a message adds on a value that is null in `rows`; see `spelled_missing`."""
        table, number = self._source(row)
        (stored,) = self.fetch(table.filter(table[ROW] == number).select(value=self.names[name]))
        return spelled_missing(stored["value"], self.missing)

    def _source(self, row: int) -> tuple[ir.Table, int]:
        """Returns the table of a row and its number there."""
        file = bisect.bisect_right(self._first_rows, row) - 1
        return self.tables[file], row - self._first_rows[file]

    def fetch(self, expression: ir.Table) -> list[dict]:
        """Returns the rows of a small result."""
        return self.engine.fetch(expression).to_pylist()

    def first(self, condition: ir.BooleanValue, column: str) -> tuple[int, str, object] | None:
        """Returns number and place of the first row with a condition, and its value of a column."""
        rows = self.rows.filter(condition).select(ROW, value=column)
        for row in self.fetch(rows.order_by(ROW).limit(1)):
            return row[ROW], self.place(row[ROW]), row["value"]
        return None

    def inspect(self, faults: Mapping[str, ir.BooleanValue]) -> tuple[int, set[str]]:
        """Returns the number of rows with a fault, and the columns that hold integers of 64 bits.

        Text counts as integers where it has their shortest form. Text of Parquet files stays text,
        unless it is a time.

        Args:
            faults: column -> condition of a fault, never null.

        Raises:
            ValueError: a user, an item or a feature is neither integers nor text, or an integer
                above 2^63 - 1.
        """
        columns = {name: self.rows[name] for name in self.names}
        integers, tests = set(), {}
        for name, column in columns.items():
            if name == RATING:
                continue
            if column.type().is_integer():
                integers.add(name)
            elif column.type().is_string():
                if name == TIME or self.chunks[0].type != PARQUET:
                    tests[name] = (is_whole(column) | column.isnull()).all()
            elif column.type().is_floating() and name != TIME:
                tests[name] = (_is_exact(column) | column.isnull()).all()
            elif name != TIME:
                raise ValueError(
                    f"{self.chunks[0].files[0]}: {self.names[name]} holds {column.type()}; "
                    "users, items and their features are whole numbers or text: convert it to text"
                )
            if column.type().is_uint64() and (large := self.first(column > _MOST, name)):
                _, place, value = large
                raise ValueError(f"{place}: {self.names[name]} is {value}; it must be below 2^63")
        (counts,) = self.fetch(self.rows.aggregate(num_bad=_any(faults).sum(), **tests))
        integers |= {name for name in tests if counts[name] is not False}
        for name in tests.keys() - integers:
            if columns[name].type().is_floating():
                _, place, value = self.first(~_is_exact(columns[name]), name) or (0, "", None)
                raise ValueError(
                    f"{place}: {self.names[name]} is {value}; users, items and their features are "
                    "text or whole numbers, as floats up to 2^53: convert it to text"
                )
        return int(counts["num_bad"] or 0), integers

    def required(self, *names: str) -> dict[str, ir.BooleanValue]:
        """Returns the conditions of faults: a value of these is missing, or a rating no number."""
        faults = {name: self.rows[name].isnull() for name in names if name in self.names}
        if RATING in self.names:
            faults[RATING] = _rating_number(self.rows).isnull()
        return faults

    def bad_row(self, faults: Mapping[str, ir.BooleanValue], remedy: str) -> ValueError:
        """Returns the error of the first row with a fault."""
        first_rows = ((self.first(condition, name), name) for name, condition in faults.items())
        rows = [(*row, name) for row, name in first_rows if row is not None]
        row, place, value, name = min(rows, key=lambda row: row[0])
        kind = _KINDS.get(name, "text without blanks around it")
        fault = f"{self.names[name]} is {value!r:.60}; it must be {kind}"
        if value is None:
            fault = f"no {self.names[name]}{self._spelling(row, name)}"
        return ValueError(f"{place}: {fault}. {remedy}")

    def without(self, faults: Mapping[str, ir.BooleanValue]) -> ir.Table:
        """Returns the rows without a fault."""
        return self.rows.filter(~_any(faults))

    def time_number(self, is_integer: bool) -> ir.NumericValue:
        """Returns the number of the time of each of `rows`; see `times.time_number`.

        Args:
            is_integer: whether the column holds integers of 64 bits; see `inspect`.
        """
        values = self.rows[TIME]
        values = values.cast("int64") if is_integer else values
        title = self.names[TIME]
        return time_number(
            self.engine, self.rows, values, title, lambda condition: self.first(condition, TIME)
        )


def _any(conditions: Mapping[str, ir.BooleanValue]) -> ir.BooleanValue:
    return functools.reduce(operator.or_, conditions.values())


def read_raw(
    engine: Engine,
    chunks: Sequence[SourceChunk],
    names: Mapping[str, str],
    flags: str = "",
    on_bad_line: str = "fail",
    missing: tuple[str, ...] = MISSING_VALUES,
) -> RawTable:
    """Reads columns of files; see `RawTable`.

    Args:
        flags: what names the columns, for messages.
        on_bad_line: "skip" leaves out malformed rows.
        missing: spellings of missing values in texts.

    Raises:
        ValueError: a column is missing, or a row is malformed, among others.
    """
    wanted = [replace(chunk, columns=_columns(chunk, names, flags)) for chunk in chunks]
    tables = [engine.read([chunk], on_bad_line) for chunk in wanted]
    for chunk, table in zip(wanted, tables, strict=True):
        if chunk.type == JSON and flags:
            _check_keys(engine, chunk, table, flags)
    return RawTable(engine, wanted, tables, names, missing)


def _columns(chunk: SourceChunk, names: Mapping[str, str], flags: str) -> tuple[str, ...]:
    """Returns the columns to read; raises ValueError where the file lacks one."""
    if not chunk.header:
        return chunk.columns or ()
    wanted = tuple(dict.fromkeys(names.values()))
    if chunk.type == JSON:  # see `_check_keys`
        return wanted
    (path,) = chunk.files
    columns = csv_columns(chunk) if chunk.type == CSV else LOCAL.schema(path).names
    columns = [*columns, *chunk.partitions]
    check_names(columns, path)
    for name in wanted:
        if name not in columns:
            raise ValueError(
                f"{path} has no column {name!r}; its columns: {', '.join(map(repr, columns))}. "
                f"Specify them with {flags} (and their delimiter with --delimiter)"
            )
    return wanted


def _check_keys(engine: Engine, chunk: SourceChunk, table: ir.Table, flags: str) -> None:
    """Raises ValueError for a key that no line of JSON has."""
    counts = {name: table[name].count() for name in chunk.columns or ()}
    (present,) = engine.fetch(table.aggregate(rows=table.count(), **counts)).to_pylist()
    for name in counts:
        if present["rows"] and not present[name]:
            raise ValueError(
                f"{chunk.files[0]}: no line has the key {name!r}: specify it with {flags}"
            )


def is_whole(text: ir.StringValue) -> ir.BooleanValue:
    """True for an integer of 64 bits in its shortest form, false for null.

    7.0 counts as 7, as pandas writes a column that has gaps; 007 does not.
    """
    shortest = text.try_cast("int64").cast("string")
    return ((shortest == text) | (shortest + ".0" == text)).fill_null(False)


def _key(column: ir.Value) -> ir.Value:
    """Returns a column of users, items or features: floats without NaN, booleans as text."""
    if column.type().is_floating():
        return column.nullif(float("nan"))
    return column.cast("string") if column.type().is_boolean() else column


def _is_exact(column: ir.FloatingValue) -> ir.BooleanValue:
    return (column % 1 == 0) & (column.abs() <= 1 << 53)


def key_value(column: ir.Value, is_integer: bool) -> ir.Value:
    """Returns a column as an integer of 64 bits, or as text."""
    if not is_integer:
        return column.cast("string")
    return column.cast("int64")


def _rating_number(rows: ir.Table) -> ir.FloatingValue:
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
    is_above = _rating_number(rows) >= least
    above = rows.filter(is_above)
    num_below = count_rows(engine, rows.filter(~is_above))
    if num_below and not count_rows(engine, above):
        raise ValueError(f"--min_rating {least:g}: all {num_below:,} ratings are below")
    return above, num_below
