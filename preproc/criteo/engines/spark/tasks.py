"""Python part of Spark's tasks: parses lines, counts and encodes values of pieces of the log.

Runs on the workers and imports nothing of Spark. DuckDB parses, Arrow counts and looks up.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataloading.engines.key_runs import runs
from dataloading.engines.run_token import RunToken
from preproc.criteo.engines.duckdb_engine import CriteoDuckDBEngine
from preproc.criteo.engines.spark.records import RecordFiles
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output.binary_files import NumericalWriter
from preproc.criteo.raw_lines import NUM_NUMERICAL
from preproc.engines.spark_parts import RowGroup, new_part, part_files
from preproc.engines.spark_tasks import local_folder, numbers, record_batch

LINES = "part long, lines long, rows long, last long, first_bad long"
COUNTED = "column int, value string, count long"
VALUES = "piece long, column int, value string"


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
            yield record_batch(LINES, *([value] for value in row))


@dataclass(frozen=True)
class CountValues:
    """Number of a piece -> `COUNTED`: the values of its columns and how often they occur."""

    pieces: tuple[RowGroup, ...]
    columns: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            for i, values in enumerate(self.pieces[number].read_dictionaries(self.columns)):
                counted = pc.value_counts(values.drop_null())
                distinct = counted.field("values").dictionary_decode()
                column = np.full(len(counted), i, np.int32)
                yield record_batch(COUNTED, column, distinct, counted.field("counts"))


@dataclass(frozen=True)
class DistinctValues:
    """Number of a piece -> `VALUES`: the different values of some columns of the piece.

    columns: number -> name.
    """

    pieces: tuple[RowGroup, ...]
    columns: dict[int, str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            names = list(self.columns.values())
            columns = self.pieces[number].read_dictionaries(names)
            for i, values in zip(self.columns, columns, strict=True):
                distinct = pc.unique(values.drop_null()).dictionary_decode()
                column = np.full(len(distinct), i, np.int32)
                yield record_batch(VALUES, np.full(len(distinct), number), column, distinct)


@dataclass(frozen=True)
class EncodeNumericals:
    """Number of a piece -> records of labels, numerical features and bins."""

    pieces: tuple[RowGroup, ...]
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

    pieces: tuple[RowGroup, ...]
    columns: tuple[str, ...]
    vocabularies: tuple[Path | None, ...]
    files: RecordFiles

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, run in runs(batches, "piece"):
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
