"""Rules for lines of ratings: in SQL, and line by line to report the bad ones.

A user and an item are any text without blanks around it. A time is a number or a timestamp of ISO
8601 in UTC; one log has times of one of these two kinds.
"""

import csv
import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dataloading.table_input.duckdb_files import quoted, read_csv
from preproc.raw_files import BYTE_ORDER_MARK

# The kinds of a time, as SQL's `time_kind` numbers them.
WHOLE, FRACTION, ISO, NO_TIME = range(4)
TIME_TYPES = {WHOLE: "BIGINT", FRACTION: "DECIMAL(38, 9)", ISO: "TIMESTAMP"}
_FRACTION = r"-?[0-9]{1,29}(\.[0-9]{1,9})?"
_ISO = r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z?)?"
_BLANKS = "".join(map(chr, range(ord(" ") + 1)))  # spaces and control characters
_COLUMNS_OF_DAT = 4
_LINE_ENDS = {"\n": "LF", "\r\n": "CR LF", "\r": "CR"}


@dataclass(frozen=True)
class RatingFormat:
    """Format of a plain file's rows.

    num_columns: of each row.
    user, item, time: which of them, from 0.
    names: what these three are called.
    encoding: in Python's words and DuckDB's; a byte order mark of "utf-8" is not text.
    """

    delimiter: str
    header: bool
    num_columns: int
    user: int
    item: int
    time: int
    names: tuple[str, str, str]
    encoding: str
    quote: str = ""


@dataclass(frozen=True)
class RatingFile:
    """A file of ratings.

    path: as the user knows it.
    plain: the same, unpacked.
    """

    path: Path
    plain: Path
    layout: RatingFormat


def dat_file(path: Path, plain: Path) -> RatingFile:
    """A file of user::item::rating::time: Latin-1, or UTF-8 with a byte order mark."""
    with open(plain, "rb") as source:
        is_marked = source.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK
    names = ("the user", "the item", "the time")
    encoding = "utf-8" if is_marked else "latin-1"
    return RatingFile(
        path, plain, RatingFormat("::", False, _COLUMNS_OF_DAT, 0, 1, 3, names, encoding)
    )


def csv_file(path: Path, plain: Path, delimiter: str, names: tuple[str, str, str]) -> RatingFile:
    """A CSV file with a header, which is read.

    Args:
        names: of the columns of users, items and times.

    Raises:
        ValueError: the header is not CSV, or a column is not there once.
    """
    with open(plain, encoding="utf-8-sig", errors="replace", newline="") as source:
        line = source.readline()
    try:
        header = next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        raise ValueError(
            f"{path}, line 1: the header is not CSV ({error}); it begins with {line[:60]!r}"
        ) from error
    for name in names:
        if header.count(name) != 1:
            number = "no column" if name not in header else f"{header.count(name)} columns"
            raise ValueError(
                f"{path} has {number} {name!r}; there are "
                f"{', '.join(map(repr, header)) or 'none'}. Specify its columns with "
                "--user_column, --item_column and --timestamp_column (and their delimiter with "
                "--delimiter)"
            )
    places = (header.index(name) for name in names)
    return RatingFile(
        path, plain, RatingFormat(delimiter, True, len(header), *places, names, "utf-8", '"')
    )


# For DuckDB


def table(file: RatingFile) -> str:
    """A query for a file's rows: the texts user, item and time; NULL where empty."""
    layout = file.layout
    columns = ", ".join(f"c{i}: 'VARCHAR'" for i in range(layout.num_columns))
    options = (
        f"auto_detect=false, columns={{{columns}}}, delim={quoted(layout.delimiter)}, "
        f"quote={quoted(layout.quote)}, escape={quoted(layout.quote)}, header={layout.header}, "
        f"encoding={quoted(layout.encoding)}, compression='none'"
    )
    return (
        f"SELECT c{layout.user} AS user, c{layout.item} AS item, c{layout.time} AS time "
        f"FROM {read_csv(file.plain, options)}"
    )


def is_integer(column: str) -> str:
    """A condition: the text is an integer of 64 bits, written in the shortest way or as 7.0, which
    is how pandas writes a column of integers that had gaps."""
    text = f"regexp_replace({column}, '\\.0$', '')"
    return f"coalesce(TRY_CAST({text} AS BIGINT)::VARCHAR = {text}, false)"


