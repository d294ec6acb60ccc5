"""Raw rows of files in their order: any table that `preproc.transcode` reads."""

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from dataloading.spec.rules import listing, suggestion
from preproc.checks.drift import moved_columns
from preproc.checks.report import Finding
from preproc.encoding.encoder import Encoder
from preproc.engines.engine import PART, ROW, Engine, count_rows
from preproc.engines.open_engine import DUCKDB, open_engine
from preproc.sources.part_files import find_table

MEMORY_BYTES = 1 << 30  # default of `open_rows`


class TableRows:
    """Rows of a file, or of the part files of a folder, in an engine.

    Args:
        engine: reads the rows, and stores those of text.
        path: see `preproc.sources.part_files.find_table`.
        columns: names of the columns to read; None: all.
        optional: those of them that may be absent.
        on_bad_line: `fail`, or `skip` to leave out invalid lines of text.
        has_header: see `find_table`.

    Attributes:
        files: paths of the files.
        columns: names of the columns that are read.
        ignored: names of the other columns.
        num_rows: number of rows, 1 or more.
        table: see `Engine.read`.

    Raises:
        ValueError: a file cannot be read, the table is empty, or a column is absent.
    """

    def __init__(
        self,
        engine: Engine,
        path: str,
        columns: Sequence[str] | None = None,
        on_bad_line: str = "fail",
        has_header: bool = True,
        optional: Sequence[str] = (),
    ):
        self._engine = engine
        chunk = find_table(path, engine.store, has_header)
        self.files = chunk.files
        known = chunk.columns
        if known is not None and columns is not None:
            columns = _present(path, columns, known, optional)
            if has_header:  # otherwise these are all columns of the files
                chunk = dataclasses.replace(chunk, columns=tuple(columns))
        self.table = engine.read([chunk], on_bad_line)
        # The keys of JSON lines are known when they are read.
        known = known or tuple(name for name in self.table.columns if name not in (PART, ROW))
        self.columns = _present(path, known if columns is None else columns, known, optional)
        self.ignored = [name for name in known if name not in self.columns]
        self.num_rows = count_rows(engine, self.table)
        if not self.num_rows:
            raise ValueError(
                f"{path}: expected rows, got the names of columns alone: add rows to score"
            )

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yields the rows in order; columns: names of those to read, None for all."""
        return self._engine.batches(self.table.select(list(columns or self.columns)))

    def drift(self, encoder: Encoder) -> list[Finding]:
        """Returns how the columns differ from the training rows of an encoder."""
        return moved_columns(self._engine, self.table, encoder)

    def place(self, row: int, column: str | None = None) -> str:
        """Returns the file and the number in it of a row, which is counted from 0 among all."""
        return self._engine.place(self.table, row, column)


@contextlib.contextmanager
def open_rows(
    path: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    *,
    on_bad_line: str = "fail",
    has_header: bool = True,
    optional: Sequence[str] = (),
    memory_limit_bytes: int = MEMORY_BYTES,
    threads: int | None = None,
) -> Iterator[TableRows]:
    """Yields the rows of a file or a folder, which DuckDB reads; see `TableRows`.

    Rows of text are parsed once and stored in memory, or in temporary files (`TMPDIR`) beyond the
    limit.

    Args:
        memory_limit_bytes: memory of DuckDB; the process needs some 350 MB more.
        threads: of DuckDB; None for one per core.
    """
    with (
        tempfile.TemporaryDirectory() as scratch,
        open_engine(
            DUCKDB, Path(scratch), memory_limit_bytes=memory_limit_bytes, threads=threads
        ) as engine,
    ):
        yield TableRows(engine, os.fspath(path), columns, on_bad_line, has_header, optional)


def _present(
    path: str, expected: Sequence[str], columns: Sequence[str], optional: Sequence[str]
) -> tuple[str, ...]:
    """Returns the expected columns that are there; ValueError if one is absent and not optional."""
    if missing := [name for name in expected if name not in (*columns, *optional)]:
        others = [name for name in columns if name not in expected]
        raise ValueError(
            f"{path}: expected the columns {listing(missing)}, got {listing(columns)}"
            + suggestion(missing[0], others, "is it called")
        )
    return tuple(name for name in expected if name in columns)
