"""DuckDB as an engine: one process, tables that spill to a folder, streams of Arrow batches."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import ibis
import pyarrow as pa
from ibis.backends.sql.datatypes import DuckDBType

from dataloading.spec.rules import listing
from preproc.engines.bad_lines import check_bad_lines
from preproc.engines.duckdb_session import DuckDBSession
from preproc.engines.engine import (
    PART,
    ROW,
    Engine,
    StoredChunk,
    Work,
    has_row_order,
    loses_row_order,
    source_name,
)
from preproc.engines.text_tables import (
    create_table,
    json_keys,
    stored_columns,
)
from preproc.sources.column_chunk import CSV, PARQUET, SourceChunk
from preproc.sources.duckdb_files import identifier, parquet_rows, quoted
from preproc.sources.file_store import FileStore
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


@dataclass(frozen=True, kw_only=True)
class _NamedChunk(StoredChunk):
    """Rows of a chunk in a table or view."""

    name: str


class DuckDBBackend(DuckDBSession, Engine):
    """See `engine.Engine`. Tables are in memory; what exceeds the limit is stored in `scratch`."""

    dialect = "duckdb"
    store = FileStore()

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
        Engine.__init__(self)
        self._numbers = itertools.count()

    def fetch(self, expression: ibis.Table) -> pa.Table:
        table = self.fetch_table(self._sql(expression))
        return table.cast(_arrow_schema(expression, table.schema))

    def batches(self, expression: ibis.Table) -> Iterator[pa.RecordBatch]:
        for batch in self.stream(self._sql(expression)):
            yield batch.cast(_arrow_schema(expression, batch.schema))

    def store_table(self, expression: ibis.Table, name: str) -> ibis.Table:
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

    def _file_of(self, chunk: StoredChunk, row: int) -> tuple[int, int]:
        (file_and_row,) = self._rows(
            f"""
            SELECT {PART}, min({ROW}) FROM {chunk.name}
            GROUP BY 1 HAVING min({ROW}) <= {row} ORDER BY 2 DESC LIMIT 1
            """
        )
        return file_and_row

    def _read_chunk(self, chunk: SourceChunk, on_bad_line: str) -> StoredChunk:
        name = self._new_name()
        if chunk.type == PARQUET:
            return self._read_parquet(chunk, name)
        if chunk.type == CSV:
            names = csv_columns(chunk, self.store)
        else:
            names = stored_columns(chunk, ()) or json_keys(self.connection, chunk.files)
        rows = f"{name}_rows"
        bad = create_table(self.connection, rows, chunk, names, self.scratch)
        ((num_rows,),) = self._rows(f"SELECT count(*) FROM {rows}")
        check_bad_lines(bad, num_rows, chunk.files, on_bad_line)
        columns = chunk.columns or (*filter(None, names), *chunk.partitions)
        expressions = {PART: f"{PART}::BIGINT", ROW: "rowid"}
        self._create_view(name, columns, expressions | _folder_values(chunk, PART), rows)
        return _NamedChunk(
            name=name, files=chunk.files, columns=tuple(columns), num_rows=num_rows,
            header_rows=int(chunk.header and chunk.type == CSV), bad=bad,
        )  # fmt: skip

    def _read_parquet(self, chunk: SourceChunk, name: str) -> StoredChunk:
        """Makes a view of the files: they are columnar and compressed as a table would be."""
        paths = [Path(file) for file in chunk.files]
        try:
            schemas = [self.store.schema(file) for file in chunk.files]
            source = parquet_rows(paths, schemas)
            types = self._rows(f"DESCRIBE SELECT * FROM {source}")
            rows = self._rows(
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
        first_rows = [*itertools.accumulate((count for (count,) in rows), initial=0)]
        expressions = {
            PART: "file_index::BIGINT",
            ROW: f"{first_rows}[file_index::BIGINT + 1] + file_row_number",
        }
        empty = ({f.name for f in schema if pa.types.is_null(f.type)} for schema in schemas)
        expressions |= dict.fromkeys(set.intersection(*empty), "NULL::VARCHAR")
        values = _folder_values(chunk, "file_index")
        expressions |= {name: value for name, value in values.items() if name not in types}
        self._create_view(name, wanted, expressions, source)
        return _NamedChunk(
            name=name, files=chunk.files, columns=tuple(wanted), num_rows=first_rows[-1]
        )

    def _create_view(
        self, name: str, columns: Sequence[str], expressions: Mapping[str, str], source: str
    ) -> None:
        """Makes a view of columns; expressions: SQL of those that the source does not have."""
        selected = [
            f"{expressions.get(column, identifier(column))} AS {identifier(column)}"
            for column in (PART, ROW, *columns)
        ]
        self.connection.execute(f"CREATE VIEW {name} AS SELECT {', '.join(selected)} FROM {source}")

    def _joined(self, chunks: Sequence[StoredChunk]) -> ibis.Table:
        if len(chunks) == 1:
            return self._table(chunks[0].name)
        name = self._new_name()
        names = [column for chunk in chunks for column in chunk.columns]
        columns = [f"t0.{PART}", f"t0.{ROW}", *map(identifier, names)]
        sources = [f"{chunk.name} AS t{i}" for i, chunk in enumerate(chunks)]
        self.connection.execute(
            f"CREATE TABLE {name} AS SELECT {', '.join(columns)} "
            f"FROM {' POSITIONAL JOIN '.join(sources)}"
        )
        return self._table(name)


def _folder_values(chunk: SourceChunk, file: str) -> dict[str, str]:
    """Returns SQL of the columns of `chunk.partitions`; file: that of the number of the file."""
    expressions = {}
    for name in chunk.partitions:
        values = ("NULL" if v is None else quoted(v) for v in partition_values(chunk, name))
        expressions[name] = f"([{', '.join(values)}]::VARCHAR[])[{file}::BIGINT + 1]"
    return expressions


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