def time_kind(column: str) -> str:
    """An expression: the kind of time that the text is."""

    def fits(kind: int, pattern: str) -> str:
        cast = f"TRY_CAST({column} AS {TIME_TYPES[kind]}) IS NOT NULL"
        return f"regexp_full_match({column}, {quoted(pattern)}) AND {cast}"

    return (
        f"CASE WHEN {is_integer(column)} THEN {WHOLE} WHEN {fits(FRACTION, _FRACTION)} THEN "
        f"{FRACTION} WHEN {fits(ISO, _ISO)} THEN {ISO} ELSE {NO_TIME} END"
    )


def is_blank(column: str) -> str:
    """A condition: the text is missing, or begins or ends with a space or a control character."""
    return f"coalesce({column} < '!' OR right({column}, 1) < '!', true)"


# Line by line


def check_lines(files: Sequence[RatingFile]) -> None:
    """Reads a log line by line, about 4 microseconds each, until one is bad.

    Raises:
        ValueError: a line is bad; the message names its file and number, from 1.
    """
    is_number = None  # whether the log's times are
    for file in files:
        layout = file.layout
        rows = _quoted_rows(file) if layout.quote else _plain_rows(file)
        for number, fields in rows:
            if layout.header and number == 1:
                continue
            fault, now_number = fields, is_number
            if isinstance(fields, list):
                fault, now_number = _fault(fields, layout)
            if fault is None and is_number not in (None, now_number):
                fault = (
                    f"{layout.names[2]} is {fields[layout.time]!r}, and times before it are "
                    f"{'numbers' if is_number else 'timestamps'}; write all in one way"
                )
            if fault is not None:
                raise ValueError(f"{file.path}, line {number}: {fault}")
            is_number = now_number


def check_line_ends(files: Sequence[RatingFile]) -> None:
    """Compares how the lines of each file end; for files that `check_lines` has nothing against.

    Raises:
        ValueError: a line ends in another way than the first; the message names its file and
            number, from 1.
    """
    for file in files:
        first, in_quotes = None, False
        with open(file.plain, encoding="latin-1", newline="") as lines:
            for number, line in enumerate(lines, 1):
                in_quotes ^= bool(file.layout.quote) and line.count('"') % 2 == 1
                end = line[len(line.rstrip("\r\n")) :]
                if in_quotes or not end:
                    continue
                first = first or end
                if end != first:
                    raise ValueError(
                        f"{file.path}, line {number}: it ends with {_LINE_ENDS[end]}, and line 1 "
                        f"with {_LINE_ENDS[first]}; all lines of a file must end in one way "
                        "(dos2unix, for one, turns CR LF into LF)"
                    )


def _quoted_rows(file: RatingFile) -> Iterator[tuple[int, list[str] | str]]:
    """The line that each row begins at, and its fields, or what is wrong with it."""
    with open(file.plain, encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        reader = csv.reader(lines, delimiter=file.layout.delimiter, strict=True)
        begins = 1
        try:
            for fields in reader:
                if fields:
                    yield begins, fields
                begins = reader.line_num + 1
        except csv.Error as error:
            yield begins, f"it is not CSV ({error})"


def _plain_rows(file: RatingFile) -> Iterator[tuple[int, list[str]]]:
    encoding = {"utf-8": "utf-8-sig"}.get(file.layout.encoding, file.layout.encoding)
    with open(file.plain, encoding=encoding, errors="surrogateescape", newline="") as lines:
        for number, line in enumerate(lines, 1):
            if text := line.rstrip("\r\n"):
                yield number, text.split(file.layout.delimiter)


def _fault(fields: list[str], layout: RatingFormat) -> tuple[str | None, bool]:
    """Returns the problem of a row or None, and whether its time is a number."""
    if len(fields) != layout.num_columns:
        return f"it has {len(fields)} fields; a row has {layout.num_columns}", False
    for name, place in zip(layout.names, (layout.user, layout.item, layout.time), strict=True):
        value = fields[place]
        if not value.strip(_BLANKS):
            return f"{name} is missing", False
        if value != value.strip(_BLANKS):
            return f"{name} is {value!r}, with blanks around it; write all without", False
        try:
            value.encode()
        except UnicodeEncodeError:
            return f"{name} is {value!r}, which is not UTF-8 text", False
    time = fields[layout.time]
    if re.fullmatch(_FRACTION, time, re.ASCII):
        return None, True
    try:
        if not re.fullmatch(_ISO, time, re.ASCII):
            raise ValueError("of another form")
        datetime.datetime.fromisoformat(time)
    except ValueError:
        return (
            f"{layout.names[2]} is {time!r}; a time is a number like 964982703 or 964982703.25, or "
            "a timestamp like 2014-07-23 or 2014-07-23 12:30:00 in UTC",
            False,
        )
    return None, False
