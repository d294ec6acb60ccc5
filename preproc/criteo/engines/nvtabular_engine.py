"""NVTabular engine: on a GPU with cuDF, or on the CPU with pandas.

DuckDB parses the lines. `Categorify` counts and looks up one column at a time, partition by
partition, in this process: a Dask cluster on one machine is slower. It holds every different value
that it gets, as Python objects on the CPU. Where a column has more of them than the memory limit
allows, its rows are first divided by a hash of the value, and each slice is a column of its own.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataloading.table_input.duckdb_files import quoted, read_parquet
from preproc.criteo.engines.duckdb_engine import CriteoDuckDBEngine, column_query
from preproc.criteo.engines.interface import ColumnByColumn, DayFile
from preproc.criteo.options import CriteoOptions
from preproc.criteo.output.binary_files import ColumnFiles, NumericalWriter
from preproc.engines.nvtabular_session import FIRST_ID, NVTabularSession, quiet
from runtime.files.atomic import sync

_ROW_BYTES = 400  # what a row of a partition takes while NVTabular looks it up; measured: 200
_VALUE_BYTES = 500  # what a different value takes while NVTabular looks it up; measured: 350
_MAX_PARTITION_ROWS = 1 << 20  # larger ones are not faster
# A vocabulary may hold more than the 2 GiB of text that a column of pa.string() can.
_VOCABULARY_SCHEMA = pa.schema({"value": pa.large_string(), "count": pa.int64()})


class CriteoNVTabularEngine(ColumnByColumn, NVTabularSession):
    """See `CriteoEngine`; the memory limit decides how large partitions and slices are.

    Raises:
        ValueError: NVTabular is not installed, or the memory limit is too small for it.
    """

    name = "nvtabular"
    writes_in_order = False

    def __init__(self, options: CriteoOptions, scratch: Path):
        remedy = "; possible solutions: a --memory_limit that this machine has"
        super().__init__(options, scratch, remedy)
        self._partition_rows = min(_MAX_PARTITION_ROWS, self._free_bytes // 4 // _ROW_BYTES)
        self._slice_values = self._free_bytes // 2 // _VALUE_BYTES

    def _duckdb(self) -> CriteoDuckDBEngine:
        """Returns DuckDB, whose staged days and vocabularies have the same form."""
        return CriteoDuckDBEngine(self._options, self._scratch)

    def parse_day(self, source: Path, target: Path, scratch: Path) -> dict[str, int]:
        with self._duckdb() as duckdb:
            return duckdb.parse_day(source, target, scratch)

    def write_numericals(self, days: Sequence[DayFile], writer: NumericalWriter) -> dict[str, int]:
        with self._duckdb() as duckdb:
            return duckdb.write_numericals(days, writer)

    def write_vocabulary(self, vocabulary: Path, target: Path) -> None:
        with self._duckdb() as duckdb:
            duckdb.write_vocabulary(vocabulary, target)

    def count_values(
        self, column: str, days: Sequence[DayFile], num_rows: int, threshold: int, target: Path
    ) -> int:
        query = column_query(column, days, num_rows)
        with self._duckdb() as duckdb:
            (num_values,) = duckdb.connection.execute(
                f"SELECT count(DISTINCT value) FROM ({query})"
            ).fetchone()
        num_slices = -(-num_values // self._slice_values)
        counted = []
        with self._folder("column") as folder, quiet():
            for i in range(num_slices):
                rows = folder / f"rows_{i}.parquet"
                if self._write_slice(query, i, num_slices, rows):
                    dataset = self._parquet_dataset([rows], row_groups_per_part=1)
                    # Where no value is left, NVTabular's file does not contain its type.
                    values = self._counted(dataset, "value", threshold)
                    counted.append(values.cast(_VOCABULARY_SCHEMA))
                rows.unlink()
        # Values with equal counts are in any order up to here; Arrow compares text bytewise.
        vocabulary = pa.concat_tables([_VOCABULARY_SCHEMA.empty_table(), *counted]).sort_by(
            [("count", "descending"), ("value", "ascending")]
        )
        new = target.with_suffix(".new")
        pq.write_table(vocabulary, new)
        sync(new)
        new.replace(target)
        return vocabulary.num_rows

    def _write_slice(self, query: str, number: int, num_slices: int, target: Path) -> int:
        """Writes the rows of one slice of the values; returns their number."""
        with self._duckdb() as duckdb:
            (num_rows,) = duckdb.connection.execute(
                f"COPY (SELECT * FROM ({query}) WHERE value IS NOT NULL "
                f"AND hash(value) % {num_slices} = {number}) TO {quoted(target)} "
                f"(FORMAT parquet, ROW_GROUP_SIZE {self._partition_rows})"
            ).fetchone()
        return num_rows

    def write_ids(
        self, column: str, days: Sequence[DayFile], vocabulary: Path, files: ColumnFiles
    ) -> int:
        num_values = pq.read_metadata(vocabulary).num_rows
        num_slices = -(-num_values // self._slice_values)
        query = column_query(column, days, max(day.first_row + day.num_rows for day in days))
        values_query = (
            f"SELECT value, file_row_number + 1 AS id "
            f"FROM {read_parquet(vocabulary, 'file_row_number=true')}"
        )
        known = 0
        with self._folder("column") as folder:
            for i in range(num_slices):
                rows, values = folder / f"rows_{i}.parquet", folder / "values.parquet"
                if not self._write_slice(query, i, num_slices, rows):
                    continue
                if not self._write_slice(values_query, i, num_slices, values):
                    continue
                ids = pq.read_table(values, columns=["id"])["id"].to_numpy()
                ids = np.concatenate([np.zeros(FIRST_ID, np.int64), ids])
                for row_numbers, codes in self._encoded(rows, values):
                    is_known = codes >= FIRST_ID
                    files.write(row_numbers[is_known], ids[codes[is_known]])
                    known += int(np.count_nonzero(is_known))
                rows.unlink()
        return known

    def _encoded(self, rows: Path, values: Path) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields row numbers and NVTabular's ids; values: a file in the order of their ids."""
        categorify = self._nvtabular.ops.Categorify(vocabs={"value": str(values)})
        workflow = self._nvtabular.Workflow((["value"] >> categorify) + ["row"])
        with quiet():
            dataset = self._parquet_dataset([rows], row_groups_per_part=1)
            workflow.fit_schema(dataset.schema)
            partitions = workflow.transform(dataset).to_ddf().partitions
        for partition in partitions:
            encoded = partition.compute(scheduler="synchronous")
            yield encoded["row"].to_numpy(), encoded["value"].to_numpy()
