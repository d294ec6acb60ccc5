"""Logs in tables of one's own, CSV or Parquet -> staged Parquet files.

Users, items and features are integers or text. A column of CSV holds integers where all its values
are integers of 64 bits (so 007 is text), possibly like 7.0, as pandas writes a column in which some
are missing. A column that has integers and text in different files is text. An empty value is a
missing one. An invalid time is an error even where bad rows are skipped.
"""

from pathlib import Path

import duckdb

from dataloading.table_input.duckdb_files import quoted
from preproc import event_tables
from preproc.amazon_books.engines.interface import StagedLog
from preproc.amazon_books.options import PARQUET, AmazonOptions
from preproc.engines.duckdb_session import PreparationSession
from preproc.event_tables import EventFile

_FLAGS = "--user_column, --item_column, --time_column, --user_features and --item_features"


def stage_tables(options: AmazonOptions, folder: Path) -> tuple[StagedLog, int]:
    """Stages `--interactions`, `--users` and `--items`; also returns the number of rows left out.

    Raises:
        ValueError: a column is missing or of no use, or a row is bad and may not be skipped.
    """
    columns = {"user": options.user_column, "item": options.item_column}
    tables = {"log": (options.interactions, columns | {"time": options.time_column})}
    features, titles = {}, {}
    for kind, path, names in (
        ("user", options.users, options.user_features),
        ("item", options.items, options.item_features),
    ):
        table = "log" if path is None else f"{kind}s"
        if path is not None:
            tables[table] = ((path,), {kind: columns[kind]})
        tables[table][1].update({f"{kind}_{i}": name for i, name in enumerate(names)})
        files = ", ".join(map(str, tables[table][0]))
        titles[kind] = tuple(f"{name} in {files}" for name in names)
        features[kind] = (folder / f"{table}.parquet",) if names else ()
    try:
        with PreparationSession(options, folder / "duckdb") as session, session.explained_errors():
            num_bad = _stage(session, options, tables, folder)
    except duckdb.ConversionException as error:  # an integer of 64 bits without a sign, for one
        raise ValueError(f"a table cannot be read as {options.input_format}: {error}") from error
    for text in folder.glob("*.text"):
        text.unlink()
    staged = StagedLog(
        events=(folder / "log.parquet",),
        users=features["user"],
        items=features["item"],
        user_features=titles["user"],
        item_features=titles["item"],
    )
    return staged, num_bad


def _stage(
    session: PreparationSession,
    options: AmazonOptions,
    tables: dict[str, tuple[tuple[Path, ...], dict[str, str]]],
    folder: Path,
) -> int:
    files: dict[str, list[EventFile]] = {table: [] for table in tables}
    for table, (paths, names) in tables.items():
        for i, path in enumerate(paths):
            if options.input_format == PARQUET:
                file = event_tables.parquet_file(path, names, _FLAGS)
            else:
                target = folder / f"{table}_{i}.text"
                how = (options.delimiter, names, _FLAGS, options.on_bad_line)
                file = event_tables.csv_file(session.connection, path, target, *how)
            files[table].append(file)
    num_bad = sum(_num_bad(session, options, files[table]) for table in tables)
    integers = {
        table: event_tables.integer_columns(
            session.connection, files[table], [*names.keys() - {"time"}]
        )
        for table, (_, names) in tables.items()
    }
    for key in ("user", "item"):  # of one type wherever they are
        if not all(key in integers[table] for table in tables if key in tables[table][1]):
            for table in tables:
                integers[table].discard(key)
    for table in tables:
        _write(session, files[table], integers[table], folder / f"{table}.parquet")
    return num_bad


def _required(file: EventFile) -> list[str]:
    return [key for key in ("user", "item", "time") if key in file.names]


def _num_bad(session: PreparationSession, options: AmazonOptions, files: list[EventFile]) -> int:
    is_bad = " OR ".join(f"{key} IS NULL" for key in _required(files[0]))
    if options.on_bad_line == "skip":
        rows = event_tables.union(files, f"({is_bad}) AS is_bad")
        query = f"SELECT count(*) FROM ({rows}) WHERE is_bad"
        (num_bad,) = session.connection.execute(query).fetchone()
        return num_bad + sum(len(file.skipped) for file in files)
    for key in _required(files[0]):
        bad = event_tables.first_row(session.connection, files, f"{key} IS NULL", key)
        if bad is not None:
            _, file, row, _ = bad
            raise ValueError(
                f"{file.place(row)}: no {file.names[key]}. Fix the file, or leave such rows out "
                "with --on_bad_line skip"
            )
    return 0


def _write(
    session: PreparationSession, files: list[EventFile], integers: set[str], target: Path
) -> None:
    values = {name: name for name in files[0].names}
    values |= {name: f"{name}::BIGINT" for name in integers}
    if "time" in values:
        values["time"] = event_tables.time_number(session.connection, files)
    is_good = " AND ".join(f"{key} IS NOT NULL" for key in _required(files[0]))
    columns = ", ".join(f"{value} AS {name}" for name, value in values.items())
    rows = event_tables.union(files, ", ".join(values))
    session.connection.execute(
        f"COPY (SELECT {columns} FROM ({rows}) WHERE {is_good}) TO {quoted(target)} "
        "(FORMAT parquet)"
    )
