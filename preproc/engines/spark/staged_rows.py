"""Rows that tasks of Spark write as part files; no PySpark and no Ibis here.

A part is a file with one row group, so that Spark never divides it. Files get random names until
the driver numbers them, so that repeated tasks do not disturb each other.
"""

import contextlib
import json
import os
import re
import secrets
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from preproc.engines.bad_lines import NO_BAD_LINES, BadLine, BadLines, text_blocks
from preproc.engines.spark.tasks import RunToken, local_folder, numbers, record_batch, runs
from preproc.engines.text_tables import create_table, stored_columns
from preproc.sources.column_chunk import CSV, SourceChunk
from preproc.sources.duckdb_files import identifier

_PART_ROWS = 1 << 18
_BATCH_ROWS = 1 << 16
_DUCKDB_BYTES = 256 << 20
REPORT = "report string"


class PartFile(NamedTuple):
    """A file of rows: its name in the folder of its table."""

    name: str
    num_rows: int


class FileSplit(NamedTuple):
    """Neighbouring rows of a source file that a task wrote.

    Attributes:
        file: number of the file.
        start: the byte where the split begins.
        num_lines: of text, also those that are not rows.
        bad: lines that are not rows; their numbers count from the start of the split.
        is_open: whether a field with a line break may cross the end of the split.
    """

    file: int
    start: int
    parts: tuple[PartFile, ...]
    num_lines: int = 0
    bad: BadLines = NO_BAD_LINES
    is_open: bool = False

    @property
    def num_rows(self) -> int:
        return sum(part.num_rows for part in self.parts)


def split_from_json(text: str) -> FileSplit:
    """Returns a split that a task reported."""
    split = FileSplit(*json.loads(text))
    parts = tuple(PartFile(*part) for part in split.parts)
    count, bad = split.bad
    return split._replace(parts=parts, bad=BadLines(count, tuple(BadLine(*line) for line in bad)))


def file_numbers(files: Sequence[str]) -> dict[str, int]:
    """Returns `plain_path` -> number of each file."""
    return {plain_path(file): number for number, file in enumerate(files)}


def spark_file(path: str) -> str:
    """Returns the `plain_path` of a path that Spark wrote: escaped, with its file system."""
    return urllib.parse.unquote(plain_path(path))


def plain_path(path: str) -> str:
    """Returns a path without its file system."""
    match = re.fullmatch(r"[A-Za-z][\w+.-]*:(?://[^/]*)?(/.*)", path)
    return match[1] if match else path


