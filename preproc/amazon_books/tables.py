"""Logs in tables of one's own, CSV or Parquet -> staged Parquet files.

Users, items and features are integers or text. A column of CSV holds integers where all its values
are written as one writes an integer of 64 bits (so 007 is text, and stays apart from 7), or all of
a file as pandas writes a column of integers in which some are missing (7.0); so does a column of
integers in Parquet. A column that has integers and text in different files is text. An
empty value is a missing one. Times are numbers or timestamps in ISO form (`event_times.py`); a
value that is neither is an error even where bad rows are skipped.

Each table is read twice: first for what its columns hold and whether all is well, then for good.
"""

import csv
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from preproc.amazon_books.engines.interface import StagedLog
from preproc.amazon_books.event_times import EventTimes, Place
from preproc.amazon_books.options import CSV, AmazonOptions
from preproc.raw_files import damaged_gzip, is_gzip

_INTEGER = r"^(?:0|-?[1-9][0-9]*)$"
_FLOAT_INTEGER = r"^(?:0|-?[1-9][0-9]*)\.0$"
_BATCH_ROWS = 1 << 16
_BLOCK_BYTES = 4 << 20
_WAYS_OUT = "Fix the file, or leave such rows out with --on_bad_line skip"


@dataclass
class _LogTable:
    """Files with the same columns; what the first reading finds is added to it.

    columns: staged name -> name in the files. Of user, item and time, none may be missing.
    integers: the staged names of the columns that hold nothing but integers.
    floats: (file, staged name) of columns whose integers are written as 7.0 in that file.
    times: of the column `time`, if there is one.
    skipped: of the file that is being read, the rows without as many fields as the header, upwards;
        these are not in its batches.
    """

    paths: tuple[Path, ...]
    columns: dict[str, str]
    integers: set[str] = field(default_factory=set)
    floats: set[tuple[Path, str]] = field(default_factory=set)
    times: EventTimes = field(default_factory=EventTimes)
    bad_rows: int = 0
    skipped: list[int] = field(default_factory=list)

    def place(self, path: Path, row: int) -> str:
        """Returns the location for messages. row: counted without those that were skipped."""
        for number in self.skipped:
            row += number <= row
        return _place(path, row)


def stage_tables(options: AmazonOptions, folder: Path) -> tuple[StagedLog, int]:
    """Stages the log of `--interactions`, `--users` and `--items`.

    Returns:
        the log, and the number of rows that were left out.

    Raises:
        ValueError: a column is missing or of no use, or a row is bad and may not be skipped.
    """
    log = _LogTable(
        options.interactions,
        {"user": options.user_column, "item": options.item_column, "time": options.time_column},
    )
    tables, features, called = {"log": log}, {}, {}
    for kind, path, names in (
        ("user", options.users, options.user_features),
        ("item", options.items, options.item_features),
    ):
        table = "log" if path is None else f"{kind}s"
        if path is not None:
            tables[table] = _LogTable((path,), {kind: log.columns[kind]})
        tables[table].columns |= {f"{kind}_{i}": name for i, name in enumerate(names)}
        files = ", ".join(map(str, tables[table].paths))
        called[kind] = tuple(f"{name} in {files}" for name in names)
        features[kind] = (folder / f"{table}.parquet",) if names else ()
    for table in tables.values():
        _look_through(table, options)
    for key in ("user", "item"):  # of one type wherever they are
        if not all(key in table.integers for table in tables.values() if key in table.columns):
            for table in tables.values():
                table.integers.discard(key)
    for name, table in tables.items():
        _write(table, options, folder / f"{name}.parquet")
    staged = StagedLog(
        events=(folder / "log.parquet",),
        users=features["user"],
        items=features["item"],
        user_features=called["user"],
        item_features=called["item"],
    )
    return staged, sum(table.bad_rows for table in tables.values())


