"""Files of ratings as tables: CSV with a header, and user::item::rating::time.

A user and an item are any text without blanks around it.
"""

from collections.abc import Sequence
from pathlib import Path

from preproc.engines.duckdb_session import PreparationSession
from preproc.event_tables import (
    CsvFormat,
    EventFile,
    check_columns,
    first_row,
    read_header,
    stage_csv,
    union,
)
from preproc.movielens.options import MovieLensOptions
from preproc.movielens.source_files import CSV
from preproc.raw_files import BYTE_ORDER_MARK, unpacked

_DAT_COLUMNS = {"user": (0, "the user"), "item": (1, "the item"), "time": (3, "the time")}


def rating_files(
    session: PreparationSession, options: MovieLensOptions, scratch: Path
) -> list[EventFile]:
    """Reads the files of a log.

    Args:
        session: keeps the order of rows.
        options: of the run.
        scratch: folder for what the files hold.

    Raises:
        ValueError: a column is missing, a row is malformed or lacks a user, an item or a time, or
            all files are empty.
    """
    files = [
        _rating_file(session, options, path, scratch / f"ratings_{i}.parquet")
        for i, path in enumerate(options.source.files)
    ]
    num_rows, num_bad = session.connection.execute(
        f"SELECT count(*), count_if({_is_blank('user')} OR {_is_blank('item')} OR time IS NULL) "
        f"FROM ({union(files, 'user, item, time')})"
    ).fetchone()
    if not num_rows:
        raise ValueError(f"{', '.join(map(str, options.source.files))}: no ratings")
    if num_bad:
        raise _blank_value(session, files)
    return files


def _rating_file(
    session: PreparationSession, options: MovieLensOptions, path: Path, target: Path
) -> EventFile:
    plain = unpacked(path, target.parent)
    if options.source.form == CSV:
        names = (options.user_column, options.item_column, options.timestamp_column)
        header = read_header(path, plain, options.delimiter)
        check_columns(path, header, names, "--user_column, --item_column and --timestamp_column")
        places = [(header.index(name), name) for name in names]
        columns = dict(zip(("user", "item", "time"), places, strict=True))
        layout, num_columns = CsvFormat(options.delimiter), len(header)
    else:
        with open(plain, "rb") as source:
            is_marked = source.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK
        encoding = "utf-8" if is_marked else "latin-1"
        layout, num_columns = CsvFormat("::", header=False, quote="", encoding=encoding), 4
        columns = _DAT_COLUMNS
    file = stage_csv(session.connection, path, plain, target, layout, num_columns, columns)
    if plain != path:
        plain.unlink()
    return file


def _is_blank(column: str) -> str:
    """A condition: the text is missing, or begins or ends with a space or a control character."""
    return f"coalesce({column} < '!' OR right({column}, 1) < '!', true)"


def _blank_value(session: PreparationSession, files: Sequence[EventFile]) -> ValueError:
    for column in ("user", "item", "time"):
        condition = "time IS NULL" if column == "time" else _is_blank(column)
        bad = first_row(session.connection, files, condition, column)
        if bad is not None:
            break
    _, file, row, value = bad
    fault = "missing"
    if value and value.strip():
        fault = f"{value!r}, with blanks around it; write all without"
    return ValueError(f"{file.place(row)}: {file.names[column]} is {fault}")
