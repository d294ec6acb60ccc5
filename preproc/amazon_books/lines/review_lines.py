"""Review lines: JSON objects with reviewerID, asin and unixReviewTime.

The first two are non-empty strings, the third is an integer of 64 bits. Other fields are ignored,
but must be JSON as DuckDB's parser reads it.
"""

import itertools
import json
from pathlib import Path

import duckdb

from dataloading.table_input.duckdb_files import (
    quoted,
    read_ndjson,
    read_ndjson_objects,
    read_parquet,
)
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
    options = f"compression='uncompressed', maximum_object_size={_MAX_LINE_BYTES}"
    lines = target.with_suffix(".lines")
    try:
        try:
            # Each line is parsed once, in half the time of whole objects.
            names = ", ".join(f"{name}: 'JSON'" for name in (USER, ITEM, TIME))
            source = read_ndjson(path, f"{options}, records='true', columns={{{names}}}")
            _write_events(session, source, lines)
        except duckdb.InvalidInputException:
            # A line has a key twice, or something other than a JSON object. DuckDB would leave it
            # out, but reads a line that is cut off and the next one as one; whole objects it reads
            # line by line.
            fields = f"json_extract(json, ['$.{USER}', '$.{ITEM}', '$.{TIME}'])"
            objects = read_ndjson_objects(path, f"{options}, ignore_errors=true")
            _write_events(
                session,
                f"(SELECT fields[1] AS {USER}, fields[2] AS {ITEM}, fields[3] AS {TIME} "
                f"FROM (SELECT {fields} AS fields FROM {objects}))",
                lines,
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


def _write_events(session: PreparationSession, source: str, target: Path) -> None:
    """Writes user, item and time of a source of JSON fields; time is null where one is bad."""
    # Fields as JSON: converted by DuckDB, numbers would pass for text and fractions for integers.
    time = f"TRY_CAST(nullif(regexp_extract({TIME}::VARCHAR, '^-?[0-9]+$'), '') AS BIGINT)"
    session.connection.execute(
        f"COPY (SELECT {USER} ->> '$' AS user, {ITEM} ->> '$' AS item, "
        f"CASE WHEN {_is_text(USER)} AND {_is_text(ITEM)} THEN {time} END AS time FROM {source}) "
        f"TO {quoted(target)} (FORMAT parquet)"
    )


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
