"""Python part of Spark's tasks: parses lines, counts and encodes values of pieces of the log.

Runs on the workers and imports nothing of Spark. DuckDB parses, Arrow counts and looks up.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataloading.table_input.run_token import RunToken
from preproc.criteo.engines.duckdb_engine import CriteoDuckDBEngine
from preproc.criteo.engines.spark.parts import Piece, new_part, part_files
from preproc.criteo.engines.spark.records import RecordFiles
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output.binary_files import NumericalWriter
from preproc.criteo.raw_lines import NUM_NUMERICAL
from preproc.engines.spark_tasks import local_folder, numbers

LINES = "part long, lines long, rows long, last long, first_bad long"
COUNTED = "column int, value string, count long"
KEPT = "column int, num_values long"
VALUES = "piece long, column int, value string"
KNOWN = "column int, value string, id long"


def _batch(schema: str, *columns: Sequence) -> pa.RecordBatch:
    """Returns a batch of a schema that is passed as Spark takes it."""
    types = {"int": pa.int32(), "long": pa.int64(), "string": pa.string()}
    fields = [field.split() for field in schema.split(", ")]
    arrays = [
        column.cast(types[kind]) if isinstance(column, pa.Array) else pa.array(column, types[kind])
        for (_, kind), column in zip(fields, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, [name for name, _ in fields])


@dataclass(frozen=True)
class ParseRanges:
    """Number of a range -> a file of rows in `folder`; yields `LINES`.

    source: plain file; ranges: its (start, stop) in bytes; options: with the memory of a task.
    """

    token: RunToken
    source: Path
    ranges: tuple[tuple[int, int], ...]
    folder: Path
    options: CriteoOptions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            self.token.check()
            with (
                local_folder() as scratch,
                CriteoDuckDBEngine(self.options, Path(scratch)) as duckdb,
                new_part(self.folder, number) as target,
            ):
                lines = duckdb.parse_range(self.source, *self.ranges[number], target, Path(scratch))
            row = (number, lines.lines, lines.rows, lines.last, lines.first_bad)
            yield _batch(LINES, *([value] for value in row))


@dataclass(frozen=True)
class CountValues:
    """Number of a piece -> `COUNTED`: the values of its columns and how often they occur."""

    pieces: tuple[Piece, ...]
    columns: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            for i, values in enumerate(self.pieces[number].read_dictionaries(self.columns)):
                counted = pc.value_counts(values.drop_null())
                distinct = counted.field("values").dictionary_decode()
                column = np.full(len(counted), i, np.int32)
                yield _batch(COUNTED, column, distinct, counted.field("counts"))


@dataclass(frozen=True)
class WriteVocabularies:
    """(column, value, count, part), sorted, of one part -> a file in each column's folder.

    Yields `KEPT`.
    """

    folders: tuple[Path, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema({"value": pa.string(), "count": pa.int64()})
        for number, batches_of_column in _runs(batches, "column"):
            first = next(batches_of_column)
            num_values = 0
            with (
                new_part(self.folders[number], first["part"][0].as_py()) as target,
                pq.ParquetWriter(target, schema) as writer,
            ):
                for batch in itertools.chain([first], batches_of_column):
                    writer.write_batch(batch.select(schema.names).cast(schema))
                    num_values += batch.num_rows
            yield _batch(KEPT, [number], [num_values])


@dataclass(frozen=True)
class ReadVocabularies:
    """Number of a piece of a vocabulary -> `KNOWN`; columns: the column of each piece."""

    pieces: tuple[Piece, ...]
    columns: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            piece = self.pieces[number]
            values = piece.read(["value"]).column(0).combine_chunks()
            column = np.full(len(values), self.columns[number], np.int32)
            yield _batch(KNOWN, column, values, piece.first_row + np.arange(len(values)))


@dataclass(frozen=True)
class DistinctValues:
    """Number of a piece -> `VALUES`: the different values of some columns of the piece.

    columns: number -> name.
    """

    pieces: tuple[Piece, ...]
    columns: dict[int, str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            names = list(self.columns.values())
            columns = self.pieces[number].read_dictionaries(names)
            for i, values in zip(self.columns, columns, strict=True):
                distinct = pc.unique(values.drop_null()).dictionary_decode()
                column = np.full(len(distinct), i, np.int32)
                yield _batch(VALUES, np.full(len(distinct), number), column, distinct)


@dataclass(frozen=True)
class EncodeNumericals:
    """Number of a piece -> records of labels, numerical features and bins."""

    pieces: tuple[Piece, ...]
    writer: NumericalWriter
    files: RecordFiles

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = [f"num_{i}" for i in range(NUM_NUMERICAL)]
        for number in numbers(batches):
            piece = self.pieces[number]
            table = piece.read(["label", *names])
            shifted = np.stack([table[name].to_numpy() for name in names], axis=1)
            values = self.writer.values(table["label"].to_numpy(), shifted)
            rows = piece.first_row + np.arange(piece.num_rows)
            yield from self.files.blocks(rows, values)


@dataclass(frozen=True)
class EncodeValues:
    """Ids of a piece's values -> records of all its columns' ids.

    Takes the rows (piece, column, value, id), one piece after the other: the values of columns
    without a vocabulary here, and a row with column -1 for each piece.

    vocabularies: of each column, or None.
    """

    pieces: tuple[Piece, ...]
    columns: tuple[str, ...]
    vocabularies: tuple[Path | None, ...]
    files: RecordFiles

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, run in _runs(batches, "piece"):
            known = pa.Table.from_batches(run)
            piece = self.pieces[number]
            ids = [
                self._ids(values, i, known)
                for i, values in enumerate(piece.read_dictionaries(self.columns))
            ]
            yield from self.files.blocks(piece.first_row + np.arange(piece.num_rows), ids)

    def _ids(self, values: pa.DictionaryArray, column: int, known: pa.Table) -> np.ndarray:
        """Returns the ids of a column, int64 [n]; 0 for missing and unknown values."""
        vocabulary = self.vocabularies[column]
        if vocabulary is None:
            known = known.filter(pc.field("column") == column).combine_chunks()
            places = pc.index_in(values.dictionary, value_set=known["value"])
            ids_of_places = np.append(known["id"].to_numpy(), 0)
        else:
            value_set = _vocabulary(vocabulary)
            places = pc.index_in(values.dictionary, value_set=value_set)
            ids_of_places = np.append(np.arange(1, 1 + len(value_set)), 0)
        ids = np.append(ids_of_places[pc.fill_null(places, -1).to_numpy()], 0)
        return ids[pc.fill_null(values.indices, -1).to_numpy()]


@functools.lru_cache(maxsize=64)
def _vocabulary(folder: Path) -> pa.Array:
    """Returns the values of a vocabulary in the order of their ids."""
    parts = []
    for path in part_files(folder):  # pq.read_table would import all of Arrow's data sets
        with pq.ParquetFile(path) as file:
            parts += file.read(["value"])["value"].chunks
    return pa.chunked_array(parts, pa.string()).combine_chunks()


def _runs(
    batches: Iterator[pa.RecordBatch], key: str
) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Yields each run of equal keys and the parts of batches in it; read them before the next."""
    slices = _slices(batches, key)
    for number, run in itertools.groupby(slices, lambda part: part[0]):
        yield number, (batch for _, batch in run)


def _slices(batches: Iterator[pa.RecordBatch], key: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in batches:
        keys = batch.column(key).to_numpy()
        starts = np.flatnonzero(np.diff(keys, prepend=-2))
        for start, stop in itertools.pairwise([*starts.tolist(), len(keys)]):
            yield int(keys[start]), batch.slice(start, stop - start)