@dataclass(frozen=True)
class StageText:
    """Task: lines of text files -> parts; yields a `FileSplit` in JSON for each split.

    The lines are parsed as on one machine, by `text_tables`.

    Attributes:
        names: see `text_tables.stored_columns`.
        folder: of the parts, which all workers see.
    """

    chunk: SourceChunk
    names: tuple[str, ...]
    folder: Path
    token: RunToken

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self.token.check()
        numbered = _numbered(self.chunk.files, batches)
        for file, file_batches in runs(numbered, "file"):
            for start, lines in runs(file_batches, "start"):
                yield _report(self._split(file, start, (batch["value"] for batch in lines)))

    def whole_files(
        self, files: Sequence[int], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Reads compressed files; places in `files` -> `FileSplit`."""
        self.token.check()
        for place in numbers(batches):
            file = files[place]
            yield _report(self._split(file, 0, text_blocks(self.chunk.files[file])))

    def _split(self, file: int, start: int, text: Iterator[pa.Array | bytes]) -> FileSplit:
        with local_folder() as name, contextlib.closing(_connect(name)) as connection:
            path = Path(name, "split.csv")
            num_lines, is_open = _write_text(path, text, self.chunk)
            has_header = self.chunk.header and not start
            chunk = replace(self.chunk, files=(str(path),), header=has_header)
            bad = create_table(connection, "rows", chunk, self.names, Path(name))
            stored = enumerate(stored_columns(chunk, self.names))
            columns = ", ".join(f"{identifier(column)} AS c{i}" for i, column in stored)
            rows = connection.sql(f"SELECT {columns} FROM rows")
            parts = tuple(write_parts(self.folder, rows.to_arrow_reader(_BATCH_ROWS)))
        bad = bad._replace(first=tuple(line._replace(file=file) for line in bad.first))
        return FileSplit(file, start, parts, num_lines, bad, is_open)


@dataclass(frozen=True)
class StageRows:
    """Task: rows of Parquet files after the columns `path` and `start` -> parts, as `StageText`."""

    files: tuple[str, ...]
    folder: Path
    token: RunToken

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self.token.check()
        for file, file_batches in runs(_numbered(self.files, batches), "file"):
            for start, rows in runs(file_batches, "start"):
                plain = (batch.select(range(2, batch.num_columns)) for batch in rows)
                yield _report(FileSplit(file, start, tuple(write_parts(self.folder, plain))))


@dataclass(frozen=True)
class StageResult:
    """Task: rows of a query with the column `partition` at the end -> parts.

    Yields a `FileSplit` whose file is the number of the partition.

    Attributes:
        part: the place of the column whose runs become a part each; None for parts of any rows.
    """

    folder: Path
    token: RunToken
    part: int | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self.token.check()
        for partition, rows in runs(batches, "partition"):
            plain = (batch.select(range(batch.num_columns - 1)) for batch in rows)
            yield _report(
                FileSplit(partition, 0, tuple(write_parts(self.folder, plain, self.part)))
            )


@dataclass(frozen=True)
class MapRows:
    """Task: rows of whole parts -> the texts that `work` yields."""

    work: Callable[[Iterator[pa.RecordBatch]], Iterator[str]]
    token: RunToken

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self.token.check()
        for text in self.work(batches):
            yield record_batch(REPORT, [text])


def write_parts(
    folder: Path, batches: Iterator[pa.RecordBatch], part: int | None = None
) -> Iterator[PartFile]:
    """Writes rows as files with one row group each, whose columns are c0, c1 and so on."""
    if part is not None:
        for _, run in runs(batches, f"c{part}"):
            yield _write(folder, list(run))
        return
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        if waiting and sum(b.num_rows for b in waiting) + batch.num_rows > _PART_ROWS:
            yield _write(folder, waiting)
            waiting = []
        waiting.append(batch)
    if waiting:
        yield _write(folder, waiting)


def _write(folder: Path, batches: list[pa.RecordBatch]) -> PartFile:
    table = pa.Table.from_batches(batches)
    new = folder / f"new-{secrets.token_hex(16)}.parquet"
    pq.write_table(table, new, row_group_size=max(table.num_rows, 1))
    return PartFile(new.name, table.num_rows)


def _numbered(files: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields batches with the number of the file, `file`, in place of the column `path`."""
    numbers = file_numbers(files)
    for batch in batches:
        paths = batch["path"].dictionary_encode()
        known = [numbers[spark_file(path)] for path in paths.dictionary.to_pylist()]
        columns = [
            pa.array(known, pa.int64()).take(paths.indices),
            *(batch[name] for name in batch.schema.names[1:]),
        ]
        yield pa.RecordBatch.from_arrays(columns, ["file", *batch.schema.names[1:]])


def _write_text(path: Path, text: Iterator[Any], chunk: SourceChunk) -> tuple[int, bool]:
    """Writes lines or blocks of bytes; returns the number of lines, and if a quote may be open."""
    num_lines, is_open = 0, False
    with open(path, "wb") as file:
        for block in text:
            if isinstance(block, bytes):
                file.write(block)
                continue
            num_lines += len(block)
            if chunk.type == CSV and chunk.quoting:
                odd = pc.bit_wise_and(pc.count_substring(block.cast(pa.binary()), b'"'), 1)
                is_open = is_open or bool(pc.any(pc.equal(odd, 1)).as_py())
            file.write(_joined(block))
    return num_lines, is_open


def _joined(lines: pa.Array) -> bytes:
    """Returns the bytes of lines, each with a line feed."""
    ended = pc.binary_join_element_wise(lines.cast(pa.binary()), b"", b"\n")
    start, stop = ended.offset, ended.offset + len(ended)
    offsets = memoryview(ended.buffers()[1]).cast("i")
    return memoryview(ended.buffers()[2])[offsets[start] : offsets[stop]] if len(ended) else b""


def _connect(scratch: str) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(
        config={
            "threads": 1,
            "memory_limit": f"{_DUCKDB_BYTES}B",
            "temp_directory": os.path.join(scratch, "duckdb"),
        }
    )


def _report(split: FileSplit) -> pa.RecordBatch:
    return record_batch(REPORT, [json.dumps(split)])
