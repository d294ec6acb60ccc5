"""Python part of Spark's tasks: parses lines, counts, encodes and writes pieces of the log.

Runs on the workers and imports nothing of Spark. DuckDB parses, Arrow counts and looks up.

Encoded rows are sent to the task that writes their piece of all files. Spark moves blocks of them,
of at most 16 KiB, not single rows; a record is a row's position, then its value in each file. A
repeated task writes the same bytes again.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from preproc.criteo.engines.parts import RowGroup, new_part
from preproc.criteo.engines.single_machine import CriteoDuckDBEngine
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output.binary_files import ColumnFiles
from preproc.criteo.output.data_set import EncodedFiles
from preproc.encoding.vocabulary_lookup import TextIndex
from preproc.engines.spark.tasks import RunToken, local_folder, numbers, record_batch, runs

LINES = "part long, lines long, rows long, last long, first_bad long"
COUNTED = "column int, value string, count long"
VALUES = "piece long, column int, value string"
RECORDS = "piece long, records binary"
COUNTS = "file int, split string, nonzero long"
_BLOCK_BYTES = 16 << 10
BLOCKS_PER_BATCH = 1 << 12  # 64 MiB at a time to a Python worker


@dataclass(frozen=True)
class RecordFiles:
    """Column files of one layout that are written together, piece_rows rows by one task."""

    files: tuple[ColumnFiles, ...]
    piece_rows: int

    @property
    def dtype(self) -> np.dtype:
        fields = [("position", np.dtype("<i8"))]
        for number, file in enumerate(self.files):
            shape = () if file.width == 1 else (file.width,)
            fields.append((f"file_{number}", file.dtype, shape))
        return np.dtype(fields)

    def blocks(self, rows: np.ndarray, values: Sequence[np.ndarray]) -> Iterator[pa.RecordBatch]:
        """Yields `RECORDS`.

        Args:
            rows: [n] row numbers in the whole log.
            values: those of each file, [n] or [n, width].
        """
        if not len(rows):
            return
        positions = self.files[0].layout.order.positions(rows)
        piece = self._pieces(positions)
        by_piece = np.argsort(piece, kind="stable")
        piece = piece[by_piece]
        records = np.empty(len(rows), self.dtype)
        records["position"] = positions[by_piece]
        for number, each in enumerate(values):
            field = records[f"file_{number}"]
            field[...] = each[by_piece].reshape(field.shape)
        cuts = np.arange(0, len(rows), max(1, _BLOCK_BYTES // records.itemsize))
        starts = np.union1d(cuts, np.flatnonzero(np.diff(piece)) + 1)
        offsets = np.append(starts, len(rows)).astype(np.int64) * records.itemsize
        blocks = pa.BinaryArray.from_buffers(
            pa.binary(),
            len(starts),
            [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(records)],
        )
        yield pa.RecordBatch.from_arrays([pa.array(piece[starts]), blocks], ["piece", "records"])

    def _pieces(self, positions: np.ndarray) -> np.ndarray:
        """Returns the number of each position's piece of the files, int64 [n]."""
        pieces, first = np.zeros(len(positions), np.int64), 0
        for split in self.files[0].layout.splits:
            inside = (positions >= split.start) & (positions < split.stop)
            pieces[inside] = first + (positions[inside] - split.start) // self.piece_rows
            first += -(-split.num_rows // self.piece_rows)
        return pieces


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
                known_ids = 1 + _index(vocabulary).find(values.dictionary)
            else:
                own = known.filter(pc.field("column") == i).combine_chunks()
                places = TextIndex(own["value"].combine_chunks()).find(values.dictionary)
                known_ids = np.append(own["id"].to_numpy(), 0)[places]
            ids.append(np.append(known_ids, 0)[pc.fill_null(values.indices, -1).to_numpy()])
        yield from files.blocks(piece.first_row + np.arange(piece.num_rows), ids)


@functools.lru_cache(maxsize=64)
def _index(path: Path) -> TextIndex:
    """Returns the index of a vocabulary, whose values are in the order of their ids."""
    with pq.ParquetFile(path) as file:  # pq.read_table would import all of Arrow's data sets
        return TextIndex(file.read(["value"])["value"].combine_chunks())


def write_records(
    token: RunToken, layout: RecordFiles, sync: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """`RECORDS` -> files; yields `COUNTS`: how many values of a file are not 0, by split.

    sync: for tasks on other machines.
    """
    splits, files = layout.files[0].layout.splits, layout.files
    nonzero = np.zeros((len(files), len(splits)), np.int64)
    is_empty = True
    for batch in batches:
        if not batch.num_rows:
            continue
        token.check()
        is_empty = False
        content = batch.column("records")
        start, stop = np.frombuffer(content.buffers()[1], np.int32)[
            [content.offset, content.offset + len(content)]
        ]
        records = np.frombuffer(memoryview(content.buffers()[2])[start:stop], layout.dtype)
        records = records[np.argsort(records["position"])]
        positions = records["position"]
        bounds = np.searchsorted(positions, [(each.start, each.stop) for each in splits])
        for number, file in enumerate(files):
            values = records[f"file_{number}"]
            file.write_at(positions, values)
            nonzero[number] += [np.count_nonzero(values[a:b]) for a, b in bounds]
    if sync and not is_empty:
        for file in files:
            file.sync()
    file_numbers = np.repeat(np.arange(len(files), dtype=np.int32), len(splits))
    names = [split.name for split in splits] * len(files)
    yield record_batch(COUNTS, file_numbers, names, nonzero.reshape(-1))
