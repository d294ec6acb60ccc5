"""Python part of Spark's tasks: parses lines, counts and encodes values of pieces of the log.

Runs on the workers and imports nothing of Spark. DuckDB parses, Arrow counts and looks up.
"""

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from preproc.criteo.engines.parts import RowGroup, new_part
from preproc.criteo.engines.single_machine import CriteoDuckDBEngine
from preproc.criteo.engines.spark.shuffled_rows import RecordFiles
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output.encoded_files import EncodedFiles
from preproc.engines.spark.tasks import RunToken, local_folder, numbers, record_batch, runs

LINES = "part long, lines long, rows long, last long, first_bad long"
COUNTED = "column int, value string, count long"
VALUES = "piece long, column int, value string"


def parse_ranges(
    token: RunToken,
    source: Path,
    ranges: Sequence[tuple[int, int]],
    folder: Path,
    options: CriteoOptions,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Number of a range -> a file of rows in `folder`; yields `LINES`.

    source: plain file; ranges: its (start, stop) in bytes; options: with the memory of a task.
    """
    for number in numbers(batches):
        token.check()
        with (
            local_folder() as scratch,
            CriteoDuckDBEngine(options, Path(scratch)) as duckdb,
            new_part(folder, number) as target,
        ):
            lines = duckdb.parse_range(source, *ranges[number], target, Path(scratch))
        row = (number, lines.lines, lines.rows, lines.last, lines.first_bad)
        yield record_batch(LINES, *([value] for value in row))


def count_values(
    pieces: Sequence[RowGroup], columns: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Number of a piece -> `COUNTED`: the values of its columns and how often they occur."""
    for number in numbers(batches):
        for i, values in enumerate(pieces[number].read_dictionaries(columns)):
            counted = pc.value_counts(values.drop_null())
            distinct = counted.field("values").dictionary_decode()
            column = np.full(len(counted), i, np.int32)
            yield record_batch(COUNTED, column, distinct, counted.field("counts"))


def distinct_values(
    pieces: Sequence[RowGroup], columns: dict[int, str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Number of a piece -> `VALUES`: its different values of `columns`, number -> name."""
    for number in numbers(batches):
        dictionaries = pieces[number].read_dictionaries(list(columns.values()))
        for i, values in zip(columns, dictionaries, strict=True):
            distinct = pc.unique(values.drop_null()).dictionary_decode()
            column = np.full(len(distinct), i, np.int32)
            yield record_batch(VALUES, np.full(len(distinct), number), column, distinct)


def encode_numericals(
    pieces: Sequence[RowGroup],
    encoded: EncodedFiles,
    files: RecordFiles,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Number of a piece -> records of labels, numerical features and bins."""
    for number in numbers(batches):
        piece = pieces[number]
        values = encoded.values(piece.read(encoded.columns))
        yield from files.blocks(piece.first_row + np.arange(piece.num_rows), values)


def encode_values(
    pieces: Sequence[RowGroup],
    columns: dict[str, Path | None],
    files: RecordFiles,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Ids of a piece's values -> records of all its columns' ids.

    Takes the rows (piece, column, value, id), one piece after the other: the values of columns
    without a vocabulary in `columns`, name -> vocabulary, and a row with column -1 for each piece.
    """
    for number, run in runs(batches, "piece"):
        known = pa.Table.from_batches(run)
        piece, ids = pieces[number], []
        dictionaries = piece.read_dictionaries(list(columns))
        for i, (values, vocabulary) in enumerate(zip(dictionaries, columns.values(), strict=True)):
            if vocabulary is not None:
                value_set = _vocabulary(vocabulary)
                known_ids = np.arange(1, 1 + len(value_set))
            else:
                own = known.filter(pc.field("column") == i).combine_chunks()
                value_set, known_ids = own["value"], own["id"].to_numpy()
            ids.append(_ids(values, value_set, known_ids))
        yield from files.blocks(piece.first_row + np.arange(piece.num_rows), ids)


def _ids(values: pa.DictionaryArray, value_set: pa.Array, known_ids: np.ndarray) -> np.ndarray:
    """Returns the ids of a column, int64 [n]; 0 for missing and unknown values."""
    places = pc.fill_null(pc.index_in(values.dictionary, value_set=value_set), -1)
    ids = np.append(np.append(known_ids, 0)[places.to_numpy()], 0)
    return ids[pc.fill_null(values.indices, -1).to_numpy()]


@functools.lru_cache(maxsize=64)
def _vocabulary(path: Path) -> pa.Array:
    """Returns the values of a vocabulary in the order of their ids."""
    with pq.ParquetFile(path) as file:  # pq.read_table would import all of Arrow's data sets
        return file.read(["value"])["value"].combine_chunks()
