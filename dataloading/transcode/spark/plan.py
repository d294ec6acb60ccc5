"""Rows of files that are not compressed, divided into parts that tasks read on their own.

A part begins and ends where blocks of rows of the whole split do (`table_input.files.aligned`), so
tasks see the same blocks as one process that reads everything, and compute the same statistics.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataloading.table_input.files import CSV, Block, FileSlice, RawChunk, aligned, file_blocks
from dataloading.table_input.lines import LongLine, line_blocks, num_blocks

PART_ROWS = 1 << 18  # of a part, and so of the texts that a task looks up at a time
_PART_BLOCKS = 64  # of a part: some 64 MiB of CSV for each chunk
_RANGE_BLOCKS = 64  # of a file that a task counts


class SourceFile(NamedTuple):
    """A raw file: its path for all workers, its name in messages, and its format."""

    path: str
    where: str
    kind: str
    header: bool


class FileRange(NamedTuple):
    """Blocks of a file, by number in the list of all files."""

    file: int
    first: int
    stop: int


class BlockLines(NamedTuple):
    """Rows of each block of a range; `is_cut` where a line is too long for a block."""

    rows: np.ndarray
    is_cut: bool = False


class FileRows(NamedTuple):
    """Rows of each block of a file, int64; the blocks of a Parquet file have equal sizes."""

    source: SourceFile
    blocks: np.ndarray


def ranges(files: Sequence[SourceFile]) -> list[FileRange]:
    """Returns what tasks count; a Parquet file is one range."""
    result = []
    for number, file in enumerate(files):
        stop = num_blocks(Path(file.path)) if file.kind == CSV else 1
        for first in range(0, stop, _RANGE_BLOCKS):
            result.append(FileRange(number, first, min(stop, first + _RANGE_BLOCKS)))
    return result


def count_lines(files: Sequence[SourceFile], part: FileRange) -> BlockLines:
    """Counts the lines of each block, a header among them, or the rows of a Parquet file.

    The count of a file that cannot be read is 0; reading it raises the error.
    """
    file = files[part.file]
    if file.kind != CSV:
        try:
            return BlockLines(np.array([pq.read_metadata(file.path).num_rows]))
        except (pa.ArrowException, OSError):
            return BlockLines(np.array([0]))
    counts = []
    for number in range(part.first, part.stop):
        try:
            blocks = list(line_blocks(Path(file.path), file.where, number, number + 1))
        except LongLine:
            return BlockLines(np.array(counts, np.int64), is_cut=True)
        counts.append(sum(len(block.splitlines()) for block in blocks))
    return BlockLines(np.array(counts, np.int64))


def file_rows(
    files: Sequence[SourceFile], counted: Sequence[tuple[FileRange, BlockLines]], chunk_size: int
) -> list[FileRows]:
    """Returns the rows of all files from the counts of all ranges, which are in order.

    Raises:
        LongLine: of the first line that does not fit into a block.
    """
    parts: list[list[np.ndarray]] = [[] for _ in files]
    for part, counts in counted:
        parts[part.file].append(counts.rows)
        if counts.is_cut:
            num_lines = sum(int(rows.sum()) for rows in parts[part.file])
            raise LongLine(files[part.file].where, num_lines)
    result = []
    for file, pieces in zip(files, parts, strict=True):
        rows = np.concatenate(pieces) if pieces else np.zeros(0, np.int64)
        if file.kind != CSV:
            total = int(rows.sum())
            starts = np.arange(0, total, chunk_size)
            rows = np.minimum(chunk_size, total - starts)
        elif file.header and rows.any():
            rows[np.argmax(rows > 0)] -= 1
        result.append(FileRows(file, rows))
    return result


class Segment(NamedTuple):
    """Neighbouring blocks of a file; `first` is the row of the chunk at which they start."""

    path: str
    where: str
    slice: FileSlice
    first: int


@dataclass(frozen=True)
class Part:
    """Rows start to stop - 1 of a split, for one task.

    Attributes:
        number: in the order of all rows of all splits.
        segments: of each chunk of the split, the blocks with these rows.
        before: the rows of the candidate list that is open at `start`; None without one.
        is_last: whether the split ends here.
    """

    number: int
    split: str
    start: int
    stop: int
    segments: tuple[tuple[Segment, ...], ...]
    before: "Part | None" = None
    is_last: bool = False

    def blocks(self, chunks: Sequence[RawChunk], chunk_size: int) -> Iterator[list[Block]]:
        """Reads the rows, as `split_blocks` yields them."""
        pairs = zip(chunks, self.segments, strict=True)
        return aligned([self._stream(chunk, own, chunk_size) for chunk, own in pairs])

    def _stream(
        self, chunk: RawChunk, segments: Sequence[Segment], chunk_size: int
    ) -> Iterator[Block]:
        for segment in segments:
            row = segment.first
            blocks = file_blocks(
                Path(segment.path), chunk, chunk_size, segment.where, segment.slice
            )
            for block in blocks:
                low, high = max(self.start - row, 0), min(self.stop - row, block.num_rows)
                if low < high:
                    yield block.rows(low, high)
                row += block.num_rows
                if row >= self.stop:
                    return


def split_parts(
    split: str,
    files_of_chunks: Sequence[Sequence[FileRows]],
    chunk_size: int,
    first: int,
    list_length: int,
) -> list[Part]:
    """Returns the parts of the rows of a split, numbered from `first`.

    Args:
        files_of_chunks: the files of each chunk, in order; all have equally many rows.
        list_length: rows of a candidate list; 1 without candidate lists.
    """
    chunks = [_ChunkRows(files) for files in files_of_chunks]
    bounds = np.unique(np.concatenate([chunk.bounds(chunk_size) for chunk in chunks]))

    def segments(start: int, stop: int) -> tuple[tuple[Segment, ...], ...]:
        return tuple(tuple(chunk.segments(start, stop)) for chunk in chunks)

    parts, start, most_blocks = [], 0, _PART_BLOCKS * len(chunks)
    while start < (num_rows := chunks[0].num_rows):
        begin = np.searchsorted(bounds, start, side="right")
        end = np.searchsorted(bounds, start + PART_ROWS, side="right") - 1
        stop = int(bounds[min(max(begin, end), begin + most_blocks - 1)])
        whole, before = start - start % list_length, None
        if whole < start:
            before = Part(0, split, whole, start, segments(whole, start))
        number, own = first + len(parts), segments(start, stop)
        parts.append(Part(number, split, start, stop, own, before, stop == num_rows))
        start = stop
    return parts


class _ChunkRows:
    """Blocks of the files of a chunk that have rows, in order."""

    def __init__(self, files: Sequence[FileRows]):
        self._files = files
        numbers = [np.flatnonzero(file.blocks) for file in files]
        self._block = np.concatenate(numbers)
        self._file = np.repeat(np.arange(len(files)), [len(own) for own in numbers])
        self._rows = np.concatenate(
            [file.blocks[own] for file, own in zip(files, numbers, strict=True)]
        )
        self._ends = np.cumsum(self._rows)
        self._file_starts = np.cumsum([0, *(int(file.blocks.sum()) for file in files)])
        self.num_rows = int(self._file_starts[-1])

    def bounds(self, chunk_size: int) -> np.ndarray:
        """Returns the rows at which blocks of at most `chunk_size` rows end, ascending."""
        starts = self._ends - self._rows
        large = np.flatnonzero(self._rows > chunk_size)
        inner = [
            np.arange(starts[i] + chunk_size, self._ends[i], chunk_size, dtype=np.int64)
            for i in large
        ]
        return np.concatenate([self._ends, *inner])

    def segments(self, start: int, stop: int) -> Iterator[Segment]:
        """Yields the blocks with rows start to stop - 1, those of each file together."""
        low = int(np.searchsorted(self._ends, start, side="right"))
        high = int(np.searchsorted(self._ends, stop, side="left")) + 1
        for file in np.unique(self._file[low:high]):
            own = low + np.flatnonzero(self._file[low:high] == file)
            source = self._files[file].source
            first = int(self._ends[own[0]] - self._rows[own[0]])
            first_row = first - int(self._file_starts[file]) + 1
            blocks, num_rows = self._block[own[[0, -1]]], int(self._rows[own].sum())
            part = _file_slice(source, first_row, num_rows, int(blocks[0]), int(blocks[1]) + 1)
            yield Segment(source.path, source.where, part, first)


def _file_slice(
    source: SourceFile, first_row: int, num_rows: int, first_block: int, stop_block: int
) -> FileSlice:
    if source.kind == CSV:
        return FileSlice(first_row, None, first_block if first_row > 1 else 0, stop_block)
    return FileSlice(first_row, num_rows)


def slices(file: FileRows) -> list[FileSlice]:
    """Returns the rows of a file in parts for tasks that need no others next to them."""
    result, ends = [], np.cumsum(file.blocks)
    for start in range(0, len(file.blocks), _RANGE_BLOCKS):
        stop = min(start + _RANGE_BLOCKS, len(file.blocks))
        num_rows = int(file.blocks[start:stop].sum())
        first_row = int(ends[stop - 1]) - num_rows + 1
        if num_rows:
            result.append(_file_slice(file.source, first_row, num_rows, start, stop))
    return result
