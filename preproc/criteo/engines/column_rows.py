"""Columns of staged days: in blocks, and one of them as a file of its own, (value, row) by row."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from preproc.criteo.engines.engine import DayFile

ROWS_SCHEMA = pa.schema({"value": pa.string(), "row": pa.int64()})


def staged_blocks(
    day: DayFile, end: int, columns: list[str], num_rows: int
) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    """The day's first `end` rows in blocks of at most num_rows: row numbers [n], columns."""
    start = 0
    for block in pq.ParquetFile(day.path).iter_batches(num_rows, columns=columns):
        block = block.slice(0, max(0, end - start))
        if not len(block):
            return
        yield day.first_row + np.arange(start, start + len(block)), block
        start += len(block)


def write_column(
    column: str, days: Sequence[DayFile], num_rows: int, target: Path, group_rows: int
) -> int:
    """Writes one column's rows, but for those where it is missing, as a Parquet file.

    num_rows: only rows of the log below this number.
    group_rows: rows of a row group at most; the columns are those of `ROWS_SCHEMA`.

    Returns:
        how many different values there are at most: the sum over the row groups.
    """
    most_values = 0
    with pq.ParquetWriter(target, ROWS_SCHEMA) as writer:
        for table in _row_groups(column, days, num_rows, group_rows):
            most_values += pc.count_distinct(table["value"]).as_py()
            writer.write_table(table, row_group_size=table.num_rows)
    return most_values


def _row_groups(
    column: str, days: Sequence[DayFile], num_rows: int, group_rows: int
) -> Iterator[pa.Table]:
    waiting, num_waiting = [], 0
    for day in days:
        end = min(day.num_rows, num_rows - day.first_row)
        for rows, block in staged_blocks(day, end, [column], group_rows):
            there = pa.record_batch([block[column], rows], schema=ROWS_SCHEMA)
            there = there.filter(pc.is_valid(there["value"]))
            if num_waiting + len(there) > group_rows:
                yield pa.Table.from_batches(waiting)
                waiting, num_waiting = [], 0
            waiting.append(there)
            num_waiting += len(there)
    if num_waiting:
        yield pa.Table.from_batches(waiting)
