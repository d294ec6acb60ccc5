"""The single-machine engine: DuckDB, embedded, out of core under a memory limit.

Results come back in any order with their row numbers, because DuckDB spills.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from preproc.criteo.engines.interface import CategoricalColumn, DayFile
from preproc.criteo.engines.parts import row_groups
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output.encoded_files import EncodedFiles
from preproc.criteo.raw_lines import (
    LINE_PATTERN,
    MAX_LINE_BYTES,
    NUM_CATEGORICAL,
    NUM_NUMERICAL,
    UNLABELLED_PATTERN,
    LineCounts,
    line_counts,
    line_end,
    write_plain_copy,
)
from preproc.engines.duckdb_session import DuckDBSession
from preproc.raw_files import is_gzip
from preproc.sources.duckdb_files import BLANKS, quoted, read_csv, read_parquet
from runtime.files.disk import sync

# The part of the memory limit that DuckDB does not account for: Python, NumPy, Arrow and code
# (about 110 MiB), one block of results and the mapped part of a file (about 40 MiB), allocator
# slack.
_RESERVED_BYTES = 192 << 20
_ID_ROWS = 1 << 20  # rows fetched at a time: 12 MiB
_ROW_GROUP_ROWS = 122_880  # DuckDB's own choice
_STAGED_ROW_BYTES = 2048  # what a thread holds of a row while it writes Parquet, measured
_MALFORMED, _EMPTY = 2, 3  # in place of the label of a line that is not a row


class CriteoDuckDBEngine(DuckDBSession):
    """See `CriteoEngine`; without labels in the lines (`with_labels` False) all rows get 0."""

    name = "duckdb"
    writes_in_order = False
    columns_at_once = False

    def __init__(self, options: CriteoOptions, scratch: Path, with_labels: bool = True):
        super().__init__(
            scratch,
            options.memory_limit_bytes,
            reserved_bytes=_RESERVED_BYTES,
            threads=options.threads,
        )
        pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own keeps what DuckDB needs next
        self._pattern = LINE_PATTERN if with_labels else UNLABELLED_PATTERN

    def parse_day(self, source: Path, target: Path, scratch: Path) -> dict[str, int]:
        """See `CriteoEngine`; writes a Parquet file."""
        plain = scratch / "plain.tsv"
        parsed = scratch / "parsed.parquet"
        try:
            # DuckDB reads gzip with one thread and without verifying the checksum.
            if is_gzip(source) or not self._parse_plain(source, parsed):
                write_plain_copy(source, plain)
                self._copy(self._day_query(plain, "\n"), parsed)
        finally:
            plain.unlink(missing_ok=True)
        return line_counts([self._keep_rows(parsed, target)])

    def parse_range(
        self, source: Path, start: int, stop: int, target: Path, scratch: Path
    ) -> LineCounts:
        """Parses bytes start to stop, whole lines, of a plain file, as `parse_day` does a file."""
        # The target may be on another file system than `scratch`.
        plain, parsed = scratch / "plain.tsv", target.with_suffix(".parsed")
        write_plain_copy(source, plain, start, stop)
        self._copy(self._day_query(plain, "\n"), parsed)
        plain.unlink()
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

    def _parse_plain(self, source: Path, parsed: Path) -> bool:
        """Parses a plain file; returns False for one that CSV readers reject.

        Where it is not UTF-8, has mixed line ends or a huge line, each line is checked separately;
        an error after that is not caused by the input.
        """
        try:
            self._copy(self._day_query(source, line_end(source)), parsed)
        except duckdb.InvalidInputException:
            return False
        return True

    def _day_query(self, path: Path, line_end: str) -> str:
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
            "escape='', nullstr='', compression='none', "
            f"new_line={quoted(line_end.encode('unicode_escape').decode())}"
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
        counts: Counter[str] = Counter()
        for rows in row_groups(days):
            numbers = rows.first_row + np.arange(rows.num_rows)
            counts.update(files.write(numbers, rows.read(files.columns)))
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
                SELECT value, count(*) AS count FROM ({_column_query(column.name, days, num_rows)})
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
        known = 0
        # The result is a table, which spills, because a query's blocks cannot be fetched singly.
        for batch in self._batches(days):
            end = batch[-1].first_row + batch[-1].num_rows
            self.connection.execute(
                f"""
                CREATE OR REPLACE TEMP TABLE ids AS
                SELECT log.row, known.id
                FROM ({_column_query(column.name, batch, end)}) log
                JOIN (
                    SELECT value, file_row_number + 1 AS id FROM {_parquet(column.vocabulary)}
                ) known USING (value)
                """
            )
            (count,) = self.connection.execute("SELECT count(*) FROM ids").fetchone()
            for start in range(0, count, _ID_ROWS):
                block = self.connection.execute(
                    f"SELECT row, id FROM ids WHERE rowid >= {start} AND rowid < {start + _ID_ROWS}"
                ).fetchnumpy()
                column.files.write(block["row"], block["id"])
            known += count
            self.connection.execute("DROP TABLE ids")
        return known

    def _batches(self, days: Sequence[DayFile]) -> Iterator[list[DayFile]]:
        """Yields days in groups whose (row, id) pairs take a quarter of the memory."""
        most_rows = self.memory_bytes // 4 // 16
        batch: list[DayFile] = []
        for day in days:
            if batch and sum(other.num_rows for other in batch) + day.num_rows > most_rows:
                yield batch
                batch = []
            batch.append(day)
        if batch:
            yield batch


def _parquet(path: Path) -> str:
    return read_parquet(path, "file_row_number=true")


def _column_query(column: str, days: Sequence[DayFile], num_rows: int) -> str:
    """Returns a query for (row, value) of one column, of the log's first num_rows rows."""
    return " UNION ALL ".join(
        f"SELECT file_row_number + {day.first_row} AS row, {column} AS value "
        f"FROM {_parquet(day.path)} WHERE file_row_number < {num_rows - day.first_row}"
        for day in days
    )
