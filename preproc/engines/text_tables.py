"""Tables of CSV and JSON-lines files in DuckDB, on one machine and in the tasks of Spark.

All values are text as it is in the files; JSON lists and objects are their JSON text. Empty lines,
and lines of blanks only, are left out.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb

from dataloading.spec.rules import listing
from preproc.engines.bad_lines import (
    MOST_LISTED,
    BadLine,
    BadLines,
    copy_with_line_feeds,
    has_mixed_line_ends,
    line_at,
    line_of_record,
    text_blocks,
)
from preproc.sources.column_chunk import CSV, SourceChunk
from preproc.sources.duckdb_files import BLANKS, identifier, quoted, read_csv
from preproc.sources.header import header_lines

_LINE_BREAKS = "Invalid Input Error: The CSV Parser state machine reached an invalid state"
_COLUMNS = re.compile(r"Expected Number of Columns: (\d+) Found: (\d+)")
_LONGEST_LINE = 8 << 20
# Larger buffers, DuckDB's default for such lines, would take much of the memory limit.
_READER = f"store_rejects=true, max_line_size={_LONGEST_LINE}, buffer_size={_LONGEST_LINE * 4}"
# No JSON text has this character, so that a line is one field.
_NO_DELIMITER = "\x01"


def stored_columns(chunk: SourceChunk, names: Sequence[str]) -> list[str]:
    """Returns the columns to read of text files, without those that the names of folders have.

    Args:
        names: all columns of CSV files in order, empty for those without a name; the keys of JSON.
    """
    wanted = chunk.columns or [name for name in names if name]
    return [name for name in wanted if name not in chunk.partitions]


def create_table(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    chunk: SourceChunk,
    names: Sequence[str],
    scratch: Path,
) -> BadLines:
    """Stores the rows of text files: `__part`, the number of the file, and `stored_columns`.

    Args:
        names: see `stored_columns`.
        scratch: folder for copies of files whose lines end in different ways.

    Returns:
        the lines that are not rows.

    Raises:
        ValueError: a file is cut or damaged.
    """
    files = chunk.files
    for file in files:
        if file.endswith((".gz", ".zst")):  # DuckDB takes a cut file for a whole one
            for _ in text_blocks(file):
                pass
    create = _create_csv if chunk.type == CSV else _create_json
    error = None
    try:
        bad = create(connection, table, chunk, names)
        suspects = {line.file for line in bad.first}
    except duckdb.InvalidInputException as raised:
        if _LINE_BREAKS not in str(raised):
            raise
        error, suspects = raised, set(range(len(files)))
    copied = {i for i in suspects if has_mixed_line_ends(files[i])}
    # Without an error, DuckDB reads no row after a line break in a name that is not that of the
    # lines; spreadsheets write such names.
    if chunk.type == CSV and chunk.header:
        copied |= {i for i, file in enumerate(files) if header_lines(file, chunk) > 1}
    copies = {i: scratch / f"{table}-{i}.txt" for i in copied}
    if copies:
        for i, copy in copies.items():
            copy_with_line_feeds(files[i], str(copy))
        connection.execute(f"DROP TABLE IF EXISTS {identifier(table)}")
        plain = tuple(str(copies.get(i, file)) for i, file in enumerate(files))
        bad = create(connection, table, replace(chunk, files=plain), names)
        for copy in copies.values():
            copy.unlink()
    elif error is not None:
        raise error
    return bad


def json_keys(connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> list[str]:
    """Returns the keys of the objects in JSON lines, in the order in which they appear."""
    lines = connection.execute(
        f"""
        SELECT keys FROM (
            SELECT TRY(json_keys(line)) AS keys, row_number() OVER () AS number
            FROM {_json_lines(files)} WHERE line IS NOT NULL
        ) GROUP BY keys ORDER BY min(number)
        """
    )
    keys: dict[str, None] = {}
    while rows := lines.fetchmany(1 << 12):
        for (names,) in rows:
            keys |= dict.fromkeys(names or ())
    return list(keys)


def _create_csv(connection, table: str, chunk: SourceChunk, names: Sequence[str]) -> BadLines:
    # Columns of the files could be called like DuckDB's own `file_index`.
    fields = {name: f"c{i}" for i, name in enumerate(names)}
    types = ", ".join(f"c{i}: 'VARCHAR'" for i in range(len(names)))
    quote = '"' if chunk.quoting else ""
    source = read_csv(
        [Path(file) for file in chunk.files],
        f"header={chunk.header}, delim={quoted(chunk.delimiter)}, quote='{quote}', "
        f"escape='{quote}', columns={{{types}}}, auto_detect=false, strict_mode=true, "
        f"allow_quoted_nulls=false, {_READER}",
    )
    where = ""
    if len(names) == 1:  # an empty line would be a missing value
        where = f"WHERE c0 = '' OR trim(c0, {BLANKS}) <> ''"
    elif chunk.delimiter == "\t":
        where = f"WHERE coalesce({', '.join(f'c{i}' for i in range(len(names)))}) IS NOT NULL"
    columns = _selected(fields, chunk, names)
    connection.execute(
        f"CREATE TABLE {identifier(table)} AS SELECT {columns} FROM {source} {where}"
    )
    return _rejects(connection, chunk, names)


def _selected(expressions: dict[str, str], chunk: SourceChunk, names: Sequence[str]) -> str:
    """Returns what a table selects of files; expressions: SQL of each of their columns."""
    stored = stored_columns(chunk, names)
    columns = [f"{expressions[name]} AS {identifier(name)}" for name in stored]
    # In memory, values are not compressed.
    kind = "UTINYINT" if len(chunk.files) <= 256 else "UINTEGER"
    return ", ".join([f"file_index::{kind} AS __part", *columns])


def _rejects(connection, chunk: SourceChunk, names: Sequence[str]) -> BadLines:
    listed = ", ".join(map(quoted, chunk.files))
    # Lines of blanks, which have another number of fields than rows.
    is_blank = f"trim(csv_line, {BLANKS}) = '' AND error_type <> 'INVALID ENCODING'"
    rows = connection.execute(
        f"""
        SELECT list_position([{listed}], file_path) - 1 AS file, line,
            min(line_byte_position) - 1, arg_min(error_type, column_idx),
            arg_min(error_message, column_idx), left(arg_min(csv_line, column_idx), 200),
            count(*) OVER ()
        FROM reject_errors JOIN reject_scans USING (scan_id, file_id) WHERE NOT ({is_blank})
        GROUP BY file, line ORDER BY file, line LIMIT {MOST_LISTED}
        """
    ).fetchall()
    connection.execute("DROP TABLE reject_errors; DROP TABLE reject_scans")
    bad = [
        BadLine(
            file,
            line_at(chunk.files[file], position) if i == 0 else 0,
            record,
            _rule(chunk.delimiter, names, kind, message, text or ""),
        )
        for i, (file, record, position, kind, message, text, _) in enumerate(rows)
    ]
    return BadLines(rows[0][-1] if rows else 0, tuple(bad))


def _rule(delimiter: str, names: Sequence[str], kind: str, message: str, text: str) -> str:
    shown = f"{text.lstrip():.100}".rstrip("\r\n")
    if counts := _COLUMNS.search(message):
        remedy = "complete the row"
        if int(counts[2]) > int(counts[1]):
            remedy = f"put a field with {delimiter!r} in it between quotation marks"
        return (
            f"expected {counts[1]} fields ({listing(name or '?' for name in names)}) between "
            f"{delimiter!r}, got {counts[2]}: {shown!r}: {remedy}"
        )
    if kind == "INVALID ENCODING":
        return (
            f"expected UTF-8 text, got {shown!r}: convert the file, e.g. with: iconv -f latin1 -t "
            "utf-8 FILE > NEW"
        )
    if kind == "UNQUOTED VALUE":
        return (
            f"expected quotation marks around a whole field, got {shown!r}; write one inside of a "
            "quoted field twice"
        )
    if kind == "LINE SIZE OVER MAXIMUM":
        return f"expected lines of at most {_LONGEST_LINE >> 20} MiB, got {shown!r}"
    return f"expected a line of CSV, got {shown!r}: {message}"


def _json_lines(files: Sequence[str]) -> str:
    return read_csv(
        [Path(file) for file in files],
        f"header=false, delim='{_NO_DELIMITER}', quote='', escape='', columns={{'line': "
        f"'VARCHAR'}}, auto_detect=false, strict_mode=false, {_READER}",
    )


def _create_json(connection, table: str, chunk: SourceChunk, names: Sequence[str]) -> BadLines:
    paths = [quoted("/" + key.replace("~", "~0").replace("/", "~1")) for key in names]
    columns = {name: f"fields[{i + 1}]" for i, name in enumerate(names)}
    target = identifier(table)
    connection.execute(
        f"""
        CREATE TABLE {target} AS SELECT {_selected(columns, chunk, names)},
            CASE WHEN fields IS NULL THEN line END AS __bad
        FROM (
            SELECT file_index, line, CASE WHEN starts_with(ltrim(line, ' \t'), '{{')
                THEN TRY(json_extract_string(line, [{", ".join(paths)}]::VARCHAR[])) END AS fields
            FROM {_json_lines(chunk.files)} WHERE trim(line, {BLANKS}) <> ''
        )
        """
    )
    rejects = _rejects(connection, chunk, names)
    rows = connection.execute(
        f"""
        SELECT __part, rowid - (SELECT min(rowid) FROM {target} AS t WHERE t.__part = b.__part),
            left(__bad, 200), count(*) OVER ()
        FROM {target} AS b WHERE __bad IS NOT NULL ORDER BY rowid LIMIT {MOST_LISTED}
        """
    ).fetchall()
    if not rows:
        return rejects
    new = identifier(f"{table}.new")
    connection.execute(
        f"CREATE TABLE {new} AS SELECT * FROM {target} WHERE __bad IS NULL; "
        f"DROP TABLE {target}; ALTER TABLE {new} RENAME TO {target}"
    )
    bad = [
        BadLine(
            file,
            0,
            row + 1,
            f"expected a JSON object, got {text!r:.100}: write one object per line",
        )
        for file, row, text, _ in rows
    ]
    first, *rest = sorted([*rejects.first, *bad], key=lambda line: (line.file, line.record))
    line = first.line or line_of_record(chunk.files[first.file], first.record)
    first = first._replace(line=line)
    return BadLines(rejects.count + rows[0][-1], (first, *rest))
