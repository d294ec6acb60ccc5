"""NVTabular engine: on a GPU with cuDF, or on the CPU with pandas.

DuckDB parses the lines. `Categorify` counts and looks up one column at a time, partition by
partition, in this process: a Dask cluster on one machine is slower. It holds every different value
that it gets, as Python objects on the CPU. Where a column has more of them than the memory limit
allows, its rows are first divided by a hash of the value, and each slice is a column of its own.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from preproc.criteo.engines.duckdb_engine import CriteoDuckDBEngine
from preproc.criteo.engines.interface import DayFile
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output.binary_files import ColumnFiles, NumericalWriter
from preproc.engines.nvtabular_session import FIRST_ID, NVTabularSession, quiet
from runtime.files.atomic import sync

_ROW_BYTES = 400  # what a row of a partition takes while NVTabular looks it up; measured: 200
_VALUE_BYTES = 500  # what a different value takes while NVTabular looks it up; measured: 350
_MAX_PARTITION_ROWS = 1 << 20  # larger ones are not faster
_ROWS_SCHEMA = pa.schema({"value": pa.string(), "row": pa.int64()})
# A vocabulary may hold more than the 2 GiB of text that a column of pa.string() can.
_VOCABULARY_SCHEMA = pa.schema({"value": pa.large_string(), "count": pa.int64()})


class CriteoNVTabularEngine(NVTabularSession):
    """See `CriteoEngine`; the memory limit decides how large partitions and slices are.

    Raises:
        ValueError: NVTabular is not installed, or the memory limit is too small for it.
    """

    name = "nvtabular"
    writes_in_order = False

    def __init__(self, options: CriteoOptions, scratch: Path):
        self._options = options
        super().__init__(
            options.memory_limit_bytes,
            options.threads,
            scratch,
            out_of_memory="; possible solutions: a --memory_limit that this machine has",
        )
        self._partition_rows = min(_MAX_PARTITION_ROWS, self._free_bytes // 4 // _ROW_BYTES)
        self._slice_values = self._free_bytes // 2 // _VALUE_BYTES

    # By DuckDB, whose staged days and vocabularies have the same form

    def _duckdb(self) -> CriteoDuckDBEngine:
        return CriteoDuckDBEngine(self._options, self._scratch)

    def parse_day(self, source: Path, target: Path, scratch: Path) -> dict[str, int]:
        """See `CriteoEngine`; `target` is a Parquet file as DuckDB's engine makes it."""
        with self._duckdb() as duckdb:
            return duckdb.parse_day(source, target, scratch)

    def write_numericals(self, days: Sequence[DayFile], writer: NumericalWriter) -> dict[str, int]:
        """See `CriteoEngine`."""
        with self._duckdb() as duckdb:
            return duckdb.write_numericals(days, writer)

    def write_vocabulary(self, vocabulary: Path, target: Path) -> None:
        """See `CriteoEngine`."""
        with self._duckdb() as duckdb:
            duckdb.write_vocabulary(vocabulary, target)

    # By NVTabular

    def count_values(
        self, column: str, days: Sequence[DayFile], num_rows: int, threshold: int, target: Path
    ) -> int:
        """See `CriteoEngine`; `target` is a Parquet file (value, count) in the order of the ids."""
        with self._folder("column") as folder:
            rows = folder / "rows.parquet"
            most_values = _write_column(column, days, num_rows, rows, self._partition_rows)
            num_slices = -(-most_values // self._slice_values)
            counted = [
                self._counted(part, num_slices, threshold)
                for part in _sliced(rows, num_slices)
                if part is not None
            ]
        # Values with equal counts are in any order up to here; Arrow compares text bytewise.
        vocabulary = pa.concat_tables([_VOCABULARY_SCHEMA.empty_table(), *counted]).sort_by(
            [("count", "descending"), ("value", "ascending")]
        )
        new = target.with_suffix(".new")
        pq.write_table(vocabulary, new)
        sync(new)
        new.replace(target)
        return vocabulary.num_rows

    def _counted(self, rows: Path, num_slices: int, threshold: int) -> pa.Table:
        """The values seen `threshold` times or more and their counts, in any order."""
        with self._folder("categorify") as folder, quiet():
            categorify = self._nvtabular.ops.Categorify(
                freq_threshold=threshold, out_path=str(folder)
            )
            workflow = self._nvtabular.Workflow(["value"] >> categorify)
            workflow.fit(self._dataset(rows, num_slices))
            path = categorify.categories["value"]
            counted = pq.read_table(path, columns=["value", "value_size"])
        # Where no value is left, NVTabular's file does not contain its type.
        return counted.rename_columns(_VOCABULARY_SCHEMA.names).cast(_VOCABULARY_SCHEMA)

    def write_ids(
        self, column: str, days: Sequence[DayFile], vocabulary: Path, files: ColumnFiles
    ) -> int:
        """See `CriteoEngine`."""
        values = pq.read_table(vocabulary, columns=["value"])["value"].combine_chunks()
        if not len(values):
            return 0
        end = max(day.first_row + day.num_rows for day in days)
        num_slices = -(-len(values) // self._slice_values)
        slices = _slice_numbers(values, num_slices)
        known = 0
        with self._folder("column") as folder:
            rows = folder / "rows.parquet"
            _write_column(column, days, end, rows, self._partition_rows)
            for i, part in enumerate(_sliced(rows, num_slices)):
                positions = np.flatnonzero(slices == i)
                if part is None or not len(positions):
                    continue
                its_values = folder / "values.parquet"
                pq.write_table(pa.table({"value": values.take(positions)}), its_values)
                ids = np.concatenate([np.zeros(FIRST_ID, np.int64), positions + 1])
                for row_numbers, codes in self._encoded(part, num_slices, its_values):
                    is_known = codes >= FIRST_ID
                    files.write(row_numbers[is_known], ids[codes[is_known]])
                    known += int(np.count_nonzero(is_known))
        return known

    def _encoded(
        self, rows: Path, num_slices: int, values: Path
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields row numbers and NVTabular's ids; values: a file in the order of their ids."""
        categorify = self._nvtabular.ops.Categorify(vocabs={"value": str(values)})
        workflow = self._nvtabular.Workflow((["value"] >> categorify) + ["row"])
        with quiet():
            dataset = self._dataset(rows, num_slices)
            workflow.fit_schema(dataset.schema)
            partitions = workflow.transform(dataset).to_ddf().partitions
        for partition in partitions:
            encoded = partition.compute(scheduler="synchronous")
            yield encoded["row"].to_numpy(), encoded["value"].to_numpy()

    def _dataset(self, rows: Path, num_slices: int):
        # A slice has as many row groups as the column, each that much smaller.
        return self._parquet_dataset([rows], row_groups_per_part=max(1, num_slices))


def _slice_numbers(values: pa.Array, num_slices: int) -> np.ndarray:
    """The slice, 0 to num_slices - 1, of each value [n]; the same for the same value."""
    from pandas.util import hash_array

    return hash_array(values.to_numpy(zero_copy_only=False)) % num_slices


def _sliced(rows: Path, num_slices: int) -> list[Path | None]:
    """Divides a column's rows by their values; None stands for a slice without rows."""
    if num_slices <= 1:
        return [rows] * num_slices
    paths = [rows.with_name(f"slice_{i}.parquet") for i in range(num_slices)]
    with contextlib.ExitStack() as stack, pq.ParquetFile(rows) as file:
        writers = {}
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            numbers = _slice_numbers(table["value"].combine_chunks(), num_slices)
            table = table.take(np.argsort(numbers, kind="stable"))
            ends = np.cumsum(np.bincount(numbers.astype(np.int64), minlength=num_slices))
            for i, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                if start == end:
                    continue
                if i not in writers:
                    writers[i] = stack.enter_context(pq.ParquetWriter(paths[i], _ROWS_SCHEMA))
                writers[i].write_table(table.slice(start, end - start))
    rows.unlink()
    return [path if i in writers else None for i, path in enumerate(paths)]


def _write_column(
    column: str, days: Sequence[DayFile], num_rows: int, target: Path, group_rows: int
) -> int:
    """Writes the rows of a column that have a value; returns a bound of their different values."""
    most_values = 0
    with pq.ParquetWriter(target, _ROWS_SCHEMA) as writer:
        for table in _row_groups(column, days, num_rows, group_rows):
            most_values += pc.count_distinct(table["value"]).as_py()
            writer.write_table(table, row_group_size=table.num_rows)
    return most_values


def _row_groups(
    column: str, days: Sequence[DayFile], num_rows: int, group_rows: int
) -> Iterator[pa.Table]:
    """Yields the present values and their row numbers, at most group_rows at a time."""
    waiting, num_waiting = [], 0
    for day in days:
        first, end = day.first_row, min(day.first_row + day.num_rows, num_rows)
        for block in pq.ParquetFile(day.path).iter_batches(group_rows, columns=[column]):
            block = block.slice(0, max(0, end - first))
            rows = pa.record_batch(
                [block[column], np.arange(first, first + len(block))], schema=_ROWS_SCHEMA
            )
            first += len(block)
            rows = rows.filter(pc.is_valid(rows["value"]))
            if num_waiting + len(rows) > group_rows:
                yield pa.Table.from_batches(waiting)
                waiting, num_waiting = [], 0
            waiting.append(rows)
            num_waiting += len(rows)
    if num_waiting:
        yield pa.Table.from_batches(waiting)
