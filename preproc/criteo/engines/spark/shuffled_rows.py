"""Rows on their way to the prepared files: encoded, sent to the task that writes their piece.

A piece of all files is written by one task. Spark moves blocks of encoded rows, of at most 16 KiB,
not single rows; a record is a row's position, then its value in each file. Runs on the workers
and imports nothing of Spark. A repeated task writes the same bytes again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from preproc.criteo.output.binary_files import ColumnFiles
from preproc.engines.spark.tasks import RunToken, record_batch

_BLOCK_BYTES = 16 << 10
BLOCKS_PER_BATCH = 1 << 12  # 64 MiB at a time to a Python worker
RECORDS = "piece long, records binary"
COUNTS = "file int, split string, nonzero long"


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