def _look_through(table: _LogTable, options: AmazonOptions) -> None:
    """Reads a table for the first time: counts its bad rows and learns what its columns hold."""
    table.integers = set(table.columns) - {"time"}
    for path in table.paths:
        first_row, integers, floats = 1, set(table.integers), set(table.integers)
        for batch in _batches(table, path, options):
            good = _is_good(table, path, batch, first_row, options.on_bad_line)
            integers = {name for name in integers if _is_integer(batch[name], options)}
            floats = {name for name in floats if _is_float_integer(batch[name], options)}
            if "time" in table.columns:
                table.times.add(batch["time"], _places(table, path, first_row))
            table.bad_rows += batch.num_rows - pc.sum(good).as_py()
            first_row += batch.num_rows
        table.integers &= integers | floats
        table.floats |= {(path, name) for name in floats - integers}
    if "time" in table.columns:
        table.times.settle(table.columns["time"])
        _check_times(table, options)


def _check_times(table: _LogTable, options: AmazonOptions) -> None:
    """Reads a table once more where its times become float64, which may not be exact."""
    for path in table.paths if table.times.is_float else ():
        first_row = 1
        for batch in _batches(table, path, options, again=True):
            table.times.check_exact(batch["time"], _places(table, path, first_row))
            first_row += batch.num_rows


def _write(table: _LogTable, options: AmazonOptions, target: Path) -> None:
    """Reads a table for the second time and writes its good rows."""
    types = {name: pa.int64() if name in table.integers else pa.string() for name in table.columns}
    if "time" in types:
        types["time"] = table.times.dtype
    schema = pa.schema(list(types.items()))
    with pq.ParquetWriter(target, schema) as writer:
        for path in table.paths:
            for batch in _batches(table, path, options, again=True):
                good = batch.filter(_is_good(table, path, batch, 0, "skip"))
                for name in table.integers:
                    if (path, name) in table.floats:
                        index = good.column_names.index(name)
                        good = good.set_column(index, name, _without_point(good[name]))
                if "time" in types:
                    index = good.column_names.index("time")
                    good = good.set_column(index, "time", table.times.numbers(good["time"]))
                writer.write_table(good.cast(schema))


def _is_good(
    table: _LogTable, path: Path, batch: pa.Table, first_row: int, on_bad_line: str
) -> pa.ChunkedArray:
    """Returns for each row whether it has all required values, booleans [n].

    Raises:
        ValueError: a row has not, and on_bad_line is "error".
    """
    good = pa.chunked_array([np.ones(batch.num_rows, bool)])
    for name in batch.column_names:
        if name not in ("user", "item", "time"):
            continue
        there = batch[name].is_valid()
        if batch[name].null_count and on_bad_line == "error":
            row = first_row + pc.index(there, False).as_py()
            raise ValueError(f"{table.place(path, row)}: no {table.columns[name]}. {_WAYS_OUT}")
        good = pc.and_(good, there)
    return good


def _places(table: _LogTable, path: Path, first_row: int) -> Place:
    """Returns the places of the times of a block that begins with `first_row` of a file."""
    return lambda row: f"{table.place(path, first_row + row)}: {table.columns['time']}"


def _is_integer(values: pa.ChunkedArray, options: AmazonOptions) -> bool:
    if options.input_format == CSV:
        return _are_whole(values, _INTEGER)
    return pa.types.is_integer(values.type)


def _is_float_integer(values: pa.ChunkedArray, options: AmazonOptions) -> bool:
    if options.input_format != CSV:
        return False
    if not pc.all(pc.match_substring_regex(values, _FLOAT_INTEGER), min_count=0).as_py():
        return False
    return _are_whole(_without_point(values), _INTEGER)


