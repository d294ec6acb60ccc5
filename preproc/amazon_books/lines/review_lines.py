"""Review lines: JSON objects with reviewerID, asin and unixReviewTime.

The first two are non-empty strings, the third is an integer of 64 bits. Other fields are ignored,
but must be JSON as DuckDB's parser reads it.
"""

import itertools
import json
import mmap
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataloading.table_input.duckdb_files import (
    quoted,
    read_ndjson,
    read_ndjson_objects,
    read_parquet,
)
from preproc.amazon_books.lines.field_scanner import INTEGER, TEXT, FieldScanner
from preproc.amazon_books.lines.line_files import SCRATCH, bad_line, line_text, shown, text_field
from preproc.engines.duckdb_session import PreparationSession

USER, ITEM, TIME = "reviewerID", "asin", "unixReviewTime"
_MAX_LINE_BYTES = 16 << 20
_SCHEMA = pa.schema([("user", pa.string()), ("item", pa.string()), ("time", pa.int64())])
_CHUNK_BYTES = 4 << 20  # scanned at a time, by each thread
_TAIL_BYTES = 64 << 10  # read with them for the rest of the last line, at first
_GROUP_ROWS = 122_880  # of a row group, as DuckDB writes it


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
    if FieldScanner.is_available() and _scan(path, target, session.threads or 1):
        return 0
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


def _scan(path: Path, target: Path, threads: int) -> bool:
    """Writes the lines of a file if all of them are good and plain; returns whether they are."""
    with pq.ParquetWriter(target, _SCHEMA, **SCRATCH) as writer:
        waiting: list[pa.RecordBatch] = []
        for batch in _scanned(path, threads):
            if batch is None:
                break
            waiting.append(batch)
            if sum(map(len, waiting)) >= _GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(waiting))
                waiting = []
        else:
            writer.write_table(pa.Table.from_batches(waiting, _SCHEMA))
            return True
    target.unlink()
    return False


def _scanned(path: Path, threads: int) -> Iterator[pa.RecordBatch | None]:
    """Yields the events of a file in order, some thousands at a time; None for an odd line."""
    with open(path, "rb") as file, ThreadPoolExecutor(threads) as pool:
        chunks, pending = _Chunks(file.fileno()), deque()
        try:
            for start in range(0, chunks.file_bytes, _CHUNK_BYTES):
                pending.append(pool.submit(chunks.scan, start))
                if len(pending) > 2 * threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


class _Chunks:
    """Chunks of a file, each mapped while it is scanned; file: its descriptor."""

    def __init__(self, file: int):
        self.file_bytes = os.fstat(file).st_size
        self._file = file
        self._scanner = FieldScanner({USER: TEXT, ITEM: TEXT, TIME: INTEGER})

    def scan(self, start: int) -> pa.RecordBatch | None:
        """Returns the events of the lines that begin in a chunk, None if there is an odd line."""
        first = max(start - 1, 0)  # with the byte before, which ends a line or not
        base = first - first % mmap.ALLOCATIONGRANULARITY
        stop, tail = min(start + _CHUNK_BYTES, self.file_bytes) - base, _TAIL_BYTES
        lines = self._mapped(base, stop + tail)
        begin = lines.find(b"\n", first - base, stop) + 1 if start else 0
        if start and not begin:  # all of it is in a line that begins before
            return pa.RecordBatch.from_pylist([], _SCHEMA)
        while not (end := lines.find(b"\n", stop - 1) + 1):
            if base + len(lines) == self.file_bytes:
                end = len(lines)
                break
            if tail > _MAX_LINE_BYTES:
                return None
            tail *= 4
            lines = self._mapped(base, stop + tail)
        if end - lines.rfind(b"\n", begin, stop - 1) > _MAX_LINE_BYTES:
            return None
        arrays = self._scanner.scan(np.frombuffer(lines, np.uint8)[:end], begin, stop)
        return None if arrays is None else pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)

    def _mapped(self, base: int, num_bytes: int) -> mmap.mmap:
        size = min(num_bytes, self.file_bytes - base)
        return mmap.mmap(self._file, size, access=mmap.ACCESS_READ, offset=base)


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
