"""Logs in tables of one's own: CSV, Parquet or JSON lines.

Users, items and features are integers or text. A column of CSV or JSON holds integers where all its
values are integers of 64 bits (so 007 is text), possibly like 7.0, as pandas writes a column in
which some are missing. The texts of `--missing_values` are missing values. An invalid time is an
error even where bad rows are skipped.
"""

from collections.abc import Mapping
from pathlib import Path

from ibis.expr import types as ir

from preproc.engines.bad_lines import SKIP
from preproc.engines.engine import ROW, Engine, count_rows
from preproc.events.raw_table import RATING, TIME, RawTable, above_rating, key_value, read_raw
from preproc.histories.logs.event_log import SKIP_HELP, EventLog, FeatureTable
from preproc.histories.options import HistoryOptions
from preproc.sources.part_files import find_log

_FLAGS = (
    "--user_column, --item_column, --time_column, --user_features and --item_features "
    "(with --min_rating, also --rating_column)"
)
_LOG, _KEYS = "log", ("user", "item")


def read_tables(options: HistoryOptions, engine: Engine) -> EventLog:
    """Reads `--interactions`, `--users` and `--items`.

    Raises:
        ValueError: a column is missing or of no use, or a row is bad and may not be skipped.
    """
    keys = {"user": options.user_column, "item": options.item_column}
    columns = keys | {TIME: options.time_column}
    if options.min_rating is not None:
        columns[RATING] = options.rating_column
    tables = {_LOG: (options.interactions, columns)}
    features, owners = {}, {}
    for kind, path, names in (
        ("user", options.users, options.user_features),
        ("item", options.items, options.item_features),
    ):
        owner = owners[kind] = _LOG if path is None else kind
        if path is not None:
            tables[owner] = ((path,), {kind: keys[kind]})
        features[kind] = {f"{kind}_{i}": name for i, name in enumerate(names)}
        tables[owner][1].update(features[kind])
    raw = {name: _read(options, engine, *table) for name, table in tables.items()}
    faults, integers, num_bad = _inspect(options, raw)
    typed = {name: _typed(table, integers[name], faults[name], name) for name, table in raw.items()}
    events, num_below = above_rating(engine, typed[_LOG], options.min_rating)
    events = events.select("user", "item", "time", "row")
    if num_below:
        events = engine.store_table(events, "rated")
    return EventLog(
        events=events,
        num_events=count_rows(engine, events),
        num_bad=num_bad,
        columns=keys,
        num_below=num_below,
        features={
            kind: FeatureTable(
                typed[owners[kind]].select(kind, *columns),
                {
                    column: f"{name} in {', '.join(map(str, tables[owners[kind]][0]))}"
                    for column, name in columns.items()
                },
                source="" if owners[kind] == _LOG else str(tables[kind][0][0]),
            )
            for kind, columns in features.items()
            if columns
        },
    )


def _read(
    options: HistoryOptions, engine: Engine, files: tuple[Path, ...], names: dict[str, str]
) -> RawTable:
    chunks = [chunk for path in files for chunk in find_log(path, options.delimiter)]
    return read_raw(
        engine, chunks, names, _FLAGS, options.on_bad_line, missing=options.missing_values
    )


def _inspect(
    options: HistoryOptions, raw: Mapping[str, RawTable]
) -> tuple[dict[str, dict[str, ir.BooleanValue]], dict[str, set[str]], int]:
    """Returns faults and columns of integers of each table, and the number of bad rows."""
    faults, integers, num_bad = {}, {}, 0
    for name, table in raw.items():
        faults[name] = table.required(*_KEYS, TIME)
        num_bad_rows, integers[name] = table.inspect(faults[name])
        if num_bad_rows and options.on_bad_line != SKIP:
            raise table.bad_row(faults[name], SKIP_HELP)
        num_bad += num_bad_rows + table.num_skipped
    for key in _KEYS:  # of one type wherever they are
        if not all(key in integers[name] for name, table in raw.items() if key in table.names):
            for columns in integers.values():
                columns.discard(key)
    return faults, integers, num_bad


def _typed(
    table: RawTable, integers: set[str], faults: Mapping[str, ir.BooleanValue], name: str
) -> ir.Table:
    """Returns the rows without a fault with their types, stored under a name."""
    good = table.without(faults)
    columns = {
        column: key_value(good[column], column in integers)
        for column in table.names
        if column not in (TIME, RATING)
    }
    if RATING in table.names:
        columns[RATING] = good[RATING]
    if TIME in table.names:
        columns |= {TIME: table.time_number(TIME in integers), "row": good[ROW]}
    return table.engine.store_table(good.select(**columns), name)
