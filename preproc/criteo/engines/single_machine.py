"""The single-machine engine: DuckDB, embedded, out of core under a memory limit.

It sorts rows by the positions in which they are stored, and spills what does not fit into memory.
"""

import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from preproc.criteo.engines.engine_interface import CategoricalColumn, DayFile
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output.data_set import EncodedFiles
from preproc.criteo.output.output_order import OutputOrder
from preproc.criteo.raw_lines import (
    LINE_PATTERN,
    MAX_LINE_BYTES,
    NUM_CATEGORICAL,
    NUM_NUMERICAL,
    UNLABELLED_PATTERN,
    LineCounts,
    line_counts,
    write_plain_copy,
)
from preproc.engines.duckdb_session import DuckDBSession
from preproc.sources.duckdb_files import BLANKS, quoted, read_csv, read_parquet
from runtime.files.disk import sync

# The part of the memory limit that DuckDB does not account for: Python, NumPy, Arrow and code
# (about 110 MiB), one block of results and the mapped part of a file (about 40 MiB), allocator
# slack.
_RESERVED_BYTES = 192 << 20
_ROW_GROUP_ROWS = 122_880  # DuckDB's own choice
_STAGED_ROW_BYTES = 2048  # what a thread holds of a row while it writes Parquet, measured
_MALFORMED, _EMPTY = 2, 3  # in place of the label of a line that is not a row


