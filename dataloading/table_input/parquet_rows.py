"""Rows from the middle of a Parquet file, in the batches in which the whole file is read."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq


def batches_from(
    file: pq.ParquetFile, columns: Sequence[str], first_row: int, num_rows: int, batch_size: int
) -> Iterator[pa.RecordBatch]:
    """Yields the rows from `first_row` on, counted from 0, `batch_size` at a time."""
    skipped, groups = first_row, file.num_row_groups
    first = 0
    while first < groups and skipped >= file.metadata.row_group(first).num_rows:
        skipped -= file.metadata.row_group(first).num_rows
        first += 1
    rows = file.iter_batches(
        batch_size, row_groups=range(first, groups), columns=list(columns), use_threads=False
    )
    yield from _resized(rows, skipped, num_rows, batch_size)


def _resized(
    batches: Iterable[pa.RecordBatch], skipped: int, num_rows: int, batch_size: int
) -> Iterator[pa.RecordBatch]:
    """Yields the rows skipped to skipped + num_rows - 1 in other batches."""
    waiting: list[pa.RecordBatch] = []
    num_waiting = 0
    for batch in batches:
        batch, skipped = batch[skipped:], max(0, skipped - batch.num_rows)
        batch = batch[:num_rows]
        num_rows -= batch.num_rows
        while num_waiting + batch.num_rows >= batch_size:
            size = batch_size - num_waiting
            yield pa.concat_batches([*waiting, batch[:size]])
            batch, waiting, num_waiting = batch[size:], [], 0
        if batch.num_rows:
            waiting, num_waiting = [*waiting, batch], num_waiting + batch.num_rows
        if not num_rows:
            break
    if waiting:
        yield pa.concat_batches(waiting)
