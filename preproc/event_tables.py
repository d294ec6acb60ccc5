"""Tables of events in DuckDB: CSV and Parquet files as text columns, and what the columns hold.

Times become int64: timestamps in nanoseconds (in UTC unless they name another zone), numbers in
units of the last digit after the point that occurs in the log. Where that does not fit into 64
bits, or a number has an exponent, all become float64, and each must be one that float64 represents
without loss.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from dataloading.table_input.duckdb_files import quoted, read_csv, read_parquet
from dataloading.table_input.lines import line_blocks, open_quote
from preproc.raw_files import unpack

_WHOLE, _FRACTION, _FLOAT, _TIMESTAMP, _NO_TIME = range(5)
_NUMBER = r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_ISO = r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ T][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?)?"
_OFFSET = r"[+-][0-9]{2}(?::?[0-9]{2})?"  # from UTC
_TIME_KIND = f"""
CASE WHEN TRY_CAST(time AS BIGINT)::VARCHAR = time THEN {_WHOLE}
    WHEN regexp_full_match(time, '-?[0-9]+') AND TRY_CAST(time AS BIGINT) IS NOT NULL THEN {_WHOLE}
    WHEN regexp_full_match(time, '{_NUMBER}') THEN {_FRACTION}
    WHEN regexp_full_match(time, '{_NUMBER}[eE][+-]?[0-9]+')
        AND coalesce(isfinite(TRY_CAST(time AS DOUBLE)), false) THEN {_FLOAT}
    WHEN TRY_CAST(time AS TIMESTAMP_NS) IS NULL THEN {_NO_TIME}
    WHEN regexp_full_match(time, '{_ISO}(?:Z|{_OFFSET})?') THEN {_TIMESTAMP} ELSE {_NO_TIME} END