class CriteoDuckDBEngine(DuckDBSession):
    """See `CriteoEngine`; without labels in the lines (`with_labels` False) all rows get 0."""

    name = "duckdb"
    columns_at_once = False

    def __init__(self, options: CriteoOptions, scratch: Path, with_labels: bool = True):
        super().__init__(
            scratch,
            options.memory_limit_bytes,
            reserved_bytes=_RESERVED_BYTES,
            threads=options.threads,
        )
        pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own keeps what DuckDB needs next
        self._order: OutputOrder | None = None  # of `output_position`
        self._pattern = LINE_PATTERN if with_labels else UNLABELLED_PATTERN

    def parse_day(self, source: Path, target: Path, scratch: Path) -> dict[str, int]:
        """See `CriteoEngine`; writes a Parquet file."""
        return line_counts([self.parse_range(source, 0, None, target, scratch)])

    def parse_range(
        self, source: Path, start: int, stop: int | None, target: Path, scratch: Path
    ) -> LineCounts:
        """Parses bytes start to stop, whole lines, of a file, as `parse_day` does all of it."""
        # The target may be on another file system than `scratch`.
        plain, parsed = scratch / "plain.tsv", target.with_suffix(".parsed")
        try:
            # DuckDB would read gzip with one thread and without verifying the checksum.
            write_plain_copy(source, plain, start, stop)
            self._copy(self._day_query(plain), parsed)
        finally:
            plain.unlink(missing_ok=True)
        return self._keep_rows(parsed, target)

    def _keep_rows(self, parsed: Path, target: Path) -> LineCounts:
        lines, rows, last, first_bad = self.connection.execute(
            f"""
            SELECT count(*), count(*) FILTER (label < {_MALFORMED}),
                max(file_row_number + 1) FILTER (label <> {_EMPTY}),
                min(file_row_number + 1) FILTER (label >= {_MALFORMED})
            FROM {_parquet(parsed)}
            """
        ).fetchone()
        if lines != rows:
            rows_only = parsed.with_suffix(".rows")
            self._copy(
                f"SELECT * EXCLUDE (file_row_number) FROM {_parquet(parsed)} "
                f"WHERE label < {_MALFORMED}",
                rows_only,
            )
            rows_only.replace(parsed)
        sync(parsed)
        parsed.replace(target)
        return LineCounts(lines, rows, last or 0, first_bad or 0)

    def _day_query(self, path: Path) -> str:
        """Returns a query for a row of typed columns per line; label 2 or 3 marks bad lines."""
        fields = iter(range(2, 2 + NUM_NUMERICAL + NUM_CATEGORICAL))
        columns = [
            f"try_cast(f[{next(fields)}] AS BIGINT) AS num_{i}" for i in range(NUM_NUMERICAL)
        ]
        columns += [f"nullif(f[{next(fields)}], '') AS cat_{i}" for i in range(NUM_CATEGORICAL)]
        # Other whitespace is a control character; few lines have spaces.
        split = "string_split(line, chr(9))"
        trimmed = f"list_transform({split}, lambda x: trim(x, ' '))"
        # One column, the whole line: the delimiter is a control character, which no good line has.
        options = (
            "auto_detect=false, header=false, columns={'line': 'VARCHAR'}, delim='\x01', quote='', "
            "escape='', nullstr='', compression='none', new_line='\\n'"
        )
        return f"""
            SELECT CASE WHEN f IS NULL THEN
                    CASE WHEN trim(coalesce(line, ''), {BLANKS}) = '' THEN {_EMPTY}
                    ELSE {_MALFORMED} END
                ELSE coalesce(try_cast(f[1] AS UTINYINT), 0) END::UTINYINT AS label,
                {", ".join(columns)}
            FROM (
                SELECT line, CASE WHEN regexp_full_match(line, {quoted(self._pattern)})
                    AND strlen(line) <= {MAX_LINE_BYTES}
                    THEN CASE WHEN contains(line, ' ') THEN {trimmed} ELSE {split} END END AS f
                FROM {read_csv(path, options)}
            )
        """

    def _copy(self, query: str, target: Path) -> None:
        per_thread = self.memory_bytes // (self.threads * _STAGED_ROW_BYTES)
        row_group_rows = max(2048, min(_ROW_GROUP_ROWS, per_thread // 2048 * 2048))
        self.connection.execute(
            f"COPY ({query}) TO {quoted(target)} (FORMAT parquet, ROW_GROUP_SIZE {row_group_rows})"
        )

    def write_numericals(self, days: Sequence[DayFile], files: EncodedFiles) -> dict[str, int]:
        order = files.files[0].layout.order
        columns = ", ".join(files.columns)
        # In the order of the log, nothing is sorted.
        parts = [[day] for day in days] if order.is_sequential else [days]
        position, counts = 0, Counter[str]()
        for part in parts:
            query = f"SELECT {columns} FROM ({_rows_query(columns, part)})"
            if not order.is_sequential:
                query += f" ORDER BY {self._position(order)}"
            for rows in self.stream(query):
                counts.update(files.write_at(position, rows))
                position += rows.num_rows
        return counts

    def count_columns(
        self, columns: Sequence[CategoricalColumn], days: Sequence[DayFile], num_rows: int
    ) -> list[int]:
        return [self._count_values(column, days, num_rows) for column in columns]

    def _count_values(
        self, column: CategoricalColumn, days: Sequence[DayFile], num_rows: int
    ) -> int:
        target = column.vocabulary
        new = target.with_suffix(".new")
        (kept,) = self.connection.execute(
            f"""
            COPY (
                SELECT value, count(*) AS count
                FROM ({_rows_query(f"{column.name} AS value", days, num_rows)})
                WHERE value IS NOT NULL GROUP BY value HAVING count(*) >= {column.threshold}
                ORDER BY count DESC, value
            ) TO {quoted(new)} (FORMAT parquet)
            """
        ).fetchone()
        sync(new)
        new.replace(target)
        return kept

    def write_columns(
        self, columns: Sequence[CategoricalColumn], days: Sequence[DayFile]
    ) -> list[int]:
        return [self._write_ids(column, days) for column in columns]

    def _write_ids(self, column: CategoricalColumn, days: Sequence[DayFile]) -> int:
        """Writes the ids of a column in the order of its files; returns how many are not 0."""
        ids = self.stream(
            f"""
            SELECT coalesce(known.id, 0) AS id
            FROM ({_rows_query(f"{column.name} AS value", days)}) log
            LEFT JOIN (
                SELECT value, file_row_number + 1 AS id FROM {_parquet(column.vocabulary)}
            ) known USING (value)
            ORDER BY {self._position(column.files.layout.order)}
            """
        )
        position = known = 0
        for batch in ids:
            values = batch.column("id").to_numpy()
            column.files.write_at(np.arange(position, position + len(values)), values)
            position += len(values)
            known += int(np.count_nonzero(values))
        return known

    def _position(self, order: OutputOrder) -> str:
        """Returns SQL of the position in which a row is stored."""
        if order.is_sequential:
            return "row"
        if self._order != order:
            function = functools.partial(_positions, order)
            # The connection may have an open result, and the function ends with its cursor.
            self._function, self._order = self.connection.cursor(), order
            self._function.create_function(
                "output_position", function, ["BIGINT"], "BIGINT", type="arrow"
            )
        return "output_position(row)"


def _positions(order: OutputOrder, rows: pa.ChunkedArray) -> pa.Array:
    return pa.array(order.positions(rows.to_numpy()))


def _parquet(path: Path) -> str:
    return read_parquet(path, "file_row_number=true")


def _rows_query(columns: str, days: Sequence[DayFile], num_rows: int | None = None) -> str:
    """Returns a query for `row` and columns, of the log's first num_rows rows (None: all)."""
    return " UNION ALL ".join(
        f"SELECT file_row_number + {day.first_row} AS row, {columns} FROM {_parquet(day.path)}"
        + ("" if num_rows is None else f" WHERE file_row_number < {num_rows - day.first_row}")
        for day in days
    )
