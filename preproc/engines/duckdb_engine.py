"""DuckDB as an engine: one process, tables that spill to a folder, streams of Arrow batches."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import ibis
import pyarrow as pa
from ibis.backends.sql.datatypes import DuckDBType

from dataloading.spec.rules import listing
from preproc.engines.bad_lines import NO_BAD_LINES, BadLines, check_bad_lines, place
from preproc.engines.duckdb_session import DuckDBSession
from preproc.engines.engine import (
    PART,
    ROW,
    Work,
    check_equal_rows,
    has_row_order,
    loses_row_order,
    source_name,
)
from preproc.engines.text_tables import (
    create_table,
    folder_value,
    identifier,
    json_keys,
    text_format,
)
from preproc.sources.column_chunk import CSV, PARQUET, SourceChunk
from preproc.sources.duckdb_files import quoted, read_parquet
from preproc.sources.file_store import LocalStore
from preproc.sources.header import check_names
from preproc.sources.part_files import csv_columns, partition_values

# What the process needs apart from DuckDB's own limit: Python, Arrow, code and a block of rows.
_RESERVED_BYTES = 256 << 20
_MIN_BYTES = 128 << 20
_HARMFUL_OPTIMIZERS = ",".join(
    (
        "in_clause",  # makes joins of lists of constants, which lose the order of the rows
        # believes the statistics of Parquet files, which leave NaN out: isnan() is false
        "statistics_propagation",
        # evaluates an expression that a filter and others use for each of them
        "filter_pushdown",
    )
)
# Of DuckDB's reader of Parquet files.
_OWN_COLUMNS = ("file_index", "file_row_number")


@dataclass(frozen=True)
class _Stored:
    """Rows of a chunk: the name of their table and what `place` needs."""

    name: str
    files: tuple[str, ...]
    columns: tuple[str, ...]
    bad: BadLines = NO_BAD_LINES
    header_rows: int = 0


class DuckDBBackend(DuckDBSession):
    """See `engine.Engine`. Tables are in memory; what exceeds the limit is stored in `scratch`."""

    dialect = "duckdb"
    store = LocalStore()

    def __init__(self, scratch: Path, memory_limit_bytes: int, threads: int | None = None):
        # DuckDB's threads make buffers that other threads free, which Arrow's own pool would keep.
        pa.set_memory_pool(pa.system_memory_pool())
        reserved = min(_RESERVED_BYTES, max(memory_limit_bytes - _MIN_BYTES, 0))
        super().__init__(
            scratch,
            memory_limit_bytes,
            reserved_bytes=reserved,
            threads=threads,
            disabled_optimizers=_HARMFUL_OPTIMIZERS,
        )
        self._numbers = itertools.count()
        self._chunks: dict[str, list[_Stored]] = {}

    def read(self, chunks: Sequence[SourceChunk], on_bad_line: str = "fail") -> ibis.Table:
        """See `Engine`."""
        for chunk in chunks:
            for file in chunk.files:
                self.store.is_folder(file)  # whether it exists
        with self.explained_errors():
            stored = [self._read_chunk(chunk, on_bad_line) for chunk in chunks]
            name = stored[0].name if len(stored) == 1 else self._joined(stored)
        self._chunks[name] = stored
        return self._table(name)

    def place(self, table: ibis.Table, row: int, column: str | None = None) -> str:
        """See `Engine`."""
        chunks = self._chunks[source_name(table)]
        chunk = next((c for c in chunks if column in c.columns), chunks[0])
        ((part, first),) = self._rows(
            f"""
            SELECT {PART}, min({ROW}) FROM {chunk.name}
            GROUP BY 1 HAVING min({ROW}) <= {row} ORDER BY 2 DESC LIMIT 1
            """
        )
        return place(chunk.files, part, row - first, chunk.bad.first, chunk.header_rows)

    def num_skipped(self, table: ibis.Table) -> int:
        """See `Engine`."""
        return sum(chunk.bad.count for chunk in self._chunks[table.get_name()])

    def fetch(self, expression: ibis.Table) -> pa.Table:
        """See `Engine`."""
        table = self.fetch_table(self._sql(expression))
        return table.cast(_arrow_schema(expression, table.schema))

    def batches(self, expression: ibis.Table) -> Iterator[pa.RecordBatch]:
        """See `Engine`."""
        for batch in self.stream(self._sql(expression)):
            yield batch.cast(_arrow_schema(expression, batch.schema))

    def store_table(self, expression: ibis.Table, name: str) -> ibis.Table:
        """See `Engine`."""
        if loses_row_order(expression):
            expression = expression.order_by([PART, ROW])
        columns = ", ".join(
            f"{identifier(column)}::BIGINT AS {identifier(column)}"
            if kind.is_int64()
            else identifier(column)
            for column, kind in expression.schema().items()
        )
        with self.explained_errors():
            self.connection.execute(
                f"CREATE OR REPLACE TABLE {identifier(name)} AS SELECT {columns} "
                f"FROM ({self._sql(expression)})"
            )
        self._chunks[name] = self._chunks.get(source_name(expression), [])
        return self._table(name)

    def map_batches(self, expression: ibis.Table, work: Work) -> list[str]:
        """See `Engine`."""
        if not has_row_order(expression):
            expression = expression.order_by([PART, ROW])
        with contextlib.closing(self.batches(expression)) as batches:
            return list(work(_in_order(batches)))

    def _rows(self, query: str) -> list[tuple]:
        return self.connection.execute(query).fetchall()

    def _sql(self, expression: ibis.Table) -> str:
        return str(ibis.to_sql(expression, dialect=self.dialect))

    def _table(self, name: str) -> ibis.Table:
        described = self._rows(f"DESCRIBE {identifier(name)}")
        schema = {column: DuckDBType.from_string(kind) for column, kind, *_ in described}
        return ibis.table(schema, name=name)

    def _new_name(self) -> str:
        return f"table_{next(self._numbers)}"

    def _read_chunk(self, chunk: SourceChunk, on_bad_line: str) -> _Stored:
        name = self._new_name()
        if chunk.type == PARQUET:
            return self._read_parquet(chunk, name)
        return self._read_text(chunk, name, on_bad_line)

    def _read_text(self, chunk: SourceChunk, name: str, on_bad_line: str) -> _Stored:
        form = text_format(chunk, self._text_columns(chunk))
        rows = f"{name}_rows"
        bad = create_table(self.connection, rows, chunk.files, form, self.scratch)
        ((num_rows,),) = self._rows(f"SELECT count(*) FROM {rows}")
        check_bad_lines(bad, num_rows, chunk.files, on_bad_line)
        columns = [f"{PART}::BIGINT AS {PART}", f"rowid AS {ROW}", *map(identifier, form.columns)]
        self._create_view(name, columns, rows)
        header_rows = int(chunk.header and chunk.type == CSV)
        return _Stored(name, chunk.files, form.columns, bad, header_rows)

    def _text_columns(self, chunk: SourceChunk) -> list[str]:
        if chunk.type == CSV:
            return csv_columns(chunk, self.store)
        return [name for name in chunk.columns or () if name not in chunk.partitions] or json_keys(
            self.connection, chunk.files
        )

    def _read_parquet(self, chunk: SourceChunk, name: str) -> _Stored:
        """Makes a view of the files: they are columnar and compressed as a table would be."""
        paths = [Path(file) for file in chunk.files]
        try:
            source = read_parquet(paths, "file_row_number=true, binary_as_string=true")
            types = self._rows(f"DESCRIBE SELECT * FROM {source}")
            counts = self._rows(
                f"SELECT num_rows FROM parquet_file_metadata([{', '.join(map(quoted, paths))}])"
            )
        except (duckdb.InvalidInputException, duckdb.IOException) as error:
            words = str(error).partition("\n")[0]
            raise ValueError(f"{chunk.files[0]}: expected Parquet files: {words:.300}") from None
        types = {column: kind for column, kind, *_ in types if column not in _OWN_COLUMNS}
        wanted = chunk.columns or (*types, *chunk.partitions)
        check_names(list(wanted), chunk.files[0])
        if missing := [name for name in wanted if name not in (*types, *chunk.partitions)]:
            raise ValueError(
                f"{chunk.files[0]}: expected the columns {listing(missing)}, got {listing(types)} "
                f"(the names {listing(_OWN_COLUMNS)} are reserved)"
            )
        first_rows = itertools.accumulate((count for (count,) in counts), initial=0)
        expressions = {
            PART: "file_index::BIGINT",
            ROW: f"{[*first_rows]}[file_index::BIGINT + 1] + file_row_number",
        }
        expressions |= {name: identifier(name) for name in types}
        for field in self.store.schema(chunk.files[0]):
            if pa.types.is_null(field.type):
                expressions[field.name] = "NULL::VARCHAR"
        for name in set(chunk.partitions) - set(types):
            expressions[name] = folder_value(partition_values(chunk, name))
        columns = [f"{expressions[n]} AS {identifier(n)}" for n in (PART, ROW, *wanted)]
        self._create_view(name, columns, source)
        return _Stored(name, chunk.files, tuple(wanted))

    def _create_view(self, name: str, columns: Sequence[str], source: str) -> None:
        self.connection.execute(f"CREATE VIEW {name} AS SELECT {', '.join(columns)} FROM {source}")

    def _joined(self, chunks: Sequence[_Stored]) -> str:
        """Stores one table with the columns of all chunks."""
        name = self._new_name()
        names = [column for chunk in chunks for column in chunk.columns]
        check_names(names, listing(chunk.files[0] for chunk in chunks))
        counts = [self._rows(f"SELECT count(*) FROM {chunk.name}")[0][0] for chunk in chunks]
        check_equal_rows([(chunk.files[0], n) for chunk, n in zip(chunks, counts, strict=True)])
        columns = [f"t0.{PART}", f"t0.{ROW}", *map(identifier, names)]
        sources = [f"{chunk.name} AS t{i}" for i, chunk in enumerate(chunks)]
        self.connection.execute(
            f"CREATE TABLE {name} AS SELECT {', '.join(columns)} "
            f"FROM {' POSITIONAL JOIN '.join(sources)}"
        )
        return name


def _in_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields batches; raises RuntimeError where one begins before the end of another."""
    last = -1
    for batch in batches:
        first, end = (batch.column(ROW)[i].as_py() for i in (0, -1)) if len(batch) else (last,) * 2
        if first < last:
            raise RuntimeError(f"expected rows in order, got row {first} after row {last}")
        last = end
        yield batch


def _arrow_schema(expression: ibis.Table, schema: pa.Schema) -> pa.Schema:
    """Returns the schema of a result with the int64 of Ibis, as sums of DuckDB are HUGEINT."""
    kinds = expression.schema()
    return pa.schema(
        [field.with_type(pa.int64()) if kinds[field.name].is_int64() else field for field in schema]
    )
