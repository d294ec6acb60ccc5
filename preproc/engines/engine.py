"""Interface of the engines, which run the same Ibis expressions on DuckDB or Spark."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import ibis
import pyarrow as pa
from ibis.expr import operations as ops

from dataloading.spec.rules import listing
from preproc.engines.bad_lines import NO_BAD_LINES, BadLines, place
from preproc.sources.column_chunk import SourceChunk
from preproc.sources.file_store import FileStore
from preproc.sources.header import check_names

# Columns of tables that `Engine.read` returns: number of the part, number of the row among all.
PART, ROW = "__part", "__row"
SPLIT = "__split"  # column of the number of a row's split, where rows are divided
BATCH_ROWS = 1 << 16

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[str]]


class _PySparkOptions(ibis.config.Config):
    """Options of Ibis for Spark; its own ones would be made by its backend, which needs PySpark."""

    treat_nan_as_null: bool = False


ibis.options.pyspark = _PySparkOptions()


@dataclass(frozen=True, kw_only=True)
class StoredChunk:
    """Rows of a chunk that an engine has read.

    Attributes:
        columns: of the rows, in order.
        header_rows: records of each file that are not rows.
    """

    files: tuple[str, ...]
    columns: tuple[str, ...]
    num_rows: int
    header_rows: int = 0
    bad: BadLines = NO_BAD_LINES


class Engine:
    """Context manager around tables and the queries on them.

    Attributes:
        dialect: what `ibis.to_sql` compiles for, "duckdb" or "pyspark".
        store: the file system for `sources.part_files.find_table`.
    """

    dialect: str
    store: FileStore

    def __init__(self):
        self._chunks: dict[str, Sequence[StoredChunk]] = {}  # by the name of their table

    def read(self, chunks: Sequence[SourceChunk], on_bad_line: str = "fail") -> ibis.Table:
        """Returns the rows of files: `__part`, `__row` and the columns of all chunks.

        `__row` numbers the rows from 0 in the order of the files. The rows of a part are
        contiguous. Columns of text files are strings, those of Parquet files have their types.
        Rows are stored once, or read where a query needs them.

        Args:
            chunks: different columns of the same rows.
            on_bad_line: `fail`, or `skip` to leave out lines of text files that are not rows, at
                most 1 % of them.

        Raises:
            ValueError: a file cannot be read, or chunks differ in their number of rows.
        """
        for chunk in chunks:
            for file in chunk.files:
                self.store.is_folder(file)  # whether it exists
        with self.explained_errors():
            stored = [self._read_chunk(chunk, on_bad_line) for chunk in chunks]
            if len(stored) > 1:
                first_files = listing(chunk.files[0] for chunk in stored)
                check_names([name for chunk in stored for name in chunk.columns], first_files)
                if len({chunk.num_rows for chunk in stored}) > 1:
                    sizes = listing(f"{chunk.files[0]}: {chunk.num_rows:,}" for chunk in stored)
                    raise ValueError(
                        f"expected equally many rows in all chunks of a split, got {sizes}"
                    )
            table = self._joined(stored)
        self._chunks[table.get_name()] = stored
        return table

    def place(self, table: ibis.Table, row: int, column: str | None = None) -> str:
        """Returns how messages call a row of a table of `read`, by its `__row`: file and row.

        Args:
            table: of `read`, possibly stored again, or with more columns and fewer rows.
            column: one of its columns, which decides on the file where a table has several chunks.
        """
        chunks = self._chunks[source_name(table)]
        chunk = next((c for c in chunks if column in c.columns), chunks[0])
        file, first_row = self._file_of(chunk, row)
        return place(chunk.files, file, row - first_row, chunk.bad.first, chunk.header_rows)

    def num_skipped(self, table: ibis.Table) -> int:
        """Returns the number of lines that `read` left out of a table."""
        return sum(chunk.bad.count for chunk in self._chunks[table.get_name()])

    def fetch(self, expression: ibis.Table) -> pa.Table:
        """Returns a small result."""
        raise NotImplementedError

    def batches(self, expression: ibis.Table) -> Iterator[pa.RecordBatch]:
        """Yields a result in the order of its `order_by`, or of the stored rows.

        Spark: for small or ordered results, such as vocabularies.
        """
        raise NotImplementedError

    def store_table(self, expression: ibis.Table, name: str) -> ibis.Table:
        """Stores a result, which several queries use. `place` knows the rows of a table of `read`
        in it.

        Its rows are in the order of its `order_by`. Without one, those of a result with `__part`
        and `__row` are in that order.

        Args:
            name: for messages; queries use the returned table.
        """
        raise NotImplementedError

    def map_batches(self, expression: ibis.Table, work: Work) -> list[str]:
        """Returns what `work` yields for batches of a result that has `__part` and `__row`.

        Each call of `work` gets whole parts, and the rows of each in their order. It runs in this
        process or in tasks of Spark, which may repeat it; a repeated call must give the same
        result.
        """
        raise NotImplementedError

    def explained_errors(self) -> AbstractContextManager[None]:
        """Turns errors of the engine into those of Python, in terms of the command line."""
        raise NotImplementedError

    def _read_chunk(self, chunk: SourceChunk, on_bad_line: str) -> StoredChunk:
        raise NotImplementedError

    def _joined(self, chunks: Sequence[StoredChunk]) -> ibis.Table:
        """Returns one table with the columns of all chunks."""
        raise NotImplementedError

    def _file_of(self, chunk: StoredChunk, row: int) -> tuple[int, int]:
        """Returns the number of the file that has a row, and the number of its first row."""
        raise NotImplementedError


def fetch_row(engine: Engine, expression: ibis.Table) -> dict[str, Any]:
    """Returns the only row of a result, such as that of an aggregation."""
    (row,) = engine.fetch(expression).to_pylist()
    return row


def source_name(table: ibis.Table) -> str:
    """Returns the name of the stored table that a query selects from; empty: of several."""
    names = {source.name for source in table.op().find(ops.UnboundTable)}
    return names.pop() if len(names) == 1 else ""


def count_rows(engine: Engine, table: ibis.Table) -> int:
    """Returns the number of rows of a table."""
    return fetch_row(engine, table.aggregate(num_rows=table.count()))["num_rows"]


def has_row_order(expression: ibis.Table) -> bool:
    """Returns whether a query keeps the order of its table's rows: it selects columns and rows."""
    relations = expression.op().find(ops.Relation)
    others = expression.op().find((ops.WindowFunction, ops.Subquery, ops.Unnest))
    kept = (ops.Project, ops.Filter, ops.DropColumns, ops.UnboundTable)
    return all(isinstance(node, kept) for node in relations) and not others


def loses_row_order(expression: ibis.Table) -> bool:
    """Returns whether a result has numbers of rows, but neither their order nor one of its own."""
    is_numbered = {PART, ROW} <= set(expression.columns)
    return is_numbered and not has_row_order(expression) and not _is_sorted(expression)


def has_whole_parts(expression: ibis.Table) -> bool:
    """Returns whether a stored result can be divided between the values of `__part`."""
    return {PART, ROW} <= set(expression.columns) and not _is_sorted(expression)


def _is_sorted(expression: ibis.Table) -> bool:
    return isinstance(expression.op(), ops.Sort)