def _without_point(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.replace_substring_regex(texts, r"\.0$", "")


def _are_whole(texts: pa.ChunkedArray, pattern: str) -> bool:
    """Returns whether all texts match a pattern of digits and are integers of 64 bits."""
    # Arrow also takes what looks like a hexadecimal number.
    if not pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py():
        return False
    try:
        texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    return True


def _place(path: Path, row: int) -> str:
    return f"{path}, row {row} (the first one with values is row 1)"


# Files


def _batches(
    table: _LogTable, path: Path, options: AmazonOptions, again: bool = False
) -> Iterator[pa.Table]:
    """A file's rows in blocks, with the staged names; empty text is null.

    again: what was counted or objected to at the first reading is silently left out.

    Raises:
        ValueError: the file cannot be read as it should.
    """
    try:
        if options.input_format == CSV:
            yield from _csv_batches(table, path, options, again)
        else:
            yield from _parquet_batches(table, path)
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"{path} cannot be read as {options.input_format}: {error}. Fix the file; "
            "--on_bad_line skip leaves out rows that can be read, and does not help here"
        ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise damaged_gzip(path, error) from error


def _csv_batches(
    table: _LogTable, path: Path, options: AmazonOptions, again: bool
) -> Iterator[pa.Table]:
    table.skipped, wrong = [], []

    def judge(row: pyarrow.csv.InvalidRow) -> str:
        table.skipped.append(row.number - 1)
        if not wrong:
            wrong.append(row)
        return "skip" if again else options.on_bad_line

    names = list(dict.fromkeys(table.columns.values()))
    with gzip.open(path) if is_gzip(path) else open(path, "rb") as source:
        header = source.readline().decode("utf-8-sig", "replace")
        _check_columns(path, next(csv.reader([header], delimiter=options.delimiter), []), names)
        source.seek(0)
        try:
            for batch in pyarrow.csv.open_csv(
                source,
                # Only a single thread knows the numbers of rows.
                read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=options.delimiter,
                    newlines_in_values=True,
                    invalid_row_handler=judge,
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    include_columns=names,
                    column_types=dict.fromkeys(names, pa.string()),
                    strings_can_be_null=True,
                    null_values=[""],
                ),
            ):
                yield _named(table, batch)
        except pa.ArrowInvalid as error:
            if not wrong or options.on_bad_line == "skip":
                raise
            raise ValueError(
                f"{_place(path, table.skipped[0])}: {wrong[0].actual_columns} fields, but the "
                f"header has {wrong[0].expected_columns}. {_WAYS_OUT}"
            ) from error
    if not again:
        table.bad_rows += len(table.skipped)


def _parquet_batches(table: _LogTable, path: Path) -> Iterator[pa.Table]:
    names = list(dict.fromkeys(table.columns.values()))
    with pq.ParquetFile(path) as file:
        _check_columns(path, file.schema_arrow.names, names)
        types = {}
        for staged, name in table.columns.items():
            arrow_type = file.schema_arrow.field(name).type
            is_dictionary = pa.types.is_dictionary(arrow_type)
            values = arrow_type.value_type if is_dictionary else arrow_type
            if pa.types.is_integer(values):
                types[name] = pa.int64()
            elif pa.types.is_string(values) or pa.types.is_large_string(values):
                types[name] = pa.string()
            elif staged == "time":
                types[name] = arrow_type
            else:
                raise ValueError(
                    f"{path}: {name} holds {arrow_type}; users, items and their features are "
                    "integers or text"
                )
        for batch in file.iter_batches(_BATCH_ROWS, columns=names):
            columns = {name: batch[name].cast(types[name]) for name in names}
            for name, values in columns.items():
                if types[name] == pa.string():
                    columns[name] = pc.if_else(pc.equal(values, ""), None, values)
            yield _named(table, pa.table(columns))


def _named(table: _LogTable, batch: pa.RecordBatch | pa.Table) -> pa.Table:
    return pa.table({staged: batch[name] for staged, name in table.columns.items()})


def _check_columns(path: Path, header: list[str], wanted: list[str]) -> None:
    for name in wanted:
        if header.count(name) != 1:
            number = "no column" if name not in header else f"{header.count(name)} columns"
            raise ValueError(
                f"{path} has {number} {name}; there are {', '.join(header) or 'none'}. Specify its "
                "columns with --user_column, --item_column, --time_column, --user_features and "
                "--item_features (and their delimiter with --delimiter)"
            )
