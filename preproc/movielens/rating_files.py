"""Files of ratings as tables: CSV with a header, and user::item::rating::time.

A user and an item are any text without blanks around it.
"""

from pathlib import Path

from dataloading.table_input.lines import BYTE_ORDER_MARK
from preproc import event_tables
from preproc.engines.duckdb_session import PreparationSession
from preproc.event_tables import EventFile
from preproc.movielens.options import MovieLensOptions
from preproc.movielens.source_files import CSV
from preproc.raw_files import unpack

_FLAGS = "--user_column, --item_column and --timestamp_column"
_DAT_COLUMNS = {"user": (0, "the user"), "item": (1, "the item"), "time": (3, "the time")}


def rating_files(
    session: PreparationSession, options: MovieLensOptions, scratch: Path
) -> list[EventFile]:
    """Reads the files of a log into `scratch`; the session keeps the order of rows.

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
        f"FROM ({event_tables.union(files, 'user, item, time')})"
    ).fetchone()
    if not num_rows:
        raise ValueError(f"{', '.join(map(str, options.source.files))}: no ratings")
    if not num_bad:
        return files
    conditions = {"user": _is_blank("user"), "item": _is_blank("item"), "time": "time IS NULL"}
    bad = (
        (column, event_tables.first_row(session.connection, files, condition, column))
        for column, condition in conditions.items()
    )
    column, (_, file, row, value) = next(each for each in bad if each[1] is not None)
    fault = "missing"
    if value and value.strip():
        fault = f"{value!r}, with blanks around it; write all without"
    raise ValueError(f"{file.place(row)}: {file.names[column]} is {fault}")


def _rating_file(
    session: PreparationSession, options: MovieLensOptions, path: Path, target: Path
) -> EventFile:
    if options.source.form == CSV:
        columns = (options.user_column, options.item_column, options.timestamp_column)
        names = dict(zip(_DAT_COLUMNS, columns, strict=True))
        return event_tables.csv_file(
            session.connection, path, target, options.delimiter, names, _FLAGS
        )
    with unpack(path, target.parent) as plain:
        with open(plain, "rb") as source:
            is_marked = source.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK
        encoding = "utf-8" if is_marked else "latin-1"
        how = {"header": False, "quote": "", "encoding": encoding}
        files = (session.connection, path, plain, target)
        return event_tables.stage_csv(*files, _DAT_COLUMNS, 4, "::", **how)


def _is_blank(column: str) -> str:
    """A condition: the text is missing, or begins or ends with a space or a control character."""
    return f"coalesce({column} < '!' OR right({column}, 1) < '!', true)"
