"""Review lines: JSON objects with reviewerID, asin and unixReviewTime.

The first two are non-empty strings, the third is an integer of 64 bits. Other fields are ignored,
but must be JSON as DuckDB's parser reads it.
"""

import itertools
import json
from pathlib import Path

import duckdb

from dataloading.table_input.duckdb_files import quoted, read_ndjson_objects, read_parquet
from preproc.amazon_books.lines.line_files import bad_line, line_text, shown, text_field
from preproc.engines.duckdb_session import PreparationSession

USER, ITEM, TIME = "reviewerID", "asin", "unixReviewTime"
_MAX_LINE_BYTES = 16 << 20


def stage_reviews(
    session: PreparationSession, file: Path, piece: tuple[Path, int], target: Path, on_bad_line: str
) -> int:
    """Writes good lines to a Parquet file (user, item, time); returns the number of bad lines.

    Args:
        session: keeps the order of rows.
        file: the file for messages.
        piece: plain file of whole lines of it, and the number of the first one.
        on_bad_line: "error" or "skip".

    Raises:
        ValueError: a bad line, with `on_bad_line` "error"; or a line of more than 16 MiB.
    """
    path, first_line = piece
    # Objects, as DuckDB reads a cut line and the next one as one where it is given columns.
    objects = read_ndjson_objects(
        path,
        f"compression='uncompressed', maximum_object_size={_MAX_LINE_BYTES}, ignore_errors=true",
    )
    # Fields as JSON: converted by DuckDB, numbers would pass for text and fractions for integers.
    fields = f"json_extract(json, ['$.{USER}', '$.{ITEM}', '$.{TIME}'])"
    time = "TRY_CAST(nullif(regexp_extract(time::VARCHAR, '^-?[0-9]+$'), '') AS BIGINT)"
    lines = target.with_suffix(".lines")
    try:
        session.connection.execute(
            f"COPY (SELECT user ->> '$' AS user, item ->> '$' AS item, "
            f"CASE WHEN {_is_text('user')} AND {_is_text('item')} THEN {time} END AS time "
            f"FROM (SELECT fields[1] AS user, fields[2] AS item, fields[3] AS time "
            f"FROM (SELECT {fields} AS fields FROM {objects}))) TO {quoted(lines)} (FORMAT parquet)"
        )
    except duckdb.InvalidInputException as error:
        raise ValueError(f"{file}: a line is longer than {_MAX_LINE_BYTES >> 20} MiB") from error
    rows = read_parquet(lines, "file_row_number=true")
    num_bad, first_bad = session.connection.execute(
        f"SELECT count(*), min(file_row_number) FROM {rows} WHERE time IS NULL"
    ).fetchone()
    if num_bad == 0:
        lines.rename(target)
        return 0
    if on_bad_line == "error":
        raise _explained(file, path, first_line, first_bad)
    session.connection.execute(
        f"COPY (SELECT user, item, time FROM {rows} WHERE time IS NOT NULL) TO {quoted(target)} "
        "(FORMAT parquet)"
    )
    lines.unlink()
    return num_bad


def _is_text(column: str) -> str:
    """A condition: the JSON value is text with something in it."""
    return f"""(starts_with({column}::VARCHAR, '"') AND {column}::VARCHAR <> '""')"""


def _explained(file: Path, path: Path, first_line: int, index: int) -> ValueError:
    """Returns the error of a line; index: among those that are not empty, from 0."""
    with open(path, "rb") as file_lines:
        lines = ((i, line) for i, line in enumerate(file_lines, first_line) if line.strip())
        number, line = next(itertools.islice(lines, index, None))
    try:
        parse(line_text(line, number))
    except ValueError as error:
        return bad_line(file, number, error)
    return bad_line(file, number, "DuckDB cannot read it as JSON")


def parse(line: str) -> tuple[str, str, int]:
    """Returns user, item and time of a line; raises ValueError with its fault."""
    try:
        fields = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from error
    if not isinstance(fields, dict):
        raise ValueError("it is JSON, but no object with braces around it")
    time = fields.get(TIME)
    if not isinstance(time, int) or isinstance(time, bool) or not -(1 << 63) <= time < 1 << 63:
        raise ValueError(f"{TIME} is {shown(fields, TIME)}; it must be an integer of 64 bits")
    return text_field(fields, USER), text_field(fields, ITEM), time