"""
_KIND_NAMES = ("numbers", "numbers", "numbers", "timestamps")
_WHOLE_DIGITS = "ltrim(split_part(time, '.', 1), '-')"  # before the point
_DIGITS = "rtrim(split_part(time, '.', 2), '0')"  # after the point
_EXACT_DECIMAL = "TRY_CAST({} AS DECIMAL(38, 18))"
# Bad rows, which --on_bad_line skip leaves out; any other fault is one of the file.
_ROW_FAULTS = ("MISSING COLUMNS", "TOO MANY COLUMNS")
_ROW_NUMBER = "file_row_number"  # what DuckDB calls the column that it adds to a Parquet file


@dataclass(frozen=True)
class EventFile:
    """A table that can be queried."""

    path: Path
    names: dict[str, str]  # column in queries -> its name in the file; times are called `time`
    relation: str  # query of these columns as text, NULL where empty, and of `row`, from 1
    # the columns of integers where the file has types; else None
    integers: frozenset[str] | None = None
    # rows without as many fields as the header, upwards; `relation` has no such rows
    skipped: tuple[int, ...] = ()

    def place(self, row: int) -> str:
        """Returns the location of a row of `relation` for messages."""
        for number in self.skipped:
            row += number <= row
        return f"{self.path}, row {row} (the first one with values is row 1)"


def _check_columns(path: Path, header: Sequence[str], wanted: Sequence[str], flags: str) -> None:
    """Raises ValueError unless a file has each of these columns once; flags: what names them."""
    for name in wanted:
        if header.count(name) != 1:
            number = "no column" if name not in header else f"{header.count(name)} columns"
            raise ValueError(
                f"{path} has {number} {name!r}; its columns: "
                f"{', '.join(map(repr, header)) or 'none'}. Specify them with {flags} (and "
                "their delimiter with --delimiter)"
            )


def csv_file(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    target: Path,
    delimiter: str,
    names: dict[str, str],
    flags: str,
    on_bad_line: str | None = None,
) -> EventFile:
    """Returns a CSV file with a header, plain or gzip, whose columns are in a Parquet file.

    Args:
        connection: keeps the order of rows.
        target: the Parquet file.
        names: column in queries -> its name in the file.
        flags: what names the columns, for messages.
        on_bad_line: "skip" leaves out rows with another number of fields; None: without that flag.

    Raises:
        ValueError: a column is missing, a quoted field does not end on its line, or the file is
            not CSV, or not UTF-8.
    """
    with unpack(path, target.parent) as plain:
        with open(plain, encoding="utf-8-sig", errors="replace", newline="") as source:
            line = source.readline()
        try:
            header = next(csv.reader([line], delimiter=delimiter, strict=True), [])
        except csv.Error as error:
            raise ValueError(
                f"{path}, line 1: the header is not CSV ({error}); it begins with {line[:60]!r}"
            ) from error
        _check_columns(path, header, list(names.values()), flags)
        _check_quotes(path, plain, delimiter)
        columns = {column: (header.index(name), name) for column, name in names.items()}
        layout = (len(header), delimiter)
        return stage_csv(connection, path, plain, target, columns, *layout, on_bad_line=on_bad_line)


def _check_quotes(path: Path, plain: Path, delimiter: str) -> None:
    """Raises ValueError for a quoted field that does not end on its line.

    DuckDB would join it with the next lines up to one with a quotation mark, and leave all of them
    out as one bad row.
    """
    num_lines = 0
    for block in line_blocks(plain, str(path), compression=None):
        if open_field := open_quote(block, delimiter):
            number, line = open_field
            raise ValueError(
                f"{path}, line {num_lines + number + 1}: expected fields that are quoted as a "
                "whole on one line, with quotation marks inside them written twice, got "
                f"{line!r:.100}; fix the file (--on_bad_line skip does not help here)"
            )
        num_lines += len(block.splitlines())


def stage_csv(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    plain: Path,
    target: Path,
    columns: dict[str, tuple[int, str]],
    num_columns: int,
    delimiter: str,
    *,
    header: bool = True,
    quote: str = '"',
    encoding: str = "utf-8",
    on_bad_line: str | None = None,
) -> EventFile:
    """Returns a CSV file of any layout, whose content is `plain`; see `csv_file`.

    columns: column in queries -> its number, from 0, and its name for messages.
    """
    types = ", ".join(f"c{i}: 'VARCHAR'" for i in range(num_columns))
    options = (
        f"auto_detect=false, columns={{{types}}}, delim={quoted(delimiter)}, "
        f"quote={quoted(quote)}, escape={quoted(quote)}, header={header}, "
        f"encoding={quoted(encoding)}, compression='none', store_rejects={on_bad_line == 'skip'}"
    )
    selected = ", ".join(f"c{number} AS {column}" for column, (number, _) in columns.items())
    skipped = []
    try:
        connection.execute(
            f"COPY (SELECT {selected} FROM {read_csv(plain, options)}) TO {quoted(target)} "
            "(FORMAT parquet)"
        )
        if on_bad_line == "skip":
            skipped = _rejected_lines(connection, path)
    except (duckdb.InvalidInputException, duckdb.ConversionException) as error:
        message = " ".join(str(error).partition("Possible ")[0].split())
        remedy = " (--on_bad_line skip leaves others out)" if on_bad_line else ""
        raise ValueError(
            f"{path} cannot be read as CSV: {message}. All rows need the same number of fields"
            f"{remedy}, and all lines must end in one way (dos2unix turns CR LF into LF)"
        ) from error
    return EventFile(
        path,
        {column: name for column, (_, name) in columns.items()},
        f"SELECT *, file_row_number + 1 AS row FROM {_with_rows(target)}",
        skipped=tuple(line - header for line in skipped),
    )


def _rejected_lines(connection: duckdb.DuckDBPyConnection, path: Path) -> list[int]:
    rejected = connection.execute(
        "SELECT line, any_value(error_type::VARCHAR), any_value(error_message) FROM reject_errors "
        f"GROUP BY line ORDER BY bool_and(error_type::VARCHAR IN {_ROW_FAULTS}), line"
    ).fetchall()
    connection.execute("DROP TABLE reject_errors")
    connection.execute("DROP TABLE reject_scans")
    for line, kind, message in rejected[:1]:
        if kind not in _ROW_FAULTS:
            raise ValueError(
                f"{path}, line {line}: {message} --on_bad_line skip leaves out rows that can be "
                "read, and does not help here"
            )
    return [line for line, _, _ in rejected]


def parquet_file(path: Path, names: dict[str, str], flags: str) -> EventFile:
    """Returns a Parquet file as `csv_file` does; raises ValueError for a column of a wrong type."""
    try:
        schema = pq.read_schema(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} cannot be read as parquet: {error}") from error
    _check_columns(path, schema.names, list(names.values()), flags)
    _check_sql_names(path, schema.names)
    integers = set()
    for column, name in names.items():
        kind = schema.field(name).type
        values = kind.value_type if pa.types.is_dictionary(kind) else kind
        if pa.types.is_integer(values):
            integers.add(column)
        is_text = pa.types.is_string(values) or pa.types.is_large_string(values)
        if column != "time" and column not in integers and not is_text:
            raise ValueError(
                f"{path}: {name} holds {kind}; users, items and their features are integers or text"
            )
    quoted_names = {column: '"' + name.replace('"', '""') + '"' for column, name in names.items()}
    selected = ", ".join(
        f"nullif({name}{'::BIGINT' * (column in integers)}::VARCHAR, '') AS {column}"
        for column, name in quoted_names.items()
    )
    relation = f"SELECT {selected}, file_row_number + 1 AS row FROM {_with_rows(path)}"
    return EventFile(path, names, relation, frozenset(integers))


def _check_sql_names(path: Path, names: Sequence[str]) -> None:
    """Raises ValueError for columns that DuckDB confuses: its names ignore case."""
    earlier: dict[str, str] = {}
    for name in names:
        other = earlier.setdefault(name.lower(), name)
        if other is not name:
            raise ValueError(
                f"{path}: expected column names that differ in more than case, got {other!r} and "
                f"{name!r}; rename one of them, or write the file without it"
            )
    if _ROW_NUMBER in earlier:
        raise ValueError(
            f"{path}: expected no column {earlier[_ROW_NUMBER]!r}, which DuckDB adds itself; "
            "rename it, or write the file without it"
        )


def _with_rows(path: Path) -> str:
    return read_parquet(path, f"{_ROW_NUMBER}=true")


def union(files: Sequence[EventFile], columns: str) -> str:
    """Returns a query for expressions of the columns of all files."""
    return " UNION ALL ".join(f"SELECT {columns} FROM ({file.relation})" for file in files)


def first_row(
    connection: duckdb.DuckDBPyConnection, files: Sequence[EventFile], condition: str, column: str
) -> tuple[int, EventFile, int, str | None] | None:
    """Returns the first row with this condition: number of the file, file, row and a value."""
    for number, file in enumerate(files):
        row = connection.execute(
            f"SELECT row, {column} FROM ({file.relation}) WHERE {condition} ORDER BY row LIMIT 1"
        ).fetchone()
        if row is not None:
            return number, file, *row
    return None


def integer_columns(
    connection: duckdb.DuckDBPyConnection, files: Sequence[EventFile], columns: Sequence[str]
) -> set[str]:
    """Returns the columns in which all files hold nothing but integers of 64 bits.

    Texts are integers in the shortest form, or like 7.0, as pandas writes a column that had gaps.
    """
    integers = set(columns)
    for file in files:
        if file.integers is not None:
            integers &= file.integers
        elif integers:
            names = sorted(integers)
            texts = [f"CASE WHEN ends_with({n}, '.0') THEN {n}[:-3] ELSE {n} END" for n in names]
            conditions = ", ".join(
                f"bool_and(coalesce(TRY_CAST({text} AS BIGINT)::VARCHAR = {text}, {name} IS NULL))"
                for name, text in zip(names, texts, strict=True)
            )
            row = connection.execute(f"SELECT {conditions} FROM ({file.relation})").fetchone()
            integers = {name for name, fits in zip(names, row, strict=True) if fits is not False}
    return integers


def time_number(connection: duckdb.DuckDBPyConnection, files: Sequence[EventFile]) -> str:
    """Returns an expression for the number of a time; raises ValueError for times without any."""
    rows = f"SELECT {_TIME_KIND} AS kind FROM ({union(files, 'time')}) WHERE time IS NOT NULL"
    distinct = connection.execute(f"SELECT DISTINCT kind FROM ({rows})").fetchall()
    kinds = {kind for (kind,) in distinct} or {_WHOLE}
    _check_kinds(connection, files, kinds)
    if _TIMESTAMP in kinds:
        # A cast to TIMESTAMP_NS ignores the zone, one to TIMESTAMPTZ drops nanoseconds.
        return (
            f"CASE WHEN regexp_full_match(time, '{_ISO}{_OFFSET}') "
            "THEN epoch_us(time::TIMESTAMPTZ) * 1000 ELSE epoch_ns(time::TIMESTAMP_NS) END"
        )
    if kinds == {_WHOLE}:
        return "time::BIGINT"
    if _FLOAT not in kinds:
        num_digits, largest = connection.execute(
            f"SELECT max(length({_DIGITS})), "
            f"max(coalesce(TRY_CAST('0' || {_WHOLE_DIGITS} AS HUGEINT), 1::HUGEINT << 63)) "
            f"FROM ({union(files, 'time')}) WHERE time IS NOT NULL"
        ).fetchone()
        if (largest + 1) * 10**num_digits <= 1 << 63:
            sign = "CASE WHEN starts_with(time, '-') THEN '-0' ELSE '0' END"
            return f"({sign} || {_WHOLE_DIGITS} || rpad({_DIGITS}, {num_digits}, '0'))::BIGINT"
    exact, stored = map(_EXACT_DECIMAL.format, ("time", "time::DOUBLE::VARCHAR"))
    inexact = first_row(connection, files, f"{exact} <> {stored}", "time")
    if inexact is not None:
        _, file, row, value = inexact
        raise ValueError(
            f"{file.place(row)}: {file.names['time']} is {value}; expected times that fit into 64 "
            "bits, without a loss of digits, in the unit of the last digit after the point of all "
            "times (in float64 where a time has an exponent); write all times with fewer digits"
        )
    return "time::DOUBLE"


def _check_kinds(
    connection: duckdb.DuckDBPyConnection, files: Sequence[EventFile], kinds: set[int]
) -> None:
    if _NO_TIME in kinds:
        condition = f"time IS NOT NULL AND {_TIME_KIND} = {_NO_TIME}"
        _, file, row, value = first_row(connection, files, condition, "time")
        raise ValueError(
            f"{file.place(row)}: {file.names['time']} is {value!r}; a time is a number or a "
            "timestamp like 2014-07-23 or 2014-07-23 12:30:00, of the years 1678 to 2261, whose "
            "nanoseconds fit into 64 bits"
        )
    if len({_KIND_NAMES[kind] for kind in kinds}) == 1:
        return
    rows = [
        (*first_row(connection, files, f"{_TIME_KIND} = {kind}", "time"), _KIND_NAMES[kind])
        for kind in sorted(kinds)
    ]
    rows.sort(key=lambda row: (row[0], row[2]))
    before = rows[0][-1]
    _, file, row, value, _ = next(row for row in rows if row[-1] != before)
    raise ValueError(
        f"{file.place(row)}: {file.names['time']} is {value!r}, and times before it are {before}; "
        "write all times in one way"
    )
