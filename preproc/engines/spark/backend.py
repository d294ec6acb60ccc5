"""Spark as an engine: rows in part files of a folder that all workers see.

Tasks parse text with the reader of the other engine (`staged_rows`); Spark divides files among
them, reads remote ones, and runs the queries.
"""

import bisect
import functools
import itertools
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
from ibis.backends.sql.datatypes import PySparkType
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from preproc.engines.engine import (
    BATCH_ROWS,
    PART,
    ROW,
    Engine,
    Work,
    has_row_order,
    has_whole_parts,
    loses_row_order,
    source_name,
)
from preproc.engines.spark.hadoop_store import HadoopStore
from preproc.engines.spark.session import Session, SessionOptions, literal
from preproc.engines.spark.source_parts import (
    StagedChunk,
    collect_splits,
    column,
    number_parts,
    stage_chunk,
)
from preproc.engines.spark.staged_rows import REPORT, FileSplit, MapRows, StageResult
from preproc.sources.column_chunk import SourceChunk

_SPLIT_BYTES = 32 << 20


class SparkBackend(Session, Engine):
    """See `engine.Engine`.

    Args:
        scratch: for temporary files of this machine.
        staging: folder for tables, which all workers see.
    """

    dialect = "pyspark"

    def __init__(
        self,
        scratch: Path,
        staging: Path,
        memory_limit_bytes: int,
        threads: int | None = None,
        master: str | None = None,
        spark_conf: tuple[str, ...] = (),
    ):
        threads = threads or len(os.sched_getaffinity(0))
        options = SessionOptions(master, spark_conf, threads, memory_limit_bytes)
        more = {"spark.sql.files.maxPartitionBytes": str(_SPLIT_BYTES)}
        super().__init__(options, scratch, f"preparation in {staging}", staging, more)
        self._staging = staging.absolute()
        self._names = (f"table_{number}" for number in itertools.count())
        Engine.__init__(self)

    @functools.cached_property
    def store(self) -> HadoopStore:
        """The file systems that Spark knows."""
        return HadoopStore(self._spark)

    def fetch(self, expression: ibis.Table) -> pa.Table:
        batches = list(self.batches(expression))
        with self.explained_errors():
            schema = to_arrow_schema(self._query(expression).schema)
        return pa.Table.from_batches([batch.cast(schema) for batch in batches], schema)

    def batches(self, expression: ibis.Table) -> Iterator[pa.RecordBatch]:
        """See `Engine`: the result passes through files, because Spark has no ordered stream."""
        if has_row_order(expression) and ROW in expression.columns:
            expression = expression.order_by(ROW)
        with self.explained_errors():
            frame = self._query(expression)
            folder, splits = self._stage_result(frame)
        try:
            for split in splits:
                for part in split.parts:
                    with pq.ParquetFile(folder / part.name) as file:
                        for batch in file.iter_batches(BATCH_ROWS):
                            yield batch.rename_columns(frame.columns)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def store_table(self, expression: ibis.Table, name: str) -> ibis.Table:
        with self.explained_errors():
            frame = self._query(expression)
            if loses_row_order(expression):
                frame = _by_part(frame)
            table = self._stored_table(frame, has_whole_parts(expression))
        self._chunks[table.get_name()] = self._chunks.get(source_name(expression), [])
        return table

    def map_batches(self, expression: ibis.Table, work: Work) -> list[str]:
        with self.explained_errors():
            frame = self._query(expression)
            if not has_row_order(expression):
                frame = _by_part(frame)
            results = frame.mapInArrow(MapRows(work, self.token), REPORT).collect()
        return [result for (result,) in results]

    def _query(self, expression: ibis.Table) -> DataFrame:
        """Returns a result with the columns and the int64 of Ibis: Spark has other integers for
        some, and the number of each row where a limit has an offset."""
        frame = self._spark.sql(str(ibis.to_sql(expression, dialect=self.dialect)))
        kinds = expression.schema()
        return frame.select(
            *(
                F.col(column(name)).cast("bigint") if kind.is_int64() else column(name)
                for name, kind in kinds.items()
            )
        ).toDF(*kinds)

    def _read_chunk(self, chunk: SourceChunk, on_bad_line: str) -> StagedChunk:
        folder = self._new_folder()
        return stage_chunk(self._spark, self.store, self.token, folder, chunk, on_bad_line)

    def _file_of(self, chunk: StagedChunk, row: int) -> tuple[int, int]:
        file = chunk.part_files[bisect.bisect(chunk.first_rows, row) - 1]
        return file, chunk.first_rows[chunk.part_files.index(file)]

    def _new_folder(self) -> Path:
        folder = self._staging / next(self._names)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def _stage_result(
        self, frame: DataFrame, is_by_part: bool = False
    ) -> tuple[Path, list[FileSplit]]:
        """Writes the rows of a query in parts, partition after partition.

        Args:
            is_by_part: whether a part has the rows of one `__part`, instead of any neighbours.
        """
        folder = self._new_folder()
        part = frame.columns.index(PART) if is_by_part else None
        plain = frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))
        plain = plain.withColumn("partition", F.spark_partition_id())
        return folder, collect_splits(plain, StageResult(folder, self.token, part))

    def _stored_table(self, frame: DataFrame, is_by_part: bool) -> ibis.Table:
        folder, splits = self._stage_result(frame, is_by_part)
        number_parts(folder, splits)
        return self._table(folder.name, self._parts(folder, frame.schema))

    def _read_table(self, chunk: StagedChunk) -> ibis.Table:
        """Returns the table of a chunk: a part has its number in its name, a row in its file."""
        part = F.expr("CAST(substr(_metadata.file_name, 6, 8) AS BIGINT)")

        def by_part(values: Sequence, kind: str) -> Column:
            listed = F.from_json(F.lit(json.dumps(values)), f"array<{kind}>")
            return F.element_at(listed, (part + 1).cast("int"))

        row = by_part(chunk.first_rows, "bigint") + F.col("_metadata.row_index")
        added = {PART: part, ROW: row}
        for name, values in chunk.folder_values.items():
            added[name] = by_part([values[file] for file in chunk.part_files], "string")
        more = (expression.alias(name) for name, expression in added.items())
        frame = self._parts(chunk.folder, chunk.schema, *more)
        columns = (PART, ROW, *chunk.columns)
        return self._table(chunk.folder.name, frame.select(*map(column, columns)))

    def _parts(self, folder: Path, schema: StructType, *more: Column) -> DataFrame:
        """Returns the rows in the parts of a folder, after more columns."""
        # The columns of parts have numbers, because Parquet refuses some names.
        types = [StructField(f"c{i}", field.dataType) for i, field in enumerate(schema.fields)]
        reader = self._spark.read.schema(StructType(types))
        rows = reader.option("pathGlobFilter", "part-*.parquet").parquet(literal(folder))
        names = [F.col(f"c{i}").alias(name) for i, name in enumerate(schema.names)]
        return rows.select(*more, *names)

    def _table(self, name: str, frame: DataFrame) -> ibis.Table:
        frame.createOrReplaceTempView(name)
        types = {f.name: PySparkType.from_string(f.dataType.simpleString()) for f in frame.schema}
        return ibis.table(types, name=name)

    def _joined(self, chunks: Sequence[StagedChunk]) -> ibis.Table:
        tables = [self._read_table(chunk) for chunk in chunks]
        if len(tables) == 1:
            return tables[0]
        names = [name for chunk in chunks for name in chunk.columns]
        first, *others = (self._spark.table(table.get_name()) for table in tables)
        for other in others:
            first = first.join(other.drop(PART), ROW)
        ordered = first.select(*map(column, (PART, ROW, *names)))
        return self._stored_table(_by_part(ordered), True)


def _by_part(frame: DataFrame) -> DataFrame:
    """Returns the rows with whole parts in each partition, in order."""
    return frame.repartition(PART).sortWithinPartitions(PART, ROW)
